"""The interpreter of a sandbox: a Python session inside it, and how executions reach it.

It runs inside. `run` is an ordinary program: it gives code to the session, passes its output on and
ends as the code ended, so that killing, input and freezing are what they are for every program.
The session itself lives in a process that the first `run` begins. Before a sandbox is frozen it
writes itself to one signed file in its user's home: that is part of the sandbox's files, and so
comes back where memory does not, and can be restored by any other session.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.session import Session

MODULE = "holdfast.sandbox.interpreter"
SOCKET = "/tmp/.holdfast-session"
# Where that is when a sandbox has no root of its own. Without it, all sandboxes of a host would
# meet at the same socket, with whoever of its users makes that first.
PLACE = "HOLDFAST_SESSION_SOCKET"
MOST_ADDRESS = 100
NAME = "sandbox"
BEGIN_SECONDS = 60.0
INTERRUPTED, FAILED, BUSY = 130, 1, 75
# For a cell that was interrupted to come to its end, before what would be frozen is in its middle.
BUSY_SECONDS = 5.0

Said = dict[str, Any]  # JSON: one line each way


# -- the short-lived side, with the standard library only


def run(code: str) -> int:
    """Run code in the session; the exit code that a script of it would have had."""
    with reach(begin=True) as link:
        said = link.makefile("r", encoding="utf-8", errors="surrogateescape")
        tell(link, {"run": code})
        for line in said:
            message: Said = json.loads(line)
            if "end" in message:
                return int(message["end"])
            if "ask" in message:
                sys.stdout.write(message["ask"])
                sys.stdout.flush()
                answer = sys.stdin.readline()
                tell(link, {"answer": answer.rstrip("\n") if answer else None})
            else:
                stream = sys.stderr if message["stream"] == "stderr" else sys.stdout
                stream.write(message["text"])
                stream.flush()
    sys.stderr.write("the session has ended\n")
    return FAILED


def checkpoint() -> int:
    """Freeze the session into its store, if there is one that runs."""
    try:
        link = reach(begin=False)
    except OSError:
        return 0
    with link:
        tell(link, {"checkpoint": True})
        message: Said = json.loads(link.makefile("r", encoding="utf-8").readline() or "{}")
        sys.stderr.write(message.get("why", ""))
        return int(message.get("end", FAILED))


def reach(begin: bool) -> socket.socket:
    """A connection to the session. Raises OSError when it does not run and is not to begin."""
    deadline = time.monotonic() + BEGIN_SECONDS
    begun: subprocess.Popen[bytes] | None = None
    while True:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with address() as where:
                link.connect(where)
            return link
        except OSError:
            link.close()
            gone = begun is not None and begun.poll() is not None
            if not begin or time.monotonic() > deadline or gone:
                raise
        if begun is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            said = os.open(f"{place()}.log", flags, 0o600)
            log = open(said, "ab")  # noqa: SIM115  the session's from now on
            begun = subprocess.Popen(
                [sys.executable, "-m", MODULE, "serve"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=os.path.expanduser("~"),
            )
        time.sleep(0.02)


def place() -> str:
    return os.environ.get(PLACE, SOCKET)


@contextlib.contextmanager
def address() -> Iterator[str]:
    """The socket's, by way of its folder: an address is 107 bytes at most, and a path may be more.
    Raises OSError."""
    folder, name = os.path.split(place())
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield place() if len(os.fsencode(place())) < MOST_ADDRESS else f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def tell(link: socket.socket, message: Said) -> None:
    link.sendall(json.dumps(message).encode() + b"\n")


# -- the session's side


async def serve() -> None:
    """Keep a session, going on from its last checkpoint, until the sandbox ends."""
    from holdfast.model import files

    mine = os.open(f"{place()}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another one was faster
    session = await opened()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place())
    host = Host(session)
    listener = socket.socket(socket.AF_UNIX)
    with address() as where:
        files.bind(listener, where)
    async with session, await asyncio.start_unix_server(host.serve, sock=listener, limit=1 << 26):
        await asyncio.Event().wait()


async def opened() -> Session:
    """A session as it was written down last, if it was."""
    from holdfast import Session

    # CRIU cannot freeze what the kernel's page tracking needs.
    session = Session(NAME, store="memory://", env={"HOLDFAST_PAGE_TRACKING": "off"})
    await session.start()
    if kept().exists():
        await session.restore(kept())
    return session


def kept() -> Path:
    return Path.home() / ".holdfast" / "session.holdfast"


class Host:
    """Speaks for the session: one connection, one piece of work, one after the other."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._work = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked: Said = json.loads(await reader.readline() or "{}")
            if "run" in asked:
                async with self._work:
                    await self._run(asked["run"], reader, writer)
            elif "checkpoint" in asked:
                await self._checkpoint(writer)
        except (ConnectionError, ValueError):
            return  # it was killed, or is nobody of ours
        finally:
            writer.close()

    async def _run(
        self, code: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        answers: asyncio.Queue[str | None] = asyncio.Queue()

        async def answer(prompt: str) -> str | None:
            await say(writer, {"ask": str(prompt)})
            return await answers.get()

        async def listen() -> None:
            with contextlib.suppress(ConnectionError):  # as good as the end
                while line := await reader.readline():
                    answers.put_nowait(json.loads(line).get("answer"))
            answers.put_nowait(None)  # whoever asked is gone
            while not await self._session.interrupt():
                await asyncio.sleep(0.02)  # the cell has not begun yet

        listening = asyncio.create_task(listen())
        try:
            execution = self._session.stream(code, on_input=answer)
            async for event in execution:
                with contextlib.suppress(ConnectionError):  # `listen` ends the cell then
                    await say(writer, {"stream": event.stream, "text": event.text})
            error = execution.result.error
            ended = 0
            if error is not None:
                text = error.traceback or f"{error.type}: {error.message}\n"
                await say(writer, {"stream": "stderr", "text": text.rstrip("\n") + "\n"})
                ended = INTERRUPTED if error.type == "KeyboardInterrupt" else FAILED
            await say(writer, {"end": ended})
        finally:
            listening.cancel()

    async def _checkpoint(self, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._work.acquire()
        except TimeoutError:
            await say(writer, {"end": BUSY, "why": "a cell goes on although it was interrupted"})
            return
        try:
            await self._freeze(writer)
        finally:
            self._work.release()

    async def _freeze(self, writer: asyncio.StreamWriter) -> None:
        from holdfast import HoldfastError

        try:
            made = await self._session.checkpoint(reason="with the sandbox")
            new = kept().with_suffix(".new")
            new.unlink(missing_ok=True)
            await self._session.export(new, made)
            new.replace(kept())
        except (HoldfastError, OSError) as error:
            await say(writer, {"end": FAILED, "why": str(error)})
            return
        await say(writer, {"end": 0})


async def say(writer: asyncio.StreamWriter, message: Said) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()


def main(words: list[str]) -> NoReturn:
    verb, given = words[0], words[1:]
    if verb == "serve":
        asyncio.run(serve())
        sys.exit(0)
    if verb == "checkpoint":
        sys.exit(checkpoint())
    code = Path(given[0]).read_text(encoding="utf-8") if verb == "file" else given[0]
    sys.exit(run(code))


if __name__ == "__main__":
    main(sys.argv[1:])
