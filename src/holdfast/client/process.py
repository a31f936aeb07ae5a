"""A process in a sandbox, as its client sees it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from holdfast.client.streams import Stream
from holdfast.model.errors import HoldfastError


class Wire(Protocol):
    """What a process needs of its sandbox."""

    async def send(self, message: Mapping[str, object]) -> None: ...


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: with a code, by a signal, or for a reason that neither tells."""

    code: int | None = None
    signal: int | None = None
    reason: str | None = None


class Process:
    """Something that runs. `stdout` and `stderr` are read; `wait` gives how it ended."""

    def __init__(self, wire: Wire, process_id: str | None, binary: bool) -> None:
        self._wire = wire
        self._process_id = process_id
        self._binary = binary
        self.stdout = Stream(binary)
        self.stderr = Stream(binary)
        self.offset = 0  # of the last output that was seen
        self.confirmed = True  # whether the server has spoken of it on this connection
        self._exit: Exit | None = None
        self._ended = asyncio.Event()

    @property
    def exit(self) -> Exit | None:
        """How it ended, once it has."""
        return self._exit if self._ended.is_set() else None

    async def wait(self) -> Exit:
        """Until it ends. Output that nobody reads is kept."""
        self.stdout.lift()
        self.stderr.lift()
        await self._ended.wait()
        return self._exit or Exit()

    async def write(self, data: str | bytes) -> None:
        """Give input."""
        message: dict[str, object] = {"event": "stdin", **self._addressed()}
        if isinstance(data, bytes):
            message.update(data=base64.b64encode(data).decode("ascii"), encoding="base64")
        else:
            message["data"] = data
        await self._wire.send(message)

    async def end_input(self) -> None:
        """Say that no more input comes."""
        await self._wire.send({"event": "stdin", "data": "", "eof": True, **self._addressed()})

    async def kill(self) -> None:
        """Kill it and its process group; `wait` tells when it is gone."""
        await self._wire.send({"action": "kill_process", **self._addressed()})

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal that it has another size."""
        size = {"rows": rows, "columns": columns}
        await self._wire.send({"action": "resize", **size, **self._addressed()})

    def _addressed(self) -> dict[str, object]:
        return {} if self._process_id is None else {"process_id": self._process_id}

    # -- what is heard

    def heard(self, message: Mapping[str, object]) -> Stream:
        """Take an output event in; the stream it went to."""
        stream = self.stderr if message["event"] == "stderr" else self.stdout
        data = str(message.get("data", ""))
        stream.missing += _number(message.get("gap"))
        stream.feed(base64.b64decode(data) if self._binary else data)
        self.offset = _number(message.get("offset"))
        return stream

    def left(self, how: Exit) -> None:
        """It is known how it ended."""
        self._exit = how

    def end(self, error: HoldfastError | None = None) -> None:
        """Nothing more will be heard of it. An error is told to those who read, unless it had come
        to an end of its own before."""
        how = self._exit or Exit()
        if how.code is not None:
            error = None
        elif error is None and how.signal is None and how.reason:
            error = HoldfastError(f"the output ends here: {how.reason}")
        if error is not None:
            how = replace(how, reason=str(error))
        self._exit = how
        self.stdout.finish(error)
        self.stderr.finish(error)
        self._ended.set()


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
