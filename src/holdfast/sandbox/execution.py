"""Executions: a process that a client asked for, and how far its output was passed on."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.model.errors import Corrupt, HoldfastError
from holdfast.protocol.sandbox_messages import Encoding, ExitEvent, OutputEvent
from holdfast.sandbox.line import AgentLine
from holdfast.sandbox.process import Exit, Process
from holdfast.sandbox.replay import Piece, Replay

KILL_SECONDS = 4.5  # clients wait for five


@dataclass(slots=True, eq=False)
class Execution:
    """The foreground execution (no `process_id`), or one of those beside it."""

    process: Process
    encoding: Encoding = "text"
    process_id: str | None = None
    session: bool = False  # whether the session inside is at work for it
    sent: int = 0  # the offset behind what was passed on
    reason: str | None = None  # why a limit ended it
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)
    # Cleared while it is being killed: a client must hear of that before it hears of the end.
    tellable: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def __post_init__(self) -> None:
        self.tellable.set()

    @property
    def exit(self) -> Exit | None:
        return self.process.exit

    @property
    def done(self) -> bool:
        """It has ended and everything was passed on."""
        return self.process.exit is not None and self.sent >= self.process.replay.end

    async def kill(self) -> None:
        """Raises HoldfastError when nothing comes of it."""
        if not await self.process.killed(KILL_SECONDS):
            raise HoldfastError(
                f"the sandbox's agent did not kill it within {KILL_SECONDS:g} s",
                hint="it may still do so; kill the sandbox to be sure",
            )

    def pieces(self) -> list[Piece]:
        return self.process.replay.after(self.sent)

    def event(self, piece: Piece) -> OutputEvent:
        if self.encoding == "base64":
            data = base64.b64encode(piece.data).decode("ascii")
        else:
            data = piece.data.decode("utf-8", "replace")
        return OutputEvent(
            event="stderr" if piece.stream == "stderr" else "stdout",
            data=data,
            offset=piece.offset,
            gap=piece.gap,
            encoding=self.encoding,
            process_id=self.process_id,
        )

    def exit_event(self) -> ExitEvent:
        how = self.process.exit or Exit()
        return ExitEvent(
            event="exit",
            code=how.code,
            signal=how.signal,
            reason=self.reason or how.reason,
            process_id=self.process_id,
        )

    # -- in checkpoints

    def kept(self) -> dict[str, Any]:
        """What a checkpoint needs to go on with it: above all the output nobody has seen."""
        owed, grant = self.process.balance
        return {
            "identity": self.process.identity,
            "encoding": self.encoding,
            "process_id": self.process_id,
            "session": self.session,
            "sent": self.sent,
            "end": self.process.replay.end,
            "owed": owed,
            "grant": grant,
            "tails": {
                stream: base64.b64encode(data).decode("ascii")
                for stream, data in self.process.replay.tails.items()
            },
            "pieces": [
                [piece.stream, base64.b64encode(piece.data).decode("ascii")]
                for piece in self.pieces()
            ],
        }

    @classmethod
    def revived(cls, kept: Mapping[str, Any], line: AgentLine) -> Execution:
        """Raises Corrupt."""
        try:
            held = [(stream, base64.b64decode(data)) for stream, data in kept["pieces"]]
            replay = Replay(start=kept["end"] - sum(len(data) for _, data in held))
            for stream, data in held:
                replay.add(stream, data)
            for stream, data in kept["tails"].items():
                replay.add(stream, base64.b64decode(data))
            process = line.adopt(kept["identity"], replay, (kept["owed"], kept["grant"]))
            return cls(
                process,
                kept["encoding"],
                kept["process_id"],
                bool(kept.get("session")),
                kept["sent"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"a kept execution cannot be read: {error}") from None
