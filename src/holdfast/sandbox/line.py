"""The line to an agent: the host's end. What the agent says is not believed, only read.

To freeze a sandbox, the host says `quiesce`, hears `quiesced`, and from then on neither side has a
frame under way until it says `resume` and hears `resumed`. An agent may be slow: its machine is
loaded, or it was stopped. Whoever waits gives up after a while, and the answer still comes. So what
the agent owes is noted apart from who waits for it: when `quiesced` comes and nobody waits any
more, the host says `resume` at once, and the sandbox goes on as it was. What was to be sent
meanwhile is held back until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence

from holdfast.model.errors import BadInput, CaptureFailed, Corrupt, HoldfastError, NotFound
from holdfast.model.fault_points import fault_point
from holdfast.protocol.agent_frames import PIECE, AgentDecoder, Header, agent_frame
from holdfast.sandbox.process import WINDOW, Exit, Process, Tap, drop
from holdfast.sandbox.replay import Replay
from holdfast.sandbox.start import Start

ANSWER_SECONDS = 30.0

# A process inside, and how much of its output was not paid for.
Running = tuple[str, int]


class Gone(HoldfastError):
    """The agent, and so the sandbox, has ended."""


class Silent(Gone):
    """The agent did not answer in time. It may still do so."""


class AgentLine:
    """Sends orders to an agent and hears what it says."""

    def __init__(
        self,
        pipes: tuple[int, int],
        places: Mapping[str, str] | None = None,
        ceilings: Callable[[Mapping[str, int]], Mapping[str, int]] = lambda limits: limits,
        patience: float = ANSWER_SECONDS,
    ) -> None:
        self._read, self._write = pipes
        self._places = places or {}
        self._ceilings = ceilings
        self._decoder = AgentDecoder()
        self._out = bytearray()
        # For an agent that stands still: it would not hear them.
        self.held: list[tuple[Header, bytes]] = []
        self._moving = asyncio.Event()
        self._moving.set()
        self._starting: dict[str, asyncio.Future[Process]] = {}  # not yet answered
        self._taps: dict[str, Tap] = {}
        self.processes: dict[str, Process] = {}
        self._patience = patience
        # The answer that the agent owes, and who waits for it, unless nobody does any more.
        self._owed: tuple[str, int] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[str] = self._loop.create_future()
        for fd in pipes:
            os.set_blocking(fd, False)
        self._loop.add_reader(self._read, self._readable)

    # -- asking

    async def ready(self, seconds: float = ANSWER_SECONDS) -> None:
        """Wait until the agent has begun. Raises Gone."""
        fault_point("agent.ready")
        self._owed = ("ready", 0)
        await self._answer(seconds)

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
        if what.warm:
            order.update(warm=True)
        if what.size is not None:
            order.update(rows=what.size[0], columns=what.size[1])
        frame = agent_frame(order)
        if len(frame) > 1 << 20:
            raise BadInput("code, arguments and environment are more than a megabyte together")
        fault_point("agent.start")
        await self._until_it_moves()
        waiting = self._starting[identity] = self._loop.create_future()
        if tap is not None:
            self._taps[identity] = tap
        self._put(frame)
        try:
            async with asyncio.timeout(self._patience):
                process: Process = await waiting
            return process
        except TimeoutError:
            self._abandon(identity)
            raise HoldfastError("the sandbox does not answer") from None
        except asyncio.CancelledError:
            self._abandon(identity)
            raise

    def _abandon(self, identity: str) -> None:
        """Nobody will ever know this process. The agent obeys in order, so that it ends as soon as
        it begins, if it does."""
        if identity in self.processes:
            self.processes[identity].abandon()
            return
        if identity in self._starting:
            self._taps[identity] = drop
        self.send({"type": "kill", "id": identity})

    def adopt(self, identity: str, replay: Replay, balance: tuple[int, int]) -> Process:
        """A process that a restored sandbox brought along."""
        process = self.processes[identity] = Process(self, identity, replay, balance)
        return process

    @property
    def running(self) -> list[Running]:
        """All that the agent knows, once it stands still: a restored one will speak of them."""
        return [(identity, each.balance[0]) for identity, each in self.processes.items()]

    @property
    def still(self) -> bool:
        return not self._moving.is_set()

    async def quiesce(self, epoch: int) -> None:
        """After this neither side has a frame under way. Raises CaptureFailed, or is cancelled;
        then the agent goes on by itself, as soon as it answers."""
        fault_point("agent.quiesce")
        try:
            await self._until_it_moves()
            self.send({"type": "quiesce", "epoch": epoch})
            self._moving.clear()
            self._owed = ("quiesced", epoch)
            try:
                await self._answer(self._patience)
            except BaseException:
                self._leave_standstill(epoch)
                raise
        except Silent as error:
            raise CaptureFailed(
                f"the sandbox could not be frozen: {error}",
                hint="it goes on as soon as it answers; try again when the machine is less loaded",
            ) from None
        except Gone:
            raise CaptureFailed("the sandbox ended while it was about to be frozen") from None

    async def resume(
        self, epoch: int, generation: str | None = None, running: Sequence[Running] = ()
    ) -> None:
        """Go on after `quiesce`, here or on a restored sandbox's new pipes. Of what was `running`
        there, whatever nobody adopted is killed. Raises Gone; Silent when the answer is late."""
        if self.gone.done():
            raise Gone(self.gone.result())
        self._moving.clear()  # until it is resumed, a restored agent would not hear anything else
        for identity, owed in running:
            if identity not in self.processes:
                self.adopt(identity, Replay(), (owed, 0)).abandon()
        self._resume(epoch, generation)
        fault_point("agent.resume")
        await self._answer(self._patience)

    def _leave_standstill(self, epoch: int) -> None:
        """Nobody freezes it any more. One that has not answered yet is told when it does."""
        if self._owed is None and not self.gone.done():
            self._resume(epoch)

    def _resume(self, epoch: int, generation: str | None = None) -> None:
        order: Header = {"type": "resume", "epoch": epoch}
        if generation is not None:
            order["generation"] = generation
        self._put(agent_frame(order))
        self._owed = ("resumed", epoch)

    def _go_on(self) -> None:
        self._moving.set()
        held, self.held = self.held, []
        for header, data in held:
            self._put(agent_frame(header, data))

    async def _until_it_moves(self) -> None:
        """Wait while it stands still, however long that is meant to take. Raises Silent when the
        agent owes an answer that was given up, and Gone."""
        while self.still:
            try:
                async with asyncio.timeout(self._patience):
                    await self._moving.wait()
            except TimeoutError:
                if self._owed is not None and self._waiter is None:
                    raise Silent("the sandbox does not answer") from None
        if self.gone.done():
            raise Gone(self.gone.result())

    async def _answer(self, seconds: float) -> None:
        """Wait for what the agent owes. Raises Gone."""
        if self.gone.done():
            raise Gone(self.gone.result())
        waiter = self._waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            raise Silent(f"the sandbox's agent said nothing for {seconds:g} s") from None
        finally:
            self._waiter = None

    def send(self, header: Header, data: bytes = b"") -> None:
        if self.still:
            self.held.append((header, data))
        else:
            self._put(agent_frame(header, data))

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
        if self._owed is not None and kind == self._owed[0]:
            self._hear_answer(header)
            return
        identity = str(header["id"])
        if kind in ("started", "failed"):
            self._began(identity, header)
            return
        process = self.processes.get(identity)
        if process is None:
            raise Corrupt(f"{kind!r:.50} of a process that is not there")
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

    def _hear_answer(self, header: Header) -> None:
        assert self._owed is not None
        kind, epoch = self._owed
        if header.get("epoch", 0) != epoch:
            raise Corrupt(f"an answer of epoch {header.get('epoch')!r:.20}, not {epoch}")
        self._owed = None
        if kind == "resumed":
            self._go_on()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        elif kind == "quiesced":
            self._leave_standstill(epoch)

    def _began(self, identity: str, header: Header) -> None:
        waiting = self._starting.pop(identity, None)
        tap = self._taps.pop(identity, None)
        if waiting is None:
            raise Corrupt(f"{header['type']!r} of a process that nobody asked for")
        if header["type"] == "started":
            process = self.processes[identity] = Process(self, identity)
            process.tap = tap  # before anything it says is heard
            if not waiting.done():  # or somebody gave up, and it is being killed
                waiting.set_result(process)
        elif not waiting.done():
            message = str(header.get("message"))[:500]
            told = NotFound if "No such file" in message else BadInput
            waiting.set_exception(told(f"it cannot be run: {message}"))

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
        waiting: list[asyncio.Future[Process] | asyncio.Future[None]] = [*self._starting.values()]
        if self._waiter is not None:
            waiting.append(self._waiter)
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
