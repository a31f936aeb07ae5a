"""Takes a container's checkpoint: freeze, dump, capture the layer, thaw, keep.

The order is the point. What fails at any step leaves the container as it was, and a container that
is to end is ended only when its checkpoint has been kept and read again.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import CaptureFailed, Conflict, from_os_error
from holdfast.model.files import make_folder, open_or_create
from holdfast.oci import vault
from holdfast.oci.config_handler import Config, read_config
from holdfast.oci.container import Container
from holdfast.oci.engine import EngineFailed, Limits
from holdfast.oci.guard import guarded, note
from holdfast.oci.layer import capture
from holdfast.oci.lazy import await_pages
from holdfast.oci.likeness import cpu_features, likeness
from holdfast.oci.overlay import Overlay, find_overlay
from holdfast.oci.preflight import Preflight
from holdfast.oci.private import private_folder
from holdfast.oci.state import Killed, Operation, Process
from holdfast.oci.tidying import tidy
from holdfast.oci.vault import Saved
from holdfast.runtime.trial import clear

_KILL_SECONDS = 20.0
_NO_ROOM = 1024 * 1024
_STATISTICS = ("stats-dump",)
_FOR_THE_CALLER = ("dump.log", *_STATISTICS)  # of CRIU's work path; Podman looks for them
# Options of `checkpoint` that the `restore` which follows must be given, too.
_SHARED = ("--tcp-established", "--ext-unix-sk", "--shell-job", "--file-locks", "--empty-ns")


Hold = Callable[[Container, Path], Saved]  # keeps what is staged, and waits


@dataclass(frozen=True, slots=True)
class Taken:
    """A checkpoint that was taken, and for how long the container stood still."""

    saved: Saved
    frozen_ms: float


class CheckpointHandler:
    """Takes checkpoints of one container."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._runc = container.runc
        self._state = container.state

    def take(
        self,
        *,
        reason: str,
        leave_running: bool,
        options: Sequence[str] = (),
        image_path: str | None = None,
        work_path: str | None = None,
        hold: Hold | None = None,
        hurry: bool = False,
    ) -> Taken:
        """Freeze the container, keep it, and let it go on or end it. Raises CaptureFailed and
        others; then the container goes on as before. With a `hold` it is kept aside, and stands
        still until that lets it go on. In a `hurry` nothing is begun that can be done later."""
        it = self._container
        if self._state.operation is not None:
            raise Conflict(f"another operation on {it.subject} is in progress")
        self._runc.criu()  # what is missing is said before anything is frozen
        config = read_config(it.record.bundle)
        overlay = find_overlay(it.record.bundle, config)
        status = self._runc.status(it.id)
        if status not in ("running", "paused"):
            raise Conflict(f"{it.subject} is {status}; only a running container is frozen")
        await_pages(it.record.pages, self._state.pages_path, it.policy.checkpoint_seconds)
        it.hold()
        staged = it.vault.stage()
        operation = Operation(
            what="checkpoint",
            owner=Process.current(),
            paused=status == "running",
            scratch=(str(staged),),
        )
        found = self._preflight(config)
        options = list(dict.fromkeys([*it.policy.checkpoint_options, *found.options, *options]))
        with guarded(self._state, operation, it.undo()):
            try:
                goes_on = leave_running and hold is None
                frozen_ms = self._dump(staged, overlay, options, status, goes_on)
            except CaptureFailed as error:
                if found.clear:
                    raise
                raise CaptureFailed(f"{found.words()} ({error})", hint=error.hint) from error
            self._describe(staged, config, options, found, frozen_ms)
            if work_path is not None:
                _hand_over(staged / vault.WORK, Path(work_path), _FOR_THE_CALLER)
            if image_path is not None:
                _hand_over(staged / vault.MEMORY, Path(image_path))
            _hand_over(staged / vault.WORK, staged / vault.MEMORY, _STATISTICS)
            clear(staged / vault.WORK)
            if hold is not None:
                saved = hold(it, staged)
                if status == "running":
                    self._runc.need("resume", it.id)
                    note(self._state, paused=False)
            else:
                saved = it.vault.save(it.subject, staged, reason)
            if not leave_running:
                it.vault.check(saved)
                self._end()
                note(self._state, paused=False)
        if not leave_running:
            it.let_go()
        if hurry:
            it.vault.keep(it.subject, it.policy.keep)
        else:
            tidy(it, "running" if leave_running else "resting")
        it.journal.write(
            "info",
            "checkpoint taken",
            id=saved.id,
            bytes=saved.size_bytes,
            written_bytes=saved.written_bytes,
            frozen_ms=frozen_ms,
        )
        return Taken(saved, frozen_ms)

    def _dump(
        self,
        staged: Path,
        overlay: Overlay,
        options: Sequence[str],
        status: str,
        goes_on: bool,
    ) -> float:
        """Everything that happens while the container is frozen; gives for how many ms it was. It
        stays frozen unless it `goes_on`."""
        it = self._container
        memory, work = staged / vault.MEMORY, staged / vault.WORK
        try:
            private_folder(staged)
            for folder in (memory, work, staged / "files"):
                folder.mkdir(mode=0o700)
        except OSError as error:
            raise from_os_error(error, "making room for a checkpoint") from error
        began = time.monotonic()
        if status == "running":
            self._runc.need("pause", it.id)
        argv = [
            *self._runc.globals,
            "checkpoint",
            *options,
            *("--image-path", str(memory), "--work-path", str(work), "--leave-running"),
            it.id,
        ]
        limits = Limits(it.policy.checkpoint_seconds, work, it.policy.log_bytes)
        try:
            self._runc.supervise(argv, limits, streams=False, started=self._note_engine)
        except EngineFailed as error:
            if "No space left" in str(error) or _is_full(staged):
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(staged))
                raise from_os_error(full, f"dumping {it.subject}") from error
            raise CaptureFailed(
                f"{it.subject} cannot be dumped: {error}",
                hint="docs/guides/containers.md lists what cannot be frozen",
            ) from error
        try:
            with (staged / vault.LAYER).open("xb") as out:
                capture.write(overlay.upper, out)
        except OSError as error:
            raise from_os_error(error, "capturing the writable layer") from error
        if status == "running" and goes_on:
            self._runc.need("resume", it.id)
            note(self._state, paused=False)
        return (time.monotonic() - began) * 1000

    def _preflight(self, config: Config) -> Preflight:
        """Look before freezing. Without a look, CRIU will say itself what it cannot do."""
        try:
            found = self._container.preflight(config)
            self._state.tell_criu(found.lines)
        except (EngineFailed, OSError, ValueError) as error:
            self._container.journal.write("warning", f"nothing is known before the dump: {error}")
            return Preflight()
        return found

    def _describe(
        self,
        staged: Path,
        config: Config,
        options: Sequence[str],
        found: Preflight,
        frozen_ms: float,
    ) -> None:
        same = likeness(config)
        environment = {
            "format": 1,
            "machine": platform.machine(),
            "kernel": platform.release(),
            "criu": self._runc.criu_version(),
            "runc": self._runc.version(),
            "options": [word for word in options if word.split("=")[0] in _SHARED],
            "criu_options": list(found.lines),
            "cpu": cpu_features(),
            "container": same,
            "frozen_ms": round(frozen_ms, 3),
        }
        items = [
            _exact("memory", sum(path.stat().st_size for path in (staged / "memory").iterdir())),
            _exact("files/upper", (staged / vault.LAYER).stat().st_size),
            *(
                {"name": f"mount {place}", "outcome": "skipped", "reason": "not in the layer"}
                for place in same["mounts"]
            ),
            *(
                {"name": each.name, "outcome": "rebuilt", "reason": each.detail}
                for each in found.findings
            ),
        ]
        try:
            shutil.copyfile(
                Path(self._container.record.bundle, "config.json"), staged / vault.CONFIG
            )
            (staged / vault.ENVIRONMENT).write_text(json.dumps(environment, indent=1))
            (staged / vault.REPORT).write_text(json.dumps({"items": items}, indent=1))
        except OSError as error:
            raise from_os_error(error, "describing a checkpoint") from error

    def _end(self) -> None:
        """End a container whose checkpoint is safe."""
        it = self._container
        self._state.killed = Killed("KILL", by="checkpoint")
        self._runc.need("kill", it.id, "KILL")
        self._runc.call("resume", it.id)  # a frozen process does not die of a signal everywhere
        end = time.monotonic() + _KILL_SECONDS
        while True:
            try:
                status = self._runc.status(it.id)
            except EngineFailed as error:  # not an answer: ask again until the time is up
                status = f"in an unknown state ({error})"
            if status in ("stopped", "absent"):
                return
            if time.monotonic() > end:
                raise EngineFailed(f"{it.subject} was killed and is still {status}")
            time.sleep(0.02)

    def _note_engine(self, process: Process) -> None:
        note(self._state, engine=process)


def _is_full(folder: Path) -> bool:
    """Whether a disk has no room for anything: CRIU's log, which would say so, had none either."""
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize < _NO_ROOM


def _exact(name: str, size: int) -> dict[str, object]:
    return {"name": name, "outcome": "exact", "reason": "", "size_bytes": size}


def _hand_over(folder: Path, place: Path, names: Sequence[str] | None = None) -> None:
    """Copy the images to where the caller asked for them: an engine takes an empty folder for an
    old checkpoint. A copy, because what the caller does with it must not reach ours."""
    try:
        make_folder(place)
        for path in sorted(folder.iterdir()):
            if names is None or path.name in names:
                os.close(open_or_create(place / path.name))  # before anything is in it
                shutil.copyfile(path, place / path.name)
    except OSError as error:
        raise from_os_error(error, f"writing the images to {place}") from error
