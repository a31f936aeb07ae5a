"""The end of a container: seen by a watcher, understood when the container is deleted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import msgspec

from holdfast.oci import ledger, watcher
from holdfast.oci.container import Container
from holdfast.oci.decision import ending
from holdfast.oci.engine import EngineFailed
from holdfast.oci.ledger import Ledger
from holdfast.oci.state import Exit, Killed, Process

_EXIT_SECONDS = 5.0  # for a watcher that lives, on a machine that stands still


def watch(container: Container) -> None:
    """Start the process that learns how the container ends, and remember it."""
    path = container.state.exit_path
    # Opened here and handed on: the container may be gone before the watcher has begun, and another
    # one of its name may be there.
    with ExitStack() as opened:
        try:
            pid = container.pid()
            process = os.pidfd_open(pid)
            opened.callback(os.close, process)
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, folder)
        except (EngineFailed, OSError) as error:  # it has ended already
            container.journal.write("warning", f"its end will not be known: {error}")
            return
        words = [watcher.__file__, str(process), str(folder), path.name]
        started = subprocess.Popen(
            [sys.executable, "-I", "-S", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[process, folder],
            cwd="/",
        )
    record = container.state.record or container.record
    container.state.record = msgspec.structs.replace(
        record, pid=pid, watcher=Process.of(started.pid)
    )


def started(container: Container) -> None:
    """A revived container runs again: its checkpoint did not fail."""
    if container.record.restored_from is not None:
        ledger.count(container.ledger, container.record.restored_from, -1)


def learn(container: Container, *, forced: bool) -> None:
    """Do about a container's checkpoints what its end asks for. `forced`: `delete` ended it."""
    killed = container.state.killed or (Killed("KILL", by="delete") if forced else None)
    how = ending(None if killed else _exit(container), killed)
    container.journal.write("info", "deleted" if how == "unknown" else f"deleted; it has {how}")
    if how == "finished":
        _finished(container)
    elif how == "crashed":
        _crashed(container)


def _finished(container: Container) -> None:
    """It has done its work: nobody needs its checkpoints."""
    found = container.vault.list(container.subject)
    for saved in found:
        container.vault.forget(saved)
    container.ledger.unlink(missing_ok=True)
    container.journal.write("info", f"its work is done: {len(found)} checkpoints removed")


def _crashed(container: Container) -> None:
    found = container.vault.list(container.subject)
    if not found:
        return
    counts = Ledger.read(container.ledger)
    if container.record.restored_from is not None:
        counts = counts.changed(container.record.restored_from, +1)
    msgspec.structs.replace(counts, crashed=found[0].id).write(container.ledger)


def _exit(container: Container) -> Exit | None:
    """How the container ended; its watcher may need a moment to say so."""
    process = container.record.watcher
    end = time.monotonic() + _EXIT_SECONDS
    while container.state.exit is None and process is not None and process.alive:
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return container.state.exit
