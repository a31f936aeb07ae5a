"""Programs in a sandbox under test: begun, run to their end, listened to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from holdfast.sandbox.body import Body
from holdfast.sandbox.languages import ceilings
from holdfast.sandbox.process import Exit, Process
from holdfast.sandbox.roots import Root
from holdfast.sandbox.start import Start
from holdfast.testing.waiting import until


@dataclass(slots=True)
class Run:
    """What came out of a program."""

    exit: Exit
    stdout: str
    stderr: str


def environment(root: Root) -> dict[str, str]:
    return {"PATH": root.path, "HOME": "/root"}


async def begin(body: Body, *argv: str, **more: object) -> Process:
    root = body.build.root
    words = [*root.python, *argv[1:]] if argv[0] == "python" else list(argv)
    start = Start(
        argv=words,
        env=environment(root),
        limits=ceilings(body.build.limits),
        **more,  # type: ignore[arg-type]
    )
    return await body.line.start(start)


async def result(process: Process) -> Run:
    how = await asyncio.wait_for(process.wait(), 60)
    texts = {"stdout": "", "stderr": ""}
    for piece in process.replay.after(0):
        texts[piece.stream] += piece.data.decode("utf-8", "replace")
    return Run(how, texts["stdout"], texts["stderr"])


async def run(body: Body, *argv: str, **more: object) -> Run:
    return await result(await begin(body, *argv, **more))


async def bash(body: Body, script: str) -> Run:
    return await run(body, "bash", "-c", script)


async def output_after(process: Process, offset: int) -> list[str]:
    """Lines that come behind an offset, once there are some."""

    def lines() -> list[str]:
        text = b"".join(piece.data for piece in process.replay.after(offset)).decode()
        return text.splitlines()

    await until(lambda: len(lines()) >= 5, "it goes on")
    return lines()[:-1]


async def output_lines(process: Process, count: int) -> None:
    """Wait until so many lines have come."""
    async with asyncio.timeout(60):
        while b"".join(each.data for each in process.replay.after(0)).count(b"\n") < count:
            await process.changed()
