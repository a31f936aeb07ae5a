"""Every `holdfast` in `sh` blocks is parsed, so that a command, an option or a value that is gone
is noticed, also where a block cannot be run (`test_shell_runs.py`). So is every target of `make`,
in the text around them as well."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.docs.page import blocks

from holdfast.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
ENDS = {"&&", "||", "|", ";", "&", "(", ")"}
ASIDE = {"sudo", "exec", "time", "nohup", "env"}


def commands(text: str, program: str = "holdfast") -> Iterator[list[str]]:
    """The words of each `holdfast` in a piece of shell, or of another program."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True  # an address is one word
        words: list[str] = []
        skip = False
        for word in [*lexer, ";"]:
            if skip:  # where output goes, or input comes from
                skip = False
            elif set(word) <= {"<", ">", "&"} and set(word) & {"<", ">"}:
                skip = True
            elif word in ENDS:
                yield from found(words, program)
                words = []
            else:
                words.append(word)


def found(words: list[str], program: str) -> Iterator[list[str]]:
    while words and (words[0] in ASIDE or re.match(r"\w+=", words[0])):
        words = words[1:]
    if words and words[0].rpartition("/")[2] == program:
        yield words[1:]


def parse(words: list[str]) -> None:
    """What click does before it runs anything. Raises a ClickException."""
    command: click.Command = cli
    context = cli.make_context("holdfast", list(words))
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, child, rest = command.resolve_command(context, rest)
        assert child is not None
        command, context = child, child.make_context(name, rest, parent=context)


SHOWN = [
    pytest.param(words, id=f"{page.relative_to(ROOT)}: {' '.join(words)}")
    for page in PAGES
    for block in blocks(page.read_text("utf-8"))
    if block.language in ("sh", "bash", "shell")
    for words in commands(block.text)
]


def test_there_are_some() -> None:
    assert len(SHOWN) >= 20


@pytest.mark.parametrize(
    "line", ["list --no-such-option", "no-such-command", "serve --engine steam", "key export >f"]
)
def test_a_wrong_one_is_noticed(line: str) -> None:
    (words,) = commands(f"make && sudo HOME=/ .venv/bin/holdfast {line} | cat  # as root")
    with pytest.raises(click.UsageError):
        parse(words)


@pytest.mark.parametrize("words", SHOWN)
def test_it_would_be_understood(words: list[str]) -> None:
    parse(words)


# ---- make ----------------------------------------------------------------------------------


def targets(words: list[str]) -> set[str]:
    """What `make` is asked for."""
    return {word for word in words if not word.startswith("-") and "=" not in word}


def asked_of_make(text: str) -> Iterator[list[str]]:
    """In blocks of shell, at the prompts of those that show a terminal, and in code in the text."""
    for block in blocks(text):
        if block.language in ("sh", "bash", "shell"):
            yield from commands(block.text, "make")
        elif block.language == "console":
            for line in re.findall(r"^[$#] (.*)", block.text, re.MULTILINE):
                yield from commands(line, "make")
    for code in re.findall(r"`((?:\w+=\S+ )*make(?: [^`]+)?)`", text):
        yield from commands(code, "make")


MADE = [
    pytest.param(words, id=f"{page.relative_to(ROOT)}: make {' '.join(words)}")
    for page in PAGES
    for words in asked_of_make(page.read_text("utf-8"))
]


def test_targets_are_found() -> None:
    text = "Type `A=b make no-such ARGS='-x y'`:\n\n```sh\ncd x && make -j2 one two | cat\n```\n"
    assert [targets(words) for words in asked_of_make(text)] == [{"one", "two"}, {"no-such"}]
    assert len(MADE) >= 20


@pytest.mark.parametrize("words", MADE)
def test_make_has_the_target(words: list[str]) -> None:
    declared = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert declared is not None
    assert targets(words) <= set(declared.group(1).split())
