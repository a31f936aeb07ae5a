"""The line to an agent: the host's end. What the agent says is not believed, only read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.model.errors import BadInput, CaptureFailed, Corrupt, HoldfastError, NotFound
from holdfast.protocol.agent_frames import PIECE, AgentDecoder, Header, agent_frame
from holdfast.sandbox.replay import Replay

WINDOW = 256 << 10
# Output that may go unpaid: paying for every word would wake the agent for every word.
UNPAID = WINDOW // 4
ANSWER_SECONDS = 30.0


# Takes the output of a process as it comes, instead of its being kept for a client.
Tap = Callable[[str, bytes], None]


class Gone(HoldfastError):
    """The agent, and so the sandbox, has ended."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended."""

    code: int | None = None
    signal: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program to be started, or a file verb (`call`, with its own fields)."""

    argv: Sequence[str] = ()
    call: Mapping[str, object] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/root"
    size: tuple[int, int] | None = None  # rows and columns of a terminal
    stdin: bool = True
    limits: Mapping[str, int] = field(default_factory=dict)
    offline: bool = False  # without a socket of any network, not even the loopback's

    def moved(self, places: Mapping[str, str]) -> Start:
        """The same where a sandbox has no root of its own: paths that stand alone are what they
        mean there. What is inside of code or of files stays as it is."""

        def there(text: str) -> str:
            for place, real in places.items():
                if text == place or text.startswith(f"{place}/"):
                    return real + text.removeprefix(place)
            return text

        env = {name: ":".join(map(there, value.split(":"))) for name, value in self.env.items()}
        call = self.call and {
            name: there(value) if name in ("path", "to") and isinstance(value, str) else value
            for name, value in self.call.items()
        }
        return replace(
            self,
            argv=[there(word) for word in self.argv],
            call=call,
            env={"TMPDIR": there("/tmp"), **env},
            cwd=there(self.cwd),
        )


class Process:
    """A process inside, as seen from here."""

    def __init__(
        self,
        line: AgentLine,
        identity: str,
        replay: Replay | None = None,
        balance: tuple[int, int] = (0, 0),
    ) -> None:
        self._line = line
        self.identity = identity
        self.replay = replay or Replay()
        self.tap: Tap | None = None
        self.exit: Exit | None = None
        self.follower = False  # somebody reads along: it may be slower than the process
        self._changed = asyncio.Event()
        # Bytes received for which no credit was given back; bytes of input the agent would take.
        self._owed, self._grant = balance
        self._granted = asyncio.Event()

    # -- what is heard

    def heard(self, stream: str, data: bytes) -> None:
        if self.tap is None:
            self.replay.add(stream, data)
        else:
            self.tap(stream, data)
        self._owed += len(data)
        if not self.follower:
            self.consumed()
        self._change()

    def ended(self, how: Exit) -> None:
        self.replay.finish()
        self.exit = how
        self._change()
        self._granted.set()

    def granted(self, count: int) -> None:
        self._grant += count
        self._granted.set()

    @property
    def balance(self) -> tuple[int, int]:
        """What both sides owe each other, for a checkpoint: output unpaid, input granted."""
        return self._owed, self._grant

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- what is asked

    def consumed(self) -> None:
        """What was received has been passed on: the process may write more."""
        if self._owed >= UNPAID and self.exit is None:
            owed, self._owed = self._owed, 0
            self._line.send({"type": "credit", "id": self.identity, "bytes": owed})

    def changed(self) -> Coroutine[Any, Any, object]:
        """There is new output since this was called, or the end.

        What is waited for is chosen by the call, not by the first step of the coroutine: whoever
        wraps it in a task (`wait_for` does) would miss what comes before that task begins.
        """
        return self._changed.wait()

    async def wait(self) -> Exit:
        while self.exit is None:
            await self.changed()
        return self.exit

    async def write(self, data: bytes) -> None:
        """Give input, as fast as the process takes it; after its end it goes nowhere."""
        view = memoryview(data)
        while view and self.exit is None:
            while self._grant <= 0 and self.exit is None:
                self._granted.clear()
                await self._granted.wait()
            count = min(len(view), self._grant, PIECE)
            if self.exit is None:
                self._grant -= count
                frame: Header = {"type": "input", "id": self.identity}
                self._line.send(frame, bytes(view[:count]))
                view = view[count:]

    def end_input(self) -> None:
        self._line.send({"type": "input", "id": self.identity})

    def kill(self) -> None:
        self._line.send({"type": "kill", "id": self.identity})

    async def killed(self, seconds: float) -> bool:
        """Kill it, and wait for its end; whether the agent has carried that out. An end cannot be
        told while its last output waits for a slow reader, or while the sandbox stands still."""
        self.kill()
        if not self._delayed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.wait()
        return self.exit is not None or self._delayed

    @property
    def _delayed(self) -> bool:
        return self._owed >= UNPAID or self._line.still

    def resize(self, rows: int, columns: int) -> None:
        self._line.send({"type": "resize", "id": self.identity, "rows": rows, "columns": columns})


class AgentLine:
    """Sends orders to an agent and hears what it says."""

    def __init__(
        self,
        pipes: tuple[int, int],
        places: Mapping[str, str] | None = None,
        ceilings: Callable[[Mapping[str, int]], Mapping[str, int]] = lambda limits: limits,
    ) -> None:
        self._read, self._write = pipes
        self._places = places or {}
        self._ceilings = ceilings
        self._decoder = AgentDecoder()
        self._out = bytearray()
        self._held: list[bytes] = []  # for an agent that stands still: it would not hear them
        self._moving = asyncio.Event()
        self._moving.set()
        self._starting: dict[str, asyncio.Future[Process]] = {}
        self._taps: dict[str, Tap] = {}
        self.processes: dict[str, Process] = {}
        self._awaited: tuple[str, int, asyncio.Future[None]] | None = None
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[str] = self._loop.create_future()
        for fd in pipes:
            os.set_blocking(fd, False)
        self._loop.add_reader(self._read, self._readable)

    # -- asking

    async def ready(self, seconds: float = ANSWER_SECONDS) -> None:
        """Wait until the agent has begun. Raises Gone."""
        await self._answer("ready", 0, seconds)

    async def start(self, what: Start, tap: Tap | None = None) -> Process:
        """Begin a process. Raises BadInput or NotFound when it cannot be run."""
        if self._places:
            what = what.moved(self._places)
        identity = secrets.token_hex(8)
        order: Header = {
            "type": "start",
            "id": identity,
            "env": dict(what.env),
            "cwd": what.cwd,
            "stdin": what.stdin,
            "limits": dict(self._ceilings(what.limits)),
            "window": WINDOW,
        }
        if what.call is not None:
            order.update(what.call)
        else:
            order.update(argv=list(what.argv))
        if what.offline:
            order.update(offline=True)
        if what.size is not None:
            order.update(rows=what.size[0], columns=what.size[1])
        await self._moving.wait()
        if self.gone.done():
            raise Gone(self.gone.result())
        waiting = self._starting[identity] = self._loop.create_future()
        if tap is not None:
            self._taps[identity] = tap
        try:
            frame = agent_frame(order)
            if len(frame) > 1 << 20:
                raise BadInput("code, arguments and environment are more than a megabyte together")
            self._send(frame)
            async with asyncio.timeout(ANSWER_SECONDS):
                process: Process = await waiting
            return process
        except TimeoutError:
            raise HoldfastError("the sandbox does not answer") from None
        finally:
            self._starting.pop(identity, None)
            self._taps.pop(identity, None)

    def adopt(self, identity: str, replay: Replay, balance: tuple[int, int]) -> Process:
        """A process that a restored sandbox brought along."""
        process = self.processes[identity] = Process(self, identity, replay, balance)
        return process

    @property
    def still(self) -> bool:
        return not self._moving.is_set()

    async def quiesce(self, epoch: int) -> None:
        """After this neither side has a frame under way. Raises CaptureFailed."""
        self.send({"type": "quiesce", "epoch": epoch})
        self._moving.clear()
        try:
            await self._answer("quiesced", epoch, ANSWER_SECONDS)
        except Gone:
            raise CaptureFailed("the sandbox ended while it was about to be frozen") from None

    async def resume(self, epoch: int, generation: str | None = None) -> None:
        """Go on after `quiesce`, here or on a restored sandbox's new pipes. Raises Gone."""
        order: Header = {"type": "resume", "epoch": epoch}
        if generation is not None:
            order["generation"] = generation
        self._put(agent_frame(order))
        await self._answer("resumed", epoch, ANSWER_SECONDS)
        self._moving.set()
        held, self._held = self._held, []
        for frame in held:
            self._put(frame)

    async def _answer(self, kind: str, epoch: int, seconds: float) -> None:
        if self.gone.done():
            raise Gone(self.gone.result())
        future: asyncio.Future[None] = self._loop.create_future()
        self._awaited = (kind, epoch, future)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            raise Gone(f"the sandbox's agent said nothing for {seconds:g} s") from None
        finally:
            self._awaited = None

    def send(self, header: Header, data: bytes = b"") -> None:
        self._send(agent_frame(header, data))

    def _send(self, frame: bytes) -> None:
        if self._moving.is_set():
            self._put(frame)
        else:
            self._held.append(frame)

    def _put(self, frame: bytes) -> None:
        if self.gone.done():
            return  # everybody who waits for an answer has been told
        waiting = bool(self._out)
        self._out += frame
        if not waiting:
            self._flush()
            if self._out and not self.gone.done():
                self._loop.add_writer(self._write, self._writable)

    # -- pipes

    def _writable(self) -> None:
        self._flush()
        if not self._out:
            self._loop.remove_writer(self._write)

    def _flush(self) -> None:
        """As much as the pipe takes now."""
        try:
            count = os.write(self._write, self._out[:65536])
            del self._out[:count]
        except BlockingIOError:
            return
        except OSError:
            self.close("the sandbox has ended")

    def _readable(self) -> None:
        try:
            data = os.read(self._read, 1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close("the sandbox has ended")
            return
        try:
            for header, rest in self._decoder.feed(data):
                self._hear(header, rest)
        except (Corrupt, KeyError, TypeError, ValueError) as error:
            # Only something else than our agent speaks like this.
            self.close(f"the sandbox's agent is not to be trusted: {error}")

    def _hear(self, header: Header, data: bytes) -> None:
        kind = header["type"]
        if self._awaited is not None and kind == self._awaited[0]:
            _, epoch, future = self._awaited
            if header.get("epoch", 0) != epoch:
                raise Corrupt(f"an answer of epoch {header.get('epoch')!r:.20}, not {epoch}")
            if not future.done():
                future.set_result(None)
            return
        identity = str(header["id"])
        if kind in ("started", "failed"):
            self._began(identity, header)
            return
        process = self.processes[identity]
        match kind:
            case "output":
                stream = header["stream"]
                if stream not in ("stdout", "stderr") or len(data) > PIECE:
                    raise Corrupt("output of an impossible kind")
                process.heard(str(stream), data)
            case "granted":
                process.granted(_count(header["bytes"]))
            case "ended":
                code, signal = header.get("code"), header.get("signal")
                how = Exit(
                    code=None if code is None else _count(code),
                    signal=None if signal is None else _count(signal),
                )
                del self.processes[identity]
                process.ended(how)
            case _:
                raise Corrupt(f"a message of unknown type {kind!r:.50}")

    def _began(self, identity: str, header: Header) -> None:
        waiting = self._starting[identity]
        if waiting.done():
            return  # nobody waits any more
        if header["type"] == "failed":
            message = str(header.get("message"))[:500]
            told = NotFound if "No such file" in message else BadInput
            waiting.set_exception(told(f"it cannot be run: {message}"))
        else:
            process = self.processes[identity] = Process(self, identity)
            process.tap = self._taps.get(identity)  # before anything it says is heard
            waiting.set_result(process)

    def close(self, why: str = "the line was closed") -> None:
        """Let go of the pipes: an agent without its host ends. Whoever waits is told."""
        if self.gone.done():
            return
        self.gone.set_result(why)
        self._loop.remove_reader(self._read)
        if self._out:
            self._loop.remove_writer(self._write)
        for fd in (self._read, self._write):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._moving.set()
        waiting = [*self._starting.values()]
        if self._awaited is not None:
            waiting.append(self._awaited[2])  # type: ignore[arg-type]
        for future in waiting:
            if not future.done():
                future.set_exception(Gone(why))
        for process in list(self.processes.values()):
            process.ended(Exit(reason=why))
        self.processes.clear()


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise Corrupt(f"not a count: {value!r:.50}")
    return value
