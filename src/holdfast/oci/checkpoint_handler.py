"""Takes a container's checkpoint and revives it from one: the order of the steps is the point.

Taking: freeze, dump, capture the layer, thaw, keep. Reviving: verify, fill a clean layer, restore,
freeze until it is started. What fails at any step leaves the container as it was.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.model.errors import (
    CaptureFailed,
    Conflict,
    HoldfastError,
    from_os_error,
)
from holdfast.model.subject import Subject
from holdfast.oci import ledger, vault
from holdfast.oci.command import RuncCommand
from holdfast.oci.config_handler import Config
from holdfast.oci.engine import EngineFailed, Limits, Runc
from holdfast.oci.guard import Undo, guarded, note
from holdfast.oci.journal import Journal
from holdfast.oci.layer import capture
from holdfast.oci.layer.extract import drop_aside, extract, is_empty, set_aside
from holdfast.oci.likeness import check_likeness, likeness
from holdfast.oci.loopback import bring_up, has_own_network
from holdfast.oci.overlay import Overlay, find_overlay
from holdfast.oci.policy import Policy
from holdfast.oci.private import private_folder
from holdfast.oci.state import ContainerState, Killed, Operation, Process, Record
from holdfast.oci.vault import Saved, Vault
from holdfast.runtime.trial import clear

_KILL_SECONDS = 20.0
# Options of `checkpoint` that `restore` must be given, too.
_SHARED = ("--tcp-established", "--ext-unix-sk", "--shell-job", "--file-locks", "--empty-ns")
_NOT_FOR_RESTORE = frozenset(["no-new-keyring", "preserve-fds", "pidfd-socket"])


@dataclass(frozen=True, slots=True)
class Taken:
    """A checkpoint that was taken."""

    saved: Saved
    frozen_ms: float


@dataclass(frozen=True, slots=True)
class Revival:
    """What became of an attempt to revive: from which checkpoint, or why from none."""

    restored: Saved | None
    refused: list[str] = field(default_factory=list)


class CheckpointHandler:
    """One container's checkpoints."""

    def __init__(
        self,
        runc: Runc,
        state: ContainerState,
        record: Record,
        place: Vault,
        policy: Policy,
        journal: Journal,
    ) -> None:
        self._runc = runc
        self._state = state
        self._id = record.id
        self._subject = Subject.parse(record.subject)
        self._vault = place
        self._policy = policy
        self._journal = journal
        self.undo = Undo(runc, state, record.root, record.id, policy.checkpoint_seconds)

    # -- taking

    def take(
        self,
        bundle: str,
        *,
        reason: str,
        leave_running: bool,
        options: Sequence[str] = (),
        image_path: str | None = None,
    ) -> Taken:
        """Freeze the container, keep it, and let it go on or end it. Raises CaptureFailed and
        others; then the container goes on as before."""
        if self._state.operation is not None:
            raise Conflict(f"another operation on {self._subject} is in progress")
        config = read_config(bundle)
        overlay = find_overlay(bundle, config)
        status = self._runc.status(self._id)
        if status not in ("running", "paused"):
            raise Conflict(f"{self._subject} is {status}; only a running container is frozen")
        staged = self._vault.stage()
        operation = Operation(
            what="checkpoint",
            owner=_self(),
            paused=status == "running",
            scratch=(str(staged),),
        )
        with guarded(self._state, operation, self.undo):
            frozen_ms = self._dump(staged, overlay, options, status, leave_running)
            self._describe(staged, bundle, config, options, frozen_ms)
            clear(staged / vault.WORK)
            if image_path is not None:
                populate(staged / vault.MEMORY, Path(image_path))
            saved = self._vault.save(self._subject, staged, reason)
            if not leave_running:
                self._end()
                note(self._state, paused=False)
        self._vault.keep(self._subject, self._policy.keep)
        self._vault.sweep()
        self._journal.write(
            "info", "checkpoint taken", id=saved.id, bytes=saved.size_bytes, frozen_ms=frozen_ms
        )
        return Taken(saved, frozen_ms)

    def _dump(
        self,
        staged: Path,
        overlay: Overlay,
        options: Sequence[str],
        status: str,
        leave_running: bool,
    ) -> float:
        """Everything that happens while the container is frozen; gives for how many ms it was."""
        memory, work = staged / vault.MEMORY, staged / vault.WORK
        try:
            private_folder(staged)
            for folder in (memory, work, staged / "files"):
                folder.mkdir(mode=0o700)
        except OSError as error:
            raise from_os_error(error, "making room for a checkpoint") from error
        began = time.monotonic()
        if status == "running":
            self._runc.need("pause", self._id)
        argv = [
            *self._runc.globals,
            "checkpoint",
            *options,
            *("--image-path", str(memory), "--work-path", str(work), "--leave-running"),
            self._id,
        ]
        limits = Limits(self._policy.checkpoint_seconds, work, self._policy.log_bytes)
        try:
            self._runc.supervise(argv, limits, streams=False, started=self._note_engine)
        except EngineFailed as error:
            raise CaptureFailed(
                f"{self._subject} cannot be dumped: {error}",
                hint="docs/guides/containers.md lists what cannot be frozen",
            ) from error
        try:
            with (staged / vault.LAYER).open("xb") as out:
                capture.write(overlay.upper, out)
        except OSError as error:
            raise from_os_error(error, "capturing the writable layer") from error
        if status == "running" and leave_running:
            self._runc.need("resume", self._id)
            note(self._state, paused=False)
        return (time.monotonic() - began) * 1000

    def _describe(
        self,
        staged: Path,
        bundle: str,
        config: Config,
        options: Sequence[str],
        frozen_ms: float,
    ) -> None:
        environment = {
            "format": 1,
            "machine": platform.machine(),
            "kernel": platform.release(),
            "criu": self._runc.criu_version(),
            "runc": self._runc.version(),
            "options": [word for word in options if word.split("=")[0] in _SHARED],
            "container": likeness(config),
            "frozen_ms": round(frozen_ms, 3),
        }
        items = [
            {"name": "memory", "outcome": "exact", "reason": ""},
            {"name": "files/upper", "outcome": "exact", "reason": ""},
            *(
                {"name": f"mount {place}", "outcome": "skipped", "reason": "not in the layer"}
                for place in likeness(config)["mounts"]
            ),
        ]
        shutil.copyfile(Path(bundle, "config.json"), staged / vault.CONFIG)
        (staged / vault.ENVIRONMENT).write_text(json.dumps(environment, indent=1))
        (staged / vault.REPORT).write_text(json.dumps({"items": items}, indent=1))

    def _end(self) -> None:
        """End a container whose checkpoint is safe."""
        self._state.killed = Killed("KILL", by="checkpoint")
        self._runc.need("kill", self._id, "KILL")
        self._runc.call("resume", self._id)  # a frozen process does not die of a signal everywhere
        end = time.monotonic() + _KILL_SECONDS
        while (status := self._runc.status(self._id)) not in ("stopped", "absent"):
            if time.monotonic() > end:
                raise EngineFailed(f"{self._subject} was killed and is still {status}")
            time.sleep(0.02)

    # -- reviving

    def revive(self, command: RuncCommand, config: Config) -> Revival:
        """Bring the container back from its newest checkpoint that can be used, frozen. When none
        can, its layer is as it was before."""
        refused: list[str] = []
        counts = ledger.Ledger.read(self._vault.ledger(self._subject))
        for saved in self._vault.list(self._subject):
            if counts.of(saved.id) >= self._policy.restore_limit:
                refused.append(
                    f"checkpoint {saved.id} failed {counts.of(saved.id)} times and is left alone"
                )
                continue
            try:
                self._revive(saved, command, config)
            except (HoldfastError, OSError) as error:
                reason = f"checkpoint {saved.id} was not restored: {error}"
                refused.append(reason)
                self._journal.write("error", reason, kind=getattr(error, "kind", "fault"))
                continue
            self._journal.write("info", "restored", id=saved.id)
            return Revival(saved, refused)
        return Revival(None, refused)

    def _revive(self, saved: Saved, command: RuncCommand, config: Config) -> None:
        overlay = find_overlay(command.bundle, config)
        scratch = Path(self._policy.work_path) / f"restore-{os.getpid()}-{saved.id}"
        aside = f"{overlay.upper.rstrip('/')}.holdfast-{saved.id}"
        operation = Operation(what="restore", owner=_self(), scratch=(str(scratch),))
        with guarded(self._state, operation, self.undo):
            private_folder(scratch)
            folder = self._vault.fetch(saved, scratch)
            environment = json.loads((folder / vault.ENVIRONMENT).read_bytes())
            check_likeness(environment, config)
            # Refusing what was never tried is no failure of the checkpoint; trying it may be.
            ledger.count(self._vault.ledger(self._subject), saved.id, +1)
            clean = is_empty(overlay.upper)
            note(self._state, upper=overlay.upper, aside=None if clean else aside)
            if not clean:
                set_aside(overlay.upper, aside)
            with (folder / vault.LAYER).open("rb") as stream:
                extract(stream, overlay.upper)
            _forget_names(overlay.point)
            self._restore(folder, scratch / vault.WORK, command, environment["options"])
            self._runc.need("pause", self._id)
            if has_own_network(config):
                bring_up(self._pid())
            self._state.unstarted = True
        if not clean:
            drop_aside(aside)
        clear(scratch)

    def _restore(
        self, folder: Path, work: Path, command: RuncCommand, options: Sequence[str]
    ) -> None:
        work.mkdir(mode=0o700)
        argv = command.turned(
            "restore",
            without=_NOT_FOR_RESTORE,
            extra=[
                *("--detach", "--no-subreaper", *options),
                *("--image-path", str(folder / vault.MEMORY), "--work-path", str(work)),
            ],
        )
        limits = Limits(self._policy.restore_seconds, work, self._policy.log_bytes)
        self._runc.supervise(argv, limits, streams=True, started=self._note_engine)

    def _pid(self) -> int:
        state = self._runc.state(self._id)
        pid = state.get("pid") if state else None
        if not isinstance(pid, int) or pid <= 0:
            raise EngineFailed(f"{self._subject} was restored and has no process")
        return pid

    def started(self, checkpoint: str) -> None:
        """The container runs again: its checkpoint did not fail."""
        ledger.count(self._vault.ledger(self._subject), checkpoint, -1)

    def crashed(self, checkpoint: str) -> None:
        """A revived container crashed."""
        ledger.count(self._vault.ledger(self._subject), checkpoint, +1)

    def finished(self) -> int:
        """The container has done its work: nobody needs its checkpoints. Gives how many went."""
        found = self._vault.list(self._subject)
        for saved in found:
            self._vault.forget(saved)
        self._vault.ledger(self._subject).unlink(missing_ok=True)
        return len(found)

    def _note_engine(self, process: Process) -> None:
        note(self._state, engine=process)


def read_config(bundle: str) -> Config:
    """A bundle's `config.json`."""
    try:
        found = json.loads(Path(bundle, "config.json").read_bytes())
    except OSError as error:
        raise from_os_error(error, "reading the container's configuration") from error
    if not isinstance(found, dict):
        raise CaptureFailed(f"{bundle}/config.json is no configuration")
    return found


def populate(memory: Path, image_path: Path) -> None:
    """Copy the images to where the caller asked for them: an engine takes an empty folder for an
    old checkpoint. A copy, because what the caller does with it must not reach ours."""
    try:
        image_path.mkdir(parents=True, exist_ok=True)
        for path in sorted(memory.iterdir()):
            shutil.copyfile(path, image_path / path.name)
    except OSError as error:
        raise from_os_error(error, "writing the images to --image-path") from error


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


def _self() -> Process:
    process = Process.of(os.getpid())
    if process is None:
        raise CaptureFailed("/proc does not show this process", hint="mount /proc")
    return process
