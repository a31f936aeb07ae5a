"""`python -m holdfast.oci ARGUMENTS`: what the trampoline comes to when a command may be ours."""

from __future__ import annotations

import sys

from holdfast.oci.runc_handler import RuncHandler

if __name__ == "__main__":
    sys.exit(RuncHandler().handle(sys.argv[1:]))
