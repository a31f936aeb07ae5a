"""Frames between a host and the agent inside a sandbox (spec/sandbox-v1.md).

A payload is one line of JSON, a newline, and the raw bytes that belong to it: the agent has
nothing but the standard library, and output is not to be wrapped in text.
"""

from __future__ import annotations

import json

import msgspec

from holdfast.model.errors import Corrupt
from holdfast.protocol.frames import FrameDecoder, encode_frame

# An agent is not believed: neither length nor depth of what it says may decide what we spend.
MAX_AGENT_FRAME = 1 << 20
PIECE = 64 << 10  # of data in one frame

Header = dict[str, object]


def agent_frame(header: Header, data: bytes = b"") -> bytes:
    try:
        line = msgspec.json.encode(header)
    except UnicodeEncodeError:  # a path that is not UTF-8 has half characters in its place
        line = json.dumps(header).encode()
    return encode_frame(line + b"\n" + data)


class AgentDecoder:
    """Collects bytes of an agent and gives back (header, data) pairs. Raises Corrupt."""

    def __init__(self) -> None:
        self._frames = FrameDecoder(MAX_AGENT_FRAME)

    def feed(self, data: bytes) -> list[tuple[Header, bytes]]:
        return [_split(payload) for payload in self._frames.feed(data)]

    @property
    def pending(self) -> int:
        return self._frames.pending


def _split(payload: bytes) -> tuple[Header, bytes]:
    line, newline, data = payload.partition(b"\n")
    if not newline:
        raise Corrupt("an agent's frame without a header")
    try:
        header = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise Corrupt(f"an agent's header cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise Corrupt("an agent's header is not an object")
    return header, data
