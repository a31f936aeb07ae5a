"""Brings a container back: verify, fill a clean layer, restore, freeze until it is started.

What cannot be used is refused in words, and then the layer is as it was before.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from holdfast.model.errors import HoldfastError
from holdfast.oci import ledger, standstill, vault
from holdfast.oci.command import RuncCommand
from holdfast.oci.config_handler import Config
from holdfast.oci.container import Container
from holdfast.oci.engine import EngineFailed, Limits
from holdfast.oci.guard import guarded, note
from holdfast.oci.layer.extract import drop_aside, extract, is_empty, set_aside
from holdfast.oci.lazy import is_worth_it, servable, serving
from holdfast.oci.ledger import Ledger
from holdfast.oci.likeness import check_likeness
from holdfast.oci.loopback import bring_up, has_own_network
from holdfast.oci.overlay import find_overlay
from holdfast.oci.policy import Policy
from holdfast.oci.private import private_folder
from holdfast.oci.state import Operation, Process
from holdfast.oci.vault import Saved
from holdfast.runtime.trial import clear

_NOT_FOR_RESTORE = frozenset(["no-new-keyring", "preserve-fds", "pidfd-socket"])


@dataclass(frozen=True, slots=True)
class Revival:
    """What became of an attempt to revive: from which checkpoint, or why from none."""

    restored: Saved | None
    refused: list[str] = field(default_factory=list)


def choose(found: Sequence[Saved], counts: Ledger, policy: Policy) -> tuple[list[Saved], list[str]]:
    """Which checkpoints may be tried, newest first, and why the others may not. Pure."""
    if found and policy.on_crash == "cold" and counts.crashed == found[0].id:
        return [], ["it crashed after its last checkpoint, and the policy wants a cold start then"]
    usable, refused = [], []
    for saved in found:
        failures = counts.of(saved.id)
        if failures >= policy.restore_limit:
            refused.append(f"checkpoint {saved.id} failed {failures} times and is left alone")
        else:
            usable.append(saved)
    return usable, refused


class _LazyFailed(HoldfastError):
    """A lazy restore came to nothing; an eager one may do."""


class Reviver:
    """Revives one container that is being created."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._runc = container.runc
        self._state = container.state

    def revive(self, command: RuncCommand, config: Config) -> Revival:
        """Bring the container back from its newest checkpoint that can be used, frozen. When none
        can, its layer is as it was before."""
        it = self._container
        found = it.vault.list(it.subject)
        usable, refused = choose(found, Ledger.read(it.ledger), it.policy)
        for saved in usable:
            try:
                self._try_both_ways(saved, command, config)
            except Exception as error:  # noqa: BLE001  whatever is wrong with one, others may do
                reason = f"checkpoint {saved.id} was not restored: {error}"
                refused.append(reason)
                it.journal.write("error", reason, kind=getattr(error, "kind", "fault"))
                continue
            it.journal.write("info", "restored", id=saved.id)
            return Revival(saved, refused)
        return Revival(None, refused)

    def restore_images(self, command: RuncCommand) -> None:
        """Restore from images that the caller brings, within the limits; raises EngineFailed."""
        it = self._container
        options = command.options
        place = options.text("work-path") or options.text("image-path") or "."
        limits = Limits(it.policy.restore_seconds, Path(place), it.policy.log_bytes)
        operation = Operation(what="restore", owner=Process.current())
        with guarded(self._state, operation, it.undo()):
            try:
                self._runc.supervise(command.argv, limits, streams=True, started=self._note_engine)
            except EngineFailed as error:
                raise EngineFailed(f"{it.subject} was not restored: {error}") from error

    def _try_both_ways(self, saved: Saved, command: RuncCommand, config: Config) -> None:
        """Lazily where that is worth it, and if that fails, eagerly."""
        try:
            self._revive(saved, command, config, lazily=True)
        except _LazyFailed as error:
            self._container.journal.write("warning", f"restored eagerly: {error}", id=saved.id)
            ledger.count(self._container.ledger, saved.id, -1)
            self._revive(saved, command, config, lazily=False)

    def _revive(self, saved: Saved, command: RuncCommand, config: Config, *, lazily: bool) -> None:
        it = self._container
        overlay = find_overlay(command.bundle, config)
        scratch = Path(it.policy.work_path) / f"restore-{os.getpid()}-{saved.id}"
        aside = f"{overlay.upper.rstrip('/')}.holdfast-{saved.id}"
        whole = it.vault.stage()  # on the disk of the checkpoints, and so quickly filled, or never
        folders = (str(scratch), str(whole))
        operation = Operation(what="restore", owner=Process.current(), scratch=folders)
        with guarded(self._state, operation, it.undo()), it.vault.reading(it.subject):
            private_folder(scratch)
            folder = it.vault.fetch(saved, scratch)
            environment = json.loads((folder / vault.ENVIRONMENT).read_bytes())
            check_likeness(environment, config)
            # Refusing what was never tried is no failure of the checkpoint; trying it may be.
            ledger.count(it.ledger, saved.id, +1)
            clean = is_empty(overlay.upper)
            note(self._state, upper=overlay.upper, aside=None if clean else aside)
            if not clean:
                set_aside(overlay.upper, aside)
            with (folder / vault.LAYER).open("rb") as stream:
                extract(stream, overlay.upper, below=overlay.point)
            _forget_names(overlay.point)
            memory, work, options = (
                folder / vault.MEMORY,
                scratch / vault.WORK,
                environment["options"],
            )
            work.mkdir(mode=0o700)
            worth = lazily and is_worth_it(memory, it.policy, it.record.mode)
            served = servable(memory, whole) if worth else None
            with self._stopping(environment.get("criu_options", ())):
                if served is not None:
                    self._restore_lazily(served, work, command, options)
                else:
                    self._restore(memory, work, command, options)
            self._runc.need("pause", it.id)
            pid = it.pid()
            standstill.let_go(pid, memory)
            if has_own_network(config):
                bring_up(pid)
            self._state.unstarted = True
        # The container is back: from here on nothing counts as a failed restore, after which the
        # next attempt would delete it.
        try:
            if not clean:
                drop_aside(aside)
            clear(scratch)
            clear(whole)
        except OSError as error:
            it.journal.write("warning", f"restored, but old files stay on the disk: {error}")

    @contextmanager
    def _stopping(self, lines: Sequence[str]) -> Iterator[None]:
        """Have CRIU stop what it restores meanwhile; what it dumps afterwards goes on."""
        self._state.tell_criu([*lines, standstill.STOPPED])
        try:
            yield
        finally:
            self._state.tell_criu(lines)

    def _restore_lazily(
        self, memory: Path, work: Path, command: RuncCommand, options: Sequence[str]
    ) -> None:
        try:
            it = self._container
            status = self._state.pages_path
            with serving(self._runc, memory, work, it.id, status) as daemon:
                self._restore(memory, work, command, [*options, "--lazy-pages"])
        except EngineFailed as error:
            raise _LazyFailed(str(error)) from error
        record = self._state.record
        if record is not None:
            self._state.record = msgspec.structs.replace(record, pages=daemon)

    def _restore(
        self, memory: Path, work: Path, command: RuncCommand, options: Sequence[str]
    ) -> None:
        argv = command.turned(
            "restore",
            without=_NOT_FOR_RESTORE,
            extra=[
                *("--detach", "--no-subreaper", *options),
                *("--image-path", str(memory), "--work-path", str(work)),
            ],
        )
        policy = self._container.policy
        limits = Limits(policy.restore_seconds, work, policy.log_bytes)
        self._runc.supervise(argv, limits, streams=True, started=self._note_engine)

    def _note_engine(self, process: Process) -> None:
        note(self._state, engine=process)


def _forget_names(point: str) -> None:
    """Let the kernel forget what it has looked up through the mount: a remount drops all of it.
    Usually nobody has looked, so a kernel that refuses does no harm."""
    subprocess.run(
        ["mount", "-o", "remount", point],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
