"""What the trampoline starts when a command may be ours: `python -I -m holdfast.oci ARGUMENTS`."""

from __future__ import annotations

import sys

from holdfast.oci.runc_handler import RuncHandler

if __name__ == "__main__":
    sys.exit(RuncHandler().handle(sys.argv[1:]))
