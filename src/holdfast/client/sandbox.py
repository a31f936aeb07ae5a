"""A sandbox from a distance: the Python twin of the TypeScript client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from holdfast.client.conversation import CheckpointInfo, Conversation
from holdfast.client.endings import State
from holdfast.client.files import Files
from holdfast.client.link import address
from holdfast.client.member import RemoteMember
from holdfast.client.passes import forget, pass_for, remember, server_token
from holdfast.client.process import Process
from holdfast.model.errors import HoldfastError
from holdfast.protocol.sandbox_messages import Status


class Sandbox:
    """A sandbox on a server. Leaving its `async with` block detaches; `kill()` ends it."""

    def __init__(self, url: str, token: str | None, on_status: Callable[[str, str], None] | None):
        self._talk = Conversation(url, token, on_status)
        self._token = token
        self.files = Files(self._talk.ask)

    @property
    def sandbox_id(self) -> str:
        return self._talk.sandbox_id

    @property
    def sandbox_token(self) -> str:
        return self._talk.sandbox_token

    @property
    def state(self) -> State:
        """`running`, or how it came that this object is at its end."""
        return self._talk.state

    # -- coming and going

    @classmethod
    async def create(
        cls,
        url: str,
        *,
        token: str | None = None,
        enable_checkpoint: bool = False,
        enable_idle_timeout_auto_checkpoint: bool = False,
        enable_sandbox_handoff: bool = False,
        enable_auto_reconnect: bool = True,
        filesystem_snapshot_name: str | None = None,
        idle_timeout: float | None = None,
        limits: Mapping[str, float] | None = None,
        network: bool = False,
        offline: bool = False,
        image: str | None = None,
        engine: str | None = None,
        name: str | None = None,
        template: str | None = None,
        ports: Sequence[int] = (),
        egress: Sequence[str] = (),
        on_status: Callable[[str, str], None] | None = None,
    ) -> Self:
        """A new sandbox. The server's token is `HOLDFAST_TOKEN` where none is given. Raises
        HoldfastError of the kind that the server gave."""
        wanted = {
            "enable_checkpoint": enable_checkpoint,
            "enable_idle_timeout_auto_checkpoint": enable_idle_timeout_auto_checkpoint,
            "enable_sandbox_handoff": enable_sandbox_handoff,
            "filesystem_snapshot_name": filesystem_snapshot_name,
            "idle_timeout": idle_timeout,
            "limits": None if limits is None else dict(limits),
            "network": network,
            "offline": offline,
            "image": image,
            "engine": engine,
            "name": name,
            "template": template,
            "ports": list(ports),
            "egress": list(egress),
        }
        sandbox = cls(url, server_token(token), on_status)
        sandbox._talk.reconnects = enable_auto_reconnect
        first = {key: value for key, value in wanted.items() if value not in (None, False)}
        await sandbox._talk.open(address(url, "/create"), first)
        remember(sandbox.sandbox_id, sandbox.sandbox_token, sandbox._token)
        return sandbox

    @classmethod
    async def attach(
        cls,
        url: str,
        sandbox_id: str,
        sandbox_token: str | None = None,
        *,
        token: str | None = None,
        enable_auto_reconnect: bool = True,
        on_status: Callable[[str, str], None] | None = None,
    ) -> Self:
        """Go back to a sandbox, which is restored where it was frozen. Both tokens may be
        left out for one that this program made; the server's may be `HOLDFAST_TOKEN`, too. Raises
        NotFound, Denied, Conflict (in use)..."""
        known = pass_for(sandbox_id, sandbox_token, token)
        sandbox = cls(url, known.token, on_status)
        talk = sandbox._talk
        talk.reconnects = enable_auto_reconnect
        talk.sandbox_id, talk.sandbox_token = sandbox_id, known.sandbox_token
        await talk.open(talk.attach_address())
        return sandbox

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.detach()

    async def detach(self) -> None:
        """Leave the sandbox as it is; it goes on, until it is idle for too long."""
        await self._talk.leave()

    def __repr__(self) -> str:
        return f"<Sandbox {self.sandbox_id or '(new)'} {self.state}>"

    # -- running

    async def exec(
        self,
        language: str | None = None,
        code: str | None = None,
        *,
        argv: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        pty: bool = False,
        rows: int = 24,
        columns: int = 80,
        binary: bool = False,
        session: bool = False,
    ) -> Process:
        """Run code in a language, or a program by its arguments; several may run at once. With
        `session`, python code runs in an interpreter that keeps its variables."""
        self._talk.check_running()
        message: dict[str, object] = {"language": language, "code": code, "cwd": cwd}
        message["argv"] = None if argv is None else list(argv)
        message["env"] = dict(env or {})
        if pty:
            message.update(pty=True, rows=rows, columns=columns)
        if binary:
            message["encoding"] = "base64"
        if session:
            message["session"] = True
        message = {name: value for name, value in message.items() if value not in (None, {})}
        return await self._talk.begin(message, binary)

    # -- the verbs

    async def checkpoint(
        self,
        reason: str = "checkpoint",
        *,
        leave_running: bool = False,
        during_execution: bool = False,
    ) -> CheckpointInfo:
        """Freeze it; durable when this returns. Unless it is left running, this object is at its
        end: attach to go on."""
        request: dict[str, object] = {"action": "checkpoint", "reason": reason}
        if leave_running:
            request["leave_running"] = True
        if during_execution:
            request["during_execution"] = True
        self._talk.told = None
        await self._talk.do(request, Status.CHECKPOINTED)
        if not leave_running:
            self._talk.state = "checkpointed"
            await self._talk.close()
        return self._heard_of()

    def _heard_of(self) -> CheckpointInfo:
        """What the server told; a server that is not ours may tell nothing."""
        return self._talk.told or CheckpointInfo(id="")

    async def snapshot_filesystem(self, name: str) -> None:
        """Keep its files under a name, for `create(filesystem_snapshot_name=...)`."""
        request = {"action": "snapshot_filesystem", "name": name}
        await self._talk.do(request, Status.FILESYSTEM_SNAPSHOT_CREATED)

    async def save_template(self, name: str) -> str:
        """Keep it, with what runs in it, for `create(template=...)`; the checkpoint's id. Nothing
        may be executing, but a session keeps its imports, and programs that stay behind run on."""
        told = await self._talk.ask({"action": "save_template", "name": name})
        return str(told["checkpoint"])

    async def fork(self, count: int = 1) -> list[Self]:
        """Isolated live copies, attached: all of them, or none is left. Raises HoldfastError."""
        told = await self._talk.ask({"action": "fork", "count": count})
        for each in told["sandboxes"]:
            remember(each["sandbox_id"], each["sandbox_token"], self._token)
        copies: list[Self] = []
        try:
            for each in told["sandboxes"]:
                copies += [await type(self).attach(self._talk.url, each["sandbox_id"])]
        except BaseException as error:
            await self._end_copies(told["sandboxes"], copies, error)
            raise
        return copies

    async def _end_copies(
        self, passes: Sequence[Mapping[str, str]], copies: Sequence[Self], error: BaseException
    ) -> None:
        """Copies that nobody will be given. One that cannot be reached is named in the error."""
        attached = {each.sandbox_id: each for each in copies}
        for each in passes:
            identity = each["sandbox_id"]
            try:
                copy = attached.get(identity)
                await (copy or await type(self).attach(self._talk.url, identity)).kill()
            except HoldfastError as trouble:
                error.add_note(f"the copy {identity} may go on: {trouble}")

    async def rollback(self, checkpoint: CheckpointInfo | str | None = None) -> str:
        """Go back to a checkpoint of this sandbox, by default the one before the last."""
        which = checkpoint.id if isinstance(checkpoint, CheckpointInfo) else checkpoint
        told = await self._talk.ask({"action": "rollback", "checkpoint": which})
        return str(told["checkpoint"])

    def as_member(self) -> RemoteMember:
        """How a bundle binds it: on the store of its server, which the bundle's must be, too."""
        return RemoteMember(self._talk.url, self.sandbox_id, self._token)

    async def kill(self) -> None:
        """End the sandbox."""
        await self._talk.do({"action": "kill_sandbox"}, Status.KILLED)
        self._talk.state = "killed"
        forget(self.sandbox_id)
        await self._talk.close()
