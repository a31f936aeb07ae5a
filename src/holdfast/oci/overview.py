"""All containers of a node that Holdfast knows: running, or only frozen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.model.errors import Conflict, Denied, HoldfastError, NotFound, UsageError
from holdfast.model.subject import Subject
from holdfast.model.tracing import span
from holdfast.oci.checkpoint_handler import CheckpointHandler, Hold, Taken
from holdfast.oci.config_handler import read_config
from holdfast.oci.constants import DEFAULT_NAMESPACE
from holdfast.oci.container import Container
from holdfast.oci.engine import Runc
from holdfast.oci.guard import unfinished
from holdfast.oci.opening import open_vault
from holdfast.oci.policy import Policy, policy_path, read_policy
from holdfast.oci.preflight import Preflight
from holdfast.oci.state import ContainerState, Record, all_states, run_path
from holdfast.oci.vault import Saved, Vault

_RECOVER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Line:
    """One container in the overview."""

    subject: str
    id: str | None  # None when none of that name is there now
    status: str  # runc's word; `frozen` when only checkpoints are there
    checkpoints: int
    newest: datetime | None
    size_bytes: int
    restored_from: str | None
    cold: str | None


class Overview:
    """What the commands `holdfast container ...` ask and do."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._policy = read_policy(policy_path(environ))

    @property
    def policy(self) -> Policy:
        return self._policy

    def lines(self) -> list[Line]:
        """Running containers first, then those of which only checkpoints are there."""
        if os.geteuid() != 0:
            raise Denied("containers are root's business", hint="sudo holdfast container list")
        running = [self._running(state, record) for state, record in self.known()]
        seen = {line.subject for line in running}
        return [*running, *(self._frozen(s) for s in self._subjects() if str(s) not in seen)]

    def find(self, name: str) -> tuple[ContainerState, Record]:
        """The running container that an id or its beginning, a subject or its last part means."""
        known = list(self.known())
        for matches in (
            [each for each in known if name in (each[1].id, each[1].subject)],
            [each for each in known if each[1].subject.endswith(f"/{name}")],
            [each for each in known if len(name) >= 4 and each[1].id.startswith(name)],
        ):
            if len(matches) == 1:
                return matches[0]
            if matches:
                listed = ", ".join(record.subject for _, record in matches)
                raise UsageError(f"{name} means more than one container: {listed}")
        raise NotFound(
            f"no container {name} runs here that has opted in",
            hint="`holdfast container list` shows those that have",
        )

    def checkpoint(
        self, name: str, *, reason: str, leave_running: bool, hold: Hold | None = None
    ) -> Taken:
        """Take a checkpoint of a running container; raises Denied when this is not root."""
        if os.geteuid() != 0:
            raise Denied("freezing a container needs root", hint="sudo holdfast container ...")
        state, record = self.find(name)
        runc = Runc(("--root", record.root), self._environ)
        container = Container.open(runc, state, self._policy, self._environ)
        if unfinished(state, _RECOVER_SECONDS):
            container.undo()()
        handler = CheckpointHandler(container)
        with span("container.checkpoint", subject=record.subject):
            return handler.take(reason=reason, leave_running=leave_running, hold=hold)

    def preflight(self, name: str) -> tuple[Record, Preflight]:
        """What stands in the way of freezing a running container; raises Denied when not root."""
        if os.geteuid() != 0:
            raise Denied("looking into a container needs root", hint="sudo holdfast container ...")
        state, record = self.find(name)
        runc = Runc(("--root", record.root), self._environ)
        container = Container.open(runc, state, self._policy, self._environ)
        return record, container.preflight(read_config(record.bundle))

    def newest(self, record: Record) -> datetime | None:
        """When the last checkpoint of a container was taken."""
        found = self._checkpoints(record)
        return found[0].time if found else None

    def newest_id(self, record: Record) -> str | None:
        found = self._checkpoints(record)
        return found[0].id if found else None

    def _checkpoints(self, record: Record) -> list[Saved]:
        vault = open_vault(record.mode, record.base_path, self._policy, self._environ)
        return vault.list(Subject.parse(record.subject))

    def known(self) -> list[tuple[ContainerState, Record]]:
        states = list(all_states(run_path(self._environ)))
        return [(state, record) for state in states if (record := state.record) is not None]

    def _running(self, state: ContainerState, record: Record) -> Line:
        try:
            status = Runc(("--root", record.root), self._environ).status(record.id)
        except HoldfastError:  # no runc: the rest is still worth knowing
            status = "unknown"
        if state.unstarted:
            status = "created"
        found = self._checkpoints(record)
        return Line(
            subject=record.subject,
            id=record.id,
            status=status,
            checkpoints=len(found),
            newest=found[0].time if found else None,
            size_bytes=sum(each.size_bytes for each in found),
            restored_from=record.restored_from,
            cold=record.cold,
        )

    def _frozen(self, subject: Subject) -> Line:
        found = self._vault().list(subject)
        return Line(
            subject=str(subject),
            id=None,
            status="frozen",
            checkpoints=len(found),
            newest=found[0].time if found else None,
            size_bytes=sum(each.size_bytes for each in found),
            restored_from=None,
            cold=None,
        )

    def frozen(self, name: str) -> tuple[Vault, Saved]:
        """The newest checkpoint of the container that an id, a subject or its last part means."""
        if os.geteuid() != 0:
            raise Denied("a container's memory is root's business", hint="sudo holdfast ...")
        running = {record.id: record for _, record in self.known()}
        if name in running:
            record = running[name]
            vault = open_vault(record.mode, record.base_path, self._policy, self._environ)
            subjects = [Subject.parse(record.subject)]
        else:
            vault = self._vault()
            subjects = [s for s in vault.subjects() if f"/{s}".endswith(f"/{name}")]
        if len(subjects) > 1:
            listed = ", ".join(map(str, subjects))
            raise UsageError(f"{name} means more than one container: {listed}")
        found = [saved for subject in subjects for saved in vault.list(subject)]
        if not found:
            raise NotFound(
                f"there is no checkpoint of a container {name} here",
                hint="`holdfast container list` shows those that are frozen",
            )
        return vault, found[0]

    def room_for(self, name: str) -> tuple[Vault, Subject]:
        """Where a checkpoint goes that comes from elsewhere; raises Conflict when the container
        that it would become is here."""
        if os.geteuid() != 0:
            raise Denied("a container's memory is root's business", hint="sudo holdfast ...")
        subject = Subject("container", name if "/" in name else f"{DEFAULT_NAMESPACE}/{name}")
        if any(record.subject == str(subject) for _, record in self.known()):
            raise Conflict(f"{subject} runs here", hint="choose another --name, or remove it first")
        return self._vault(), subject

    def _subjects(self) -> list[Subject]:
        return self._vault().subjects()

    def _vault(self) -> Vault:
        policy = self._policy
        base = policy.shared_path if policy.mode == "shared" else policy.checkpoint_path
        return open_vault(policy.mode, base, policy, self._environ)
