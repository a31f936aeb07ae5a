"""An agent that may be anybody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
from collections.abc import AsyncIterator

from holdfast.sandbox.line import ANSWER_SECONDS, AgentLine


class Impostor:
    """The other end of a line."""

    def __init__(self, patience: float) -> None:
        self.hears, host_writes = os.pipe()
        host_reads, self.says = os.pipe()
        os.set_blocking(self.hears, False)
        self.heard = b""
        self.line = AgentLine((host_reads, host_writes), patience=patience)

    def say(self, data: bytes = b"", **header: object) -> None:
        payload = json.dumps(header).encode() + b"\n" + data
        self.raw(struct.pack(">I", len(payload)) + payload)

    def raw(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.says, data)

    async def order(self) -> dict[str, object]:
        for _ in range(1000):
            with contextlib.suppress(BlockingIOError):
                self.heard += os.read(self.hears, 65536)
            end = 4 + int.from_bytes(self.heard[:4], "big")
            if 4 < end <= len(self.heard):
                frame, self.heard = self.heard[4:end], self.heard[end:]
                return dict(json.loads(frame.partition(b"\n")[0]))
            await asyncio.sleep(0.001)
        raise AssertionError("nothing was ordered")

    def close(self) -> None:
        self.line.close()
        os.close(self.hears)
        os.close(self.says)


@contextlib.asynccontextmanager
async def impostor(patience: float = ANSWER_SECONDS) -> AsyncIterator[Impostor]:
    one = Impostor(patience)
    yield one
    one.close()
