"""Handles one call of `holdfast-runc`: parse, decide, act.

One rule: whatever is not ours, or not understood, goes to runc as it came.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from holdfast.model import moment
from holdfast.model.errors import CaptureFailed, HoldfastError, UsageError
from holdfast.oci import watcher
from holdfast.oci.checkpoint_handler import CheckpointHandler, Revival, read_config
from holdfast.oci.command import RuncCommand
from holdfast.oci.config_handler import Config, OptIn, opt_in
from holdfast.oci.decision import Action, Facts, asks_to_end, decide, ending
from holdfast.oci.engine import EngineFailed, Limits, Runc
from holdfast.oci.guard import unfinished
from holdfast.oci.journal import Journal, tell_engine
from holdfast.oci.opening import open_vault
from holdfast.oci.policy import Policy, policy_or_default, policy_path
from holdfast.oci.shared import add_workdir
from holdfast.oci.state import ContainerState, Exit, Killed, Record, run_path

_EXIT_SECONDS = 2.0
_RECOVER_SECONDS = 30.0


class RuncHandler:
    """One command. `current_args` is what it says, once it has been read."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self.current_args: RuncCommand | None = None

    def handle(self, argv: Sequence[str]) -> int:
        """Do what the command asks; gives the exit code, unless this process becomes runc."""
        try:
            self.current_args = RuncCommand.parse(argv)
        except UsageError:
            self._pass(argv)
        try:
            action = self._prepare()
        except Exception as error:  # noqa: BLE001  a fault of ours must not cost anyone a container
            self.journal.write("error", f"handed to runc: {error!r}", argv=list(argv))
            action = "pass"
        if action == "pass":
            self._pass(argv)
        try:
            return self._act(action)
        except HoldfastError as error:
            return self._fail(error)
        except OSError as error:
            return self._fail(CaptureFailed(f"{action} failed: {error}"))

    # -- what this command is about

    @property
    def args(self) -> RuncCommand:
        assert self.current_args is not None
        return self.current_args

    @cached_property
    def container_id(self) -> str:
        return self.args.container_id or ""

    @cached_property
    def image_path(self) -> str | None:
        """Where the caller wants images, or has them."""
        given = self.args.options.text("image-path")
        return os.path.abspath(given) if given else None

    @cached_property
    def runc(self) -> Runc:
        return Runc(self.args.globals, self._environ)

    @cached_property
    def state(self) -> ContainerState:
        return ContainerState(run_path(self._environ), self.args.root, self.container_id)

    @cached_property
    def _policy(self) -> tuple[Policy, HoldfastError | None]:
        return policy_or_default(policy_path(self._environ))

    @property
    def policy(self) -> Policy:
        return self._policy[0]

    @cached_property
    def journal(self) -> Journal:
        name = f"{self.args.namespace}/{self.args.container_id}" if self.current_args else ""
        return Journal(Path(self.policy.log), name)

    @cached_property
    def config(self) -> Config:
        return read_config(self.args.bundle)

    @cached_property
    def _opt_in(self) -> OptIn:
        if self.args.subcommand not in ("create", "restore") or not self.container_id:
            return OptIn(None)
        return opt_in(self.policy, self.config, self.args.namespace, self.container_id)

    def _prepare(self) -> Action:
        """Find the facts, mend what an earlier command left half done, and decide."""
        if self._opt_in.trouble is not None:
            self.journal.write("error", f"not ours: {self._opt_in.trouble}")
        marked = bool(self.container_id) and self.state.marked
        facts = Facts(
            opted_in=self._opt_in.wishes is not None,
            marked=marked,
            unstarted=marked and self.state.unstarted,
        )
        action = decide(self.args, facts)
        if action != "pass" and self._policy[1] is not None:
            self.journal.write("error", f"the default policy holds: {self._policy[1]}")
        if marked and self.args.subcommand != "kill" and unfinished(self.state, _RECOVER_SECONDS):
            undone = self._checkpoints().undo()
            what = undone.what if undone else "operation"
            self.journal.write("warning", f"undid a {what} that was left half done")
            action = decide(self.args, Facts(facts.opted_in, marked, self.state.unstarted))
        return action

    def _checkpoints(self) -> CheckpointHandler:
        record = self.state.record
        if record is None:
            raise HoldfastError(f"the state of {self.container_id} is incomplete")
        return CheckpointHandler(
            self.runc,
            self.state,
            record,
            open_vault(record.mode, record.base_path, self.policy, self._environ),
            self.policy,
            self.journal,
        )

    # -- acting

    def _act(self, action: Action) -> int:
        match action:
            case "create":
                return self._create()
            case "checkpoint" | "restore":
                return self._move_images(action)
            case "thaw":
                return self._thaw()
            case "kill":
                return self._kill()
            case "delete":
                return self._delete()
            case "state":
                return self._say_created()
            case "hold":
                return 0
        self._pass(self.args.argv)
        return 1

    def _create(self) -> int:
        wishes = self._opt_in.wishes
        assert wishes is not None
        record = Record(
            subject=str(wishes.subject),
            root=self.args.root,
            id=self.container_id,
            bundle=self.args.bundle,
            mode=wishes.mode,
            base_path=wishes.base_path,
            created=moment.to_text(moment.now()),
        )
        self.state.mark(record)
        policy = self.policy
        if wishes.mode == "shared" and policy.shared_workdir and wishes.base_path:
            work = Path(wishes.base_path, wishes.subject.name, "work")
            self.config = add_workdir(self.args.bundle, self.config, policy.shared_workdir, work)
        revival = self._revive()
        if revival.restored is not None:
            self._note(restored_from=revival.restored.id)
            self._watch()
            return 0
        if revival.refused:
            if policy.on_failure == "fail":
                return self._fail(HoldfastError("; ".join(revival.refused)))
            self._warn(f"started cold: {'; '.join(revival.refused)}")
            self._note(cold="; ".join(revival.refused))
        code = self.runc.plain(self.args.argv)
        if code == 0:
            self._watch()
        else:
            self.state.remove()
        return code

    def _revive(self) -> Revival:
        if self.args.options.text("preserve-fds") not in (None, "0"):
            return Revival(None, ["a container with extra descriptors cannot be restored"])
        try:
            return self._checkpoints().revive(self.args, self.config)
        except (HoldfastError, OSError) as error:
            self.journal.write("error", f"looking for a checkpoint failed: {error}")
            return Revival(None, [f"looking for a checkpoint failed: {error}"])

    def _move_images(self, action: Action) -> int:
        """A checkpoint, or a restore from images that the caller brings."""
        if action == "checkpoint":
            record = self.state.record
            assert record is not None
            options = [
                word
                for each in self.args.given
                if each.name not in ("image-path", "work-path", "leave-running")
                for word in (self.args.argv[place] for place in each.places)
            ]
            self._checkpoints().take(
                record.bundle,
                reason="runc checkpoint",
                leave_running=self.args.options.on("leave-running"),
                options=[*self.policy.checkpoint_options, *options],
                image_path=self.image_path,
            )
            return 0
        wishes = self._opt_in.wishes
        assert wishes is not None
        self.state.mark(
            Record(
                subject=str(wishes.subject),
                root=self.args.root,
                id=self.container_id,
                bundle=self.args.bundle,
                mode=wishes.mode,
                base_path=wishes.base_path,
                created=moment.to_text(moment.now()),
            )
        )
        policy = self.policy
        logs = Path(self.args.options.text("work-path") or self.image_path or ".")
        limits = Limits(policy.restore_seconds, logs, policy.log_bytes)
        if not self.args.options.on("detach"):
            return self.runc.plain(self.args.argv)  # it lives as long as the container does
        try:
            self.runc.supervise(self.args.argv, limits, streams=True, started=lambda process: None)
        except EngineFailed as error:
            self.state.remove()
            raise EngineFailed(f"{wishes.subject} was not restored: {error}") from error
        self._watch()
        return 0

    def _thaw(self) -> int:
        self.runc.need("resume", self.container_id)
        self.state.unstarted = False
        record = self.state.record
        if record is not None and record.restored_from is not None:
            self._checkpoints().started(record.restored_from)
        return 0

    def _kill(self) -> int:
        signal = self.args.arguments[1] if len(self.args.arguments) > 1 else "TERM"
        if asks_to_end(signal):
            self.state.killed = Killed(signal)
        self._pass(self.args.argv)
        return 1

    def _delete(self) -> int:
        running = self.runc.status(self.container_id) in ("running", "paused", "created")
        code = self.runc.plain(self.args.argv)
        if code != 0 or self.runc.status(self.container_id) not in ("absent", "stopped"):
            return code
        try:
            self._learn_from_the_end(forced=running)
        finally:
            self.state.remove()
        return 0

    def _learn_from_the_end(self, *, forced: bool) -> None:
        record = self.state.record
        if record is None:
            return
        killed = self.state.killed or (Killed("KILL", by="delete") if forced else None)
        how = ending(None if killed else self._exit(), killed)
        self.journal.write("info", f"deleted; it has {how}" if how != "unknown" else "deleted")
        if how == "finished":
            count = self._checkpoints().finished()
            self.journal.write("info", f"its work is done: {count} checkpoints removed")
        elif how == "crashed" and record.restored_from is not None:
            self._checkpoints().crashed(record.restored_from)

    def _exit(self) -> Exit | None:
        """How the container ended; its watcher may need a moment to say so."""
        end = time.monotonic() + _EXIT_SECONDS
        while self.state.exit is None and self._watched() and time.monotonic() < end:
            time.sleep(0.01)
        return self.state.exit

    def _watched(self) -> bool:
        record = self.state.record
        return record is not None and record.pid is not None

    def _say_created(self) -> int:
        told = self.runc.state(self.container_id)
        if told is None:
            self._pass(self.args.argv)
            return 1
        sys.stdout.write(json.dumps({**told, "status": "created"}, indent=2))
        sys.stdout.flush()
        return 0

    # -- small things

    def _watch(self) -> None:
        """Start the process that learns how the container ends."""
        state = self.runc.state(self.container_id)
        pid = state.get("pid") if state else None
        if not isinstance(pid, int) or pid <= 0:
            self.journal.write("warning", "no process to watch: its end will not be known")
            return
        self._note(pid=pid)
        subprocess.Popen(
            [sys.executable, "-I", "-S", watcher.__file__, str(pid), str(self.state.exit_path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def _note(self, **changes: object) -> None:
        record = self.state.record
        if record is not None:
            self.state.record = msgspec.structs.replace(record, **changes)

    def _warn(self, message: str) -> None:
        self.journal.write("warning", message)
        options = self.args.options
        tell_engine(options.text("log"), options.text("log-format"), "warning", message)

    def _fail(self, error: HoldfastError) -> int:
        message = f"holdfast: {error}" + (f" ({error.hint})" if error.hint else "")
        self.journal.write("error", message, kind=error.kind)
        options = self.args.options
        tell_engine(options.text("log"), options.text("log-format"), "error", message)
        return 1

    def _pass(self, argv: Sequence[str]) -> None:
        with contextlib.suppress(AttributeError):
            sys.stdout.flush()
        Runc((), self._environ).become(argv, self._environ)
