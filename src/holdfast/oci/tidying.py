"""`python -m holdfast.oci.tidying BASE SUBJECT OCCASION`: compaction behind everybody's back.

Whoever took a checkpoint does not wait for it, and the container runs again. It may be killed at
any moment; the next checkpoint begins it anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from holdfast.model.subject import Subject
from holdfast.oci.compaction import Occasion, compact, look
from holdfast.oci.container import Container
from holdfast.oci.journal import Journal
from holdfast.oci.opening import open_vault
from holdfast.oci.path_vault import PathVault
from holdfast.oci.policy import policy_or_default, policy_path

_NICE = 5


def tidy(container: Container, occasion: Occasion) -> None:
    """Drop what nobody keeps; what takes longer is begun, and not waited for."""
    vault = container.vault
    if isinstance(vault, PathVault) and look(vault, container.subject, container.policy, occasion):
        words = [str(vault.base), str(container.subject), occasion]
        subprocess.Popen(
            [sys.executable, "-I", "-W", "ignore", "-m", "holdfast.oci.tidying", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=dict(container.environ),
        )
    else:
        vault.keep(container.subject, container.policy.keep)
    vault.sweep()


def main(base: str, name: str, occasion: str) -> int:
    """Compact the checkpoints of one container, unless somebody does so already."""
    os.nice(_NICE)
    policy, _ = policy_or_default(policy_path())
    vault = open_vault("local", base, policy, os.environ)
    journal = Journal(Path(policy.log), name)
    if not isinstance(vault, PathVault):
        return 2
    subject = Subject.parse(name)
    try:
        with vault.tidying(subject, wait=False) as ours:
            if not ours:
                return 0
            done, trouble = compact(vault, subject, policy, cast(Occasion, occasion))
    except OSError as error:
        journal.write("warning", f"its checkpoints stay as they are: {error}")
        return 1
    if done.plan or done.dropped:
        journal.write(
            "info",
            "compacted",
            folded=done.plan.fold,
            compressed=done.plan.compress,
            dropped=done.dropped,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
        )
    for each in trouble:
        journal.write("warning", f"a checkpoint stays as it is: {each}")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
