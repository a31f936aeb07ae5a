"""Runs the code of one page of documentation from top to bottom, as a reader would.

    python page.py PAGE.md

Python blocks share one namespace and may await. IPython blocks are cells of a Jupyter kernel; one
that kills its kernel is followed by a new one. Console blocks run their `$` lines and compare
what comes out with what the page shows, where `...` stands for anything, and an id, an age, a size
or a date for any other. The test runs this in a process, a directory and a home of its own.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_client.manager import KernelManager

FENCE = re.compile(r"^([ \t]*)```(\w+)[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)

RUN = {"holdfast", "python", "echo", "cat", "ls", "export"}
# These set up machines or end processes; tests/system covers them.
LEAVE = {"make", "pip", "git", "sudo", "apt-get", "eval", "cd", "kill", "curl", "source", "docker"}


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block, and the line of the page it begins on."""

    language: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Command:
    """One `$` line, and what the page says comes out of it."""

    text: str
    expected: str
    line: int

    @property
    def word(self) -> str:
        return self.text.split()[0]


class WrongPageError(Exception):
    """The page promises something that does not happen."""


def blocks(page: str) -> Iterator[Block]:
    for found in FENCE.finditer(page):
        yield Block(found[2], textwrap.dedent(found[3]), page.count("\n", 0, found.start()) + 2)


def commands(block: Block) -> Iterator[Command]:
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    line = block.line + parts[0].count("\n")
    for part in parts[1:]:
        text, _, expected = part.partition("\n")
        yield Command(text, expected, line)
        line += part.count("\n")


def matches(expected: str, actual: str) -> bool:
    """Whether the output is what the page shows; runs of blanks count as one."""
    pattern = re.escape(squeeze(expected)).replace(re.escape("..."), ".*?")
    # A `...` between blanks may stand for nothing at all.
    pattern = pattern.replace(r"\ .*?\ ", r"\ (?:.*?\ )?")
    return re.fullmatch(pattern, squeeze(actual), re.DOTALL) is not None


# What differs from run to run: a page shows one example of it.
VARIES = [
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "KEY"),
    (re.compile(r"\b[0-9a-f]{8}\b"), "SHORT"),
    (re.compile(r"\b\d+ (s|min|h|d) ago"), "AGE"),
    (re.compile(r"(?<![\w.])[\d.]+ [kMG]?B\b"), "SIZE"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b"), "TIME"),
]


def squeeze(text: str) -> str:
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


class Reader:
    """Somebody who types in what the page says."""

    def __init__(self) -> None:
        self.namespace: dict[str, object] = {"__name__": "__main__"}
        self.loop = asyncio.Runner()
        self.servers: list[subprocess.Popen[str]] = []
        self.kernel: KernelManager | None = None

    def read(self, page: Path) -> None:
        try:
            for block in blocks(page.read_text("utf-8")):
                if block.language == "python":
                    self.python(block)
                elif block.language == "ipython":
                    self.ipython(block)
                elif block.language == "console":
                    for command in commands(block):
                        self.console(command)
        finally:
            if self.kernel is not None:
                self.kernel.shutdown_kernel(now=True)
            for server in self.servers:
                server.terminate()
            for server in self.servers:
                server.wait(60)
            self.loop.close()

    def python(self, block: Block) -> None:
        code = compile(
            "\n" * (block.line - 1) + block.text,
            f"<page, line {block.line}>",
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,  # a reader has no `annotations` from the future
        )
        if code.co_flags & inspect.CO_COROUTINE:
            coroutine = eval(code, self.namespace)
            self.loop.run(coroutine)
        else:
            exec(code, self.namespace)

    def ipython(self, block: Block) -> None:
        from jupyter_client.manager import KernelManager

        if self.kernel is None:
            self.kernel = KernelManager(kernel_name="python3")
            self.kernel.start_kernel()
        client = self.kernel.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            if "os.kill(os.getpid(), 9)" in block.text:
                client.execute(block.text)
                while self.kernel.is_alive():
                    time.sleep(0.05)
                self.kernel = None
                return
            said: list[str] = []
            reply = client.execute_interactive(
                block.text.rstrip(), timeout=60, output_hook=lambda each: said.append(str(each))
            )
        finally:
            client.stop_channels()
        if reply["content"]["status"] != "ok":
            raise WrongPageError(f"line {block.line}: this cell failed:\n{chr(10).join(said)}")

    def console(self, command: Command) -> None:
        if command.word in LEAVE:
            return
        if command.word not in RUN:
            raise WrongPageError(f"line {command.line}: nobody knows how to test `{command.text}`")
        if command.word == "export":  # holds for what follows on the page, as in a shell
            name, _, value = command.text.removeprefix("export ").partition("=")
            os.environ[name] = value
            return
        if command.text.startswith(("holdfast serve", "holdfast mcp --http")):
            self.serve(command)
            return
        done = subprocess.run(
            command.text,
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        fails = bool(re.match(r'error:|\{"error"', command.expected))
        if bool(done.returncode) != fails:
            raise WrongPageError(
                f"line {command.line}: `{command.text}` ended with {done.returncode}"
                f":\n{done.stdout}"
            )
        if command.expected.strip() and not matches(command.expected, done.stdout):
            raise WrongPageError(
                f"line {command.line}: `{command.text}` should print\n{command.expected}\n"
                f"but prints\n{done.stdout}"
            )

    def serve(self, command: Command) -> None:
        """A server stays until the page ends; what it prints at the start is compared."""
        server = subprocess.Popen(
            f"exec {command.text}", shell=True, stdout=subprocess.PIPE, text=True
        )
        self.servers.append(server)
        assert server.stdout is not None
        printed = ""
        until = time.monotonic() + 30
        while not matches(command.expected, printed):
            line = server.stdout.readline()
            if not line or time.monotonic() > until:
                raise WrongPageError(f"line {command.line}: `{command.text}` printed\n{printed}")
            printed += line


if __name__ == "__main__":
    try:
        Reader().read(Path(sys.argv[1]))
    except WrongPageError as wrong:
        sys.exit(str(wrong))
