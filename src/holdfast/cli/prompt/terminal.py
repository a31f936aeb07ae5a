"""Reading cells: at a terminal, with colours, history and completion, or from a pipe."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from holdfast.cli.prompt.typing import indentation, is_complete
from holdfast.view.magics import MAGICS

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    from holdfast.cli.prompt.loop import Reader
    from holdfast.session import Session


def reader_for(session: Session, history: Path) -> Reader:
    """The reader that suits standard input. Raises Unsupported without prompt_toolkit."""
    if not sys.stdin.isatty():
        return Pipe(sys.stdin)
    from holdfast.model.errors import Unsupported

    try:
        return Terminal(session, history)
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"the prompt needs {error.name}", hint="pip install 'holdfast[repl]'"
        ) from None


class Pipe:
    """Cells from a file or a pipe, statement by statement, without a word in between."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    async def read(self, number: int) -> str | None:
        text = ""
        while line := self._stream.readline():
            text += line
            if text.strip() and is_complete(text.rstrip("\n")):
                return text
            if not line.strip() and is_complete(text):
                return text
        return text if text.strip() else None

    def attended(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def ask(self, prompt: str) -> str | None:
        sys.stdout.write(prompt)
        line = self._stream.readline()
        return line.removesuffix("\n") if line else None


class Terminal:
    """Cells as somebody types them."""

    def __init__(self, session: Session, history: Path) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.lexers import PygmentsLexer
        from pygments.lexers.python import PythonLexer  # type: ignore[import-untyped]

        from holdfast.model.files import make_folder, open_or_create

        make_folder(history.parent)
        os.close(open_or_create(history))
        self._prompt: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)),
            lexer=PygmentsLexer(PythonLexer),
            completer=_completer(session),
            complete_while_typing=False,
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation=lambda width, line, wrapped: "." * (width - 1) + " ",
        )
        self._questions: PromptSession[str] = PromptSession()

    async def read(self, number: int) -> str | None:
        try:
            return await self._prompt.prompt_async([("ansigreen", f"[{number}] "), ("", "")])
        except EOFError:
            return None

    @contextmanager
    def attended(self) -> Iterator[None]:
        """The terminal takes keys one by one, and Ctrl-C stays a signal.

        By itself it collects lines, and a Ctrl-D among them is forgotten when the prompt appears.
        """
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
        during = termios.tcgetattr(fd)
        during[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(fd, termios.TCSADRAIN, during)
        try:
            yield
        finally:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)

    async def ask(self, prompt: str) -> str | None:
        try:
            hidden = getattr(prompt, "password", False)
            return await self._questions.prompt_async(prompt, is_password=hidden)
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise asyncio.CancelledError from None


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        """Run what is complete; otherwise go on in the next line."""
        buffer = event.current_buffer
        at_end = buffer.document.is_cursor_at_the_end
        if at_end and is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n" + indentation(buffer.document.text_before_cursor))

    @keys.add("c-d")
    def leave(event: KeyPressEvent) -> None:
        """Leave, if nothing is typed; on simple terminals nobody else does."""
        if event.current_buffer.text:
            event.current_buffer.delete()
        else:
            event.app.exit(exception=EOFError)

    @keys.add("tab")
    def tab(event: KeyPressEvent) -> None:
        """Complete a name; at the beginning of a line, indent."""
        buffer = event.current_buffer
        if not buffer.document.current_line_before_cursor.strip():
            buffer.insert_text("    ")
        elif buffer.complete_state:
            buffer.complete_next()
        else:
            buffer.start_completion(select_first=False, insert_common_part=True)

    return keys


def _completer(session: Session) -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    class SessionCompleter(Completer):
        """Asks the session's worker, which alone knows what is there."""

        def get_completions(
            self, document: Document, complete_event: CompleteEvent
        ) -> list[Completion]:
            return []  # only the asynchronous way is used

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion, None]:
            before = document.current_line_before_cursor
            if document.text.startswith("%"):
                word = document.text_before_cursor[1:]
                for name in MAGICS:
                    if name.startswith(word):
                        yield Completion(name, start_position=-len(word))
                return
            for match in await session.complete(before):
                # A match is whole; what is typed of it already is replaced.
                typed = _overlap(before, match)
                yield Completion(match, start_position=-typed, display=match.rpartition(".")[2])

    return SessionCompleter()


def _overlap(text: str, match: str) -> int:
    """How much of a match stands at the end of a text."""
    for length in range(min(len(text), len(match)), 0, -1):
        if text.endswith(match[:length]):
            return length
    return 0
