"""Handles one call of `holdfast-runc`: parse, decide, act.

One rule: whatever is not ours, or not understood, goes to runc as it came.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import msgspec

from holdfast.model import moment
from holdfast.model.errors import HoldfastError, UsageError, from_os_error
from holdfast.oci import ending
from holdfast.oci.checkpoint_handler import CheckpointHandler
from holdfast.oci.command import RuncCommand
from holdfast.oci.config_handler import Config, OptIn, opt_in, read_config
from holdfast.oci.container import Container
from holdfast.oci.decision import Action, Facts, asks_to_end, decide
from holdfast.oci.engine import EngineFailed, Runc, be_a_parent
from holdfast.oci.guard import interrupt, unfinished
from holdfast.oci.journal import Journal, tell_engine
from holdfast.oci.policy import Policy, policy_or_default, policy_path
from holdfast.oci.reviver import Revival, Reviver
from holdfast.oci.shared import add_criu, add_workdir
from holdfast.oci.state import ContainerState, Killed, Process, Record, all_states, run_path

_RECOVER_SECONDS = 30.0
_OWN = ("image-path", "work-path", "leave-running")  # what we say ourselves when we dump


class RuncHandler:
    """One command. `current_args` is what it says, once it has been read."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self.current_args: RuncCommand | None = None

    def handle(self, argv: Sequence[str]) -> int:
        """Do what the command asks; gives the exit code, unless this process becomes runc."""
        try:
            self.current_args = RuncCommand.parse(argv)
            action = self._prepare()
        except UsageError:
            action = "pass"
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
            return self._fail(from_os_error(error, action))
        except Exception as error:  # noqa: BLE001  a traceback would go to the container's stderr
            return self._fail(HoldfastError(f"{action} failed: {error!r}"))

    # -- what this command is about

    @property
    def args(self) -> RuncCommand:
        if self.current_args is None:
            raise UsageError("no command has been read")
        return self.current_args

    @cached_property
    def container_id(self) -> str:
        return self.args.container_id or ""

    @cached_property
    def image_path(self) -> str | None:
        """Where the caller wants images, or has them."""
        return self._path("image-path")

    def _path(self, option: str) -> str | None:
        given = self.args.options.text(option)
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

    def _container(self) -> Container:
        return Container.open(self.runc, self.state, self.policy, self._environ)

    def _prepare(self) -> Action:
        """Find the facts, mend what an earlier command left half done, and decide."""
        if os.geteuid() != 0:
            return "pass"  # a rootless container: neither its layer nor CRIU are in our reach
        if self._opt_in.trouble is not None:
            self.journal.write("error", f"not ours: {self._opt_in.trouble}")
        marked = bool(self.container_id) and self.state.marked
        if marked and self.args.subcommand != "kill" and unfinished(self.state, _RECOVER_SECONDS):
            undone = self._container().undo()()
            what = undone.what if undone else "operation"
            self.journal.write("warning", f"undid a {what} that was left half done")
        facts = Facts(
            opted_in=self._opt_in.wishes is not None,
            marked=marked,
            unstarted=marked and self.state.unstarted,
        )
        action = decide(self.args, facts)
        if action != "pass" and self._policy[1] is not None:
            self.journal.write("error", f"the default policy holds: {self._policy[1]}")
        return action

    # -- acting

    def _act(self, action: Action) -> int:
        be_a_parent()
        actions: dict[Action, Callable[[], int]] = {
            "create": self._create,
            "checkpoint": self._move_images,
            "restore": self._move_images,
            "thaw": self._thaw,
            "kill": self._kill,
            "delete": self._delete,
            "state": self._say_created,
            "hold": lambda: 0,
        }
        return actions[action]()

    def _create(self) -> int:
        try:
            record = self._mark()
        except OSError as error:  # without state it cannot be ours, but it can be a container
            self._warn(f"not ours: its state cannot be written: {error}")
            self._pass(self.args.argv)
        self._offer_options()
        if record.mode == "shared" and self.policy.shared_workdir and record.base_path:
            subject = record.subject.partition("/")[2]
            work = Path(record.base_path, subject, "work")
            self.config = add_workdir(
                self.args.bundle, self.config, self.policy.shared_workdir, work
            )
        revival = self._revive()
        if revival.restored is not None:
            self._note(restored_from=revival.restored.id)
            ending.watch(self._container())
            return 0
        if revival.refused:
            reasons = "; ".join(revival.refused)
            if self.policy.on_failure == "fail":
                self._forget()
                raise HoldfastError(f"not started: {reasons}")
            self._warn(f"started cold: {reasons}")
            self._note(cold=reasons)
        code = self.runc.plain(self.args.argv)
        if code == 0:
            ending.watch(self._container())
        else:
            self._forget()
        return code

    def _offer_options(self) -> None:
        """Let runc know where CRIU's options will be. Without that, those that it takes itself
        still work."""
        try:
            self.state.tell_criu(())
            self.config = add_criu(self.args.bundle, self.config, self.state.criu_path)
        except OSError as error:
            self.journal.write("warning", f"CRIU cannot be told anything: {error}")

    def _revive(self) -> Revival:
        if self.args.options.text("preserve-fds") not in (None, "0"):
            return Revival(None, ["a container with extra descriptors cannot be restored"])
        try:
            container = self._container()
            if (other := self._running_twin(container.record)) is not None:
                return Revival(None, [f"{container.subject} runs here already, as {other}"])
            container.hold()
            return Reviver(container).revive(self.args, self.config)
        except (HoldfastError, OSError) as error:
            self.journal.write("error", f"looking for a checkpoint failed: {error}")
            return Revival(None, [f"looking for a checkpoint failed: {error}"])

    def _running_twin(self, record: Record) -> str | None:
        """The id of another container of the same identity that is alive: two of them must not
        come from one checkpoint by accident."""
        for state in all_states(run_path(self._environ)):
            other = state.record
            if other is None or other.subject != record.subject or other.id == record.id:
                continue
            if other.pid is not None and Process.of(other.pid) is not None:
                return other.id
        return None

    def _move_images(self) -> int:
        """A checkpoint, or a restore from images that the caller brings."""
        if self.args.subcommand == "checkpoint":
            given = [
                self.args.argv[place]
                for each in self.args.given
                if each.name not in _OWN
                for place in each.places
            ]
            CheckpointHandler(self._container()).take(
                reason="runc checkpoint",
                leave_running=self.args.options.on("leave-running"),
                options=given,
                image_path=self.image_path,
                work_path=self._path("work-path"),
            )
            return 0
        self._mark()
        if not self.args.options.on("detach"):
            return self.runc.plain(self.args.argv)  # it lives as long as the container does
        try:
            Reviver(self._container()).restore_images(self.args)
        except HoldfastError:
            self.state.remove()
            raise
        ending.watch(self._container())
        return 0

    def _thaw(self) -> int:
        thawed = self.runc.call("resume", self.container_id)
        # A `start` that was killed half way may have thawed it already.
        if not thawed.succeeded and self.runc.status(self.container_id) != "running":
            raise EngineFailed(f"{self.container_id} cannot be started: {thawed.reason()}")
        self.state.unstarted = False
        ending.started(self._container())
        return 0

    def _kill(self) -> int:
        signal = self.args.arguments[1] if len(self.args.arguments) > 1 else "TERM"
        if asks_to_end(signal):
            self.state.killed = Killed(signal)
        self._pass(self.args.argv)

    def _delete(self) -> int:
        if self.args.options.on("force"):
            # Whoever freezes or revives it just now must not find it gone half way.
            interrupt(self.state, self._container().undo(), self.policy.checkpoint_seconds)
        # Where runc does not tell, the container counts as running, and its checkpoints stay.
        running = self._status() not in ("absent", "stopped")
        code = self.runc.plain(self.args.argv)
        if code != 0 or self._status() in ("running", "paused", "created"):
            return code
        try:
            ending.learn(self._container(), forced=running)
        except (HoldfastError, OSError) as error:  # the container is gone all the same
            self.journal.write("error", f"its checkpoints stay as they are: {error}")
        finally:
            self._forget()
        return 0

    def _status(self) -> str:
        try:
            return self.runc.status(self.container_id)
        except EngineFailed as error:
            self.journal.write("warning", f"the status of the container is unknown: {error}")
            return "unknown"

    def _say_created(self) -> int:
        told = self.runc.state(self.container_id)
        if told is None:
            self._pass(self.args.argv)
        sys.stdout.write(json.dumps({**told, "status": "created"}, indent=2))
        sys.stdout.flush()
        return 0

    # -- small things

    def _mark(self) -> Record:
        """Claim the container before runc makes it."""
        wishes = self._opt_in.wishes
        if wishes is None:
            raise HoldfastError(f"{self.container_id} has not opted in")
        record = Record(
            subject=str(wishes.subject),
            root=self.args.root,
            id=self.container_id,
            bundle=self.args.bundle,
            mode=wishes.mode,
            base_path=wishes.base_path,
            value=wishes.value,
            created=moment.to_text(moment.now()),
        )
        self.state.mark(record)
        return record

    def _note(self, **changes: object) -> None:
        record = self.state.record
        if record is not None:
            self.state.record = msgspec.structs.replace(record, **changes)

    def _forget(self) -> None:
        """The container is gone, or never came to be."""
        container = self._container()
        self.state.remove()
        container.let_go()

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

    def _pass(self, argv: Sequence[str]) -> NoReturn:
        Runc((), self._environ).become(argv, self._environ)
