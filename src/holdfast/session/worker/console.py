"""The cell's standard input: `input()`, `getpass` and `sys.stdin` ask the client."""

from __future__ import annotations

import builtins
import getpass
import io
import sys

from holdfast.protocol.session_messages import InputMessage, InputResponseMessage
from holdfast.session.worker.channel import Channel
from holdfast.session.worker.originals import Originals


class Console(io.TextIOBase):
    """Stands in for `sys.stdin`; asks over the control socket and waits for the answer."""

    def __init__(self, channel: Channel, originals: Originals | None = None) -> None:
        super().__init__()
        self._originals = originals or Originals()
        self._channel = channel
        self._last_request = 0
        self._line = ""  # what is left of a line that was read in part
        self.execution_id = 0

    def install(self) -> None:
        sys.stdin = self
        builtins.input = self.input
        self._originals.take_over("input")

        def ask(prompt: str = "Password: ", stream: object = None) -> str:
            """As `getpass.getpass`, marked so that the client can hide what is typed."""
            return self._answer(prompt, password=True)

        # Now, since `from getpass import getpass` may come with the question; and under its name,
        # by which a variable that holds it comes back.
        ask.__module__, ask.__name__, ask.__qualname__ = "getpass", "getpass", "getpass"
        getpass.getpass = ask

    def input(self, prompt: object = "", /) -> str:
        """As the builtin: one line without its end; EOFError when the client has no more."""
        return self._answer(str(prompt))

    def _answer(self, prompt: str, password: bool = False) -> str:
        if self._line and not password:  # of a line that `sys.stdin` has read in part
            return self.readline().removesuffix("\n")
        answer = self._ask(prompt, password)
        if answer is None:
            raise EOFError("the client gave no input")
        return answer

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # typeshed: int
        if not self._line:
            answer = self._ask("")
            self._line = "" if answer is None else answer + "\n"
        end = self._line.find("\n") + 1 or len(self._line)
        return self._taken(end if size is None or size < 0 else min(end, size))

    def read(self, size: int | None = -1, /) -> str:
        if size is None or size < 0:
            return "".join(iter(self.readline, ""))
        found = ""
        while len(found) < size and (line := self.readline(size - len(found))):
            found += line
        return found

    def _taken(self, size: int) -> str:
        taken, self._line = self._line[:size], self._line[size:]
        return taken

    def _ask(self, prompt: str, password: bool = False) -> str | None:
        with self._originals.worker:
            return self._asked(prompt, password)

    def _asked(self, prompt: str, password: bool) -> str | None:
        if not self.execution_id:
            raise RuntimeError("input() works only while a cell runs")
        self._last_request += 1
        request = self._last_request
        self._channel.send(
            InputMessage(
                request_id=request,
                execution_id=self.execution_id,
                prompt=prompt,
                password=password,
            )
        )
        while True:
            message = self._channel.receive()
            if message is None:
                return None
            # An answer to an earlier question, whose cell was interrupted, may still be on its way.
            if isinstance(message, InputResponseMessage) and message.request_id == request:
                if message.error:
                    raise ValueError(message.error)
                return message.text
