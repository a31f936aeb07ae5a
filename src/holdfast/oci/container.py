"""One container and everything that is needed to do something about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.model.errors import HoldfastError
from holdfast.model.subject import Subject
from holdfast.oci import leasing
from holdfast.oci.config_handler import Config
from holdfast.oci.engine import EngineFailed, Runc
from holdfast.oci.guard import Undo
from holdfast.oci.journal import Journal
from holdfast.oci.loopback import has_own_network
from holdfast.oci.opening import open_vault
from holdfast.oci.policy import Policy
from holdfast.oci.preflight import Preflight, judge, look
from holdfast.oci.state import ContainerState, Record, run_path
from holdfast.oci.vault import Vault


@dataclass(frozen=True, slots=True)
class Container:
    """A container that has opted in."""

    runc: Runc
    state: ContainerState
    record: Record
    vault: Vault
    policy: Policy
    journal: Journal
    environ: Mapping[str, str]

    @classmethod
    def open(
        cls, runc: Runc, state: ContainerState, policy: Policy, environ: Mapping[str, str]
    ) -> Container:
        """The container whose folder this is; raises HoldfastError when it says too little."""
        record = state.record
        if record is None:
            raise HoldfastError(f"the state in {state.folder} is incomplete")

        def token() -> int | None:
            found = state.record
            return found.token if found is not None else None

        vault = open_vault(record.mode, record.base_path, policy, environ, token)
        journal = Journal(Path(policy.log), record.subject)
        return cls(runc, state, record, vault, policy, journal, environ)

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def subject(self) -> Subject:
        return Subject.parse(self.record.subject)

    @property
    def ledger(self) -> Path:
        return self.vault.ledger(self.subject)

    def hold(self) -> None:
        """Be the only node that goes on with this container, where several could; raises Owned."""
        if self.record.mode != "store":
            return
        run = run_path(self.environ)
        wait = self.policy.lease_wait
        token = leasing.hold(run, self.state.folder, self.record.subject, wait, self.environ)
        record = self.state.record
        if record is not None and record.token != token:
            self.state.record = msgspec.structs.replace(record, token=token)

    def let_go(self) -> None:
        """Other nodes may go on with this container: it does not run here any more."""
        if self.record.mode == "store":
            leasing.release(run_path(self.environ), self.state.folder, self.record.subject)

    def preflight(self, config: Config) -> Preflight:
        """What stands in the way of a dump, and what helps; raises EngineFailed, OSError."""
        own = has_own_network(config)
        return judge(look(self.runc.processes(self.id), own_network=own))

    def undo(self) -> Undo:
        """What undoes an operation on this container that stopped half way."""
        patience = self.policy.checkpoint_seconds
        return Undo(self.runc, self.state, self.record.root, self.id, patience)

    def pid(self) -> int:
        """The container's first process, as the host numbers it; raises EngineFailed."""
        state = self.runc.state(self.id)
        pid = state.get("pid") if state else None
        if not isinstance(pid, int) or pid <= 0:
            raise EngineFailed(f"{self.record.subject} has no process")
        return pid
