"""What an execution means as a program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.errors import BadInput
from holdfast.protocol.sandbox_messages import ExecuteRequest
from holdfast.protocol.sandbox_messages import Limits as Asked
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.languages import Plan, plan
from holdfast.sandbox.roots import Root

ROOT = Root(
    name="r",
    lower=Path("/"),
    mounts=(),
    agent=("agent",),
    environ={},
    path="/bin",
    python=("/py",),
    digest="d",
)


def planned(**fields: object) -> Plan:
    return plan(ExecuteRequest(**fields), ROOT, Limits(), "x")  # type: ignore[arg-type]


def test_languages_and_programs() -> None:
    assert planned(language="python", code="1").start.argv == ["/py", "-c", "1"]
    assert planned(language="bash", code="ls").start.argv == ["bash", "-c", "ls"]
    assert planned(argv=("a", "b")).start.argv == ["a", "b"]


def test_long_code_goes_through_a_file() -> None:
    code = "é" * 60_000
    long = planned(language="python", code=code)
    assert long.script == ("/tmp/.execution-x", code.encode())
    assert long.start.argv == ["/py", "/tmp/.execution-x"]


def test_environment_folder_and_terminal() -> None:
    start = planned(argv=("a",), env={"HOME": "/h", "A": "b"}, cwd="/w", pty=True, rows=3).start
    assert start.env["HOME"] == "/h"
    assert (start.env["A"], start.env["PATH"], start.cwd, start.size) == (
        "b",
        "/bin",
        "/w",
        (3, 80),
    )


def test_text_is_utf_8_and_a_language_that_is_given_is_not_outdone() -> None:
    plain = replace(ROOT, packages=("/p",))

    def told(root: Root, **env: str) -> dict[str, str]:
        found = plan(ExecuteRequest(argv=("a",), env=env), root, Limits(), "x").start.env
        return {name: value for name, value in found.items() if name.startswith(("LC_", "LANG"))}

    assert told(plain) == {"LC_CTYPE": "C.UTF-8"}
    assert told(plain, LC_CTYPE="C") == {"LC_CTYPE": "C"}
    assert told(plain, LANG="de_DE") == {"LANG": "de_DE"}
    assert told(ROOT) == {"LANG": "C.UTF-8"}


@pytest.mark.parametrize(
    "fields",
    [
        {"argv": ("a\0b",)},
        {"language": "bash", "code": "a\0"},
        {"argv": ("a",), "env": {"A=B": "c"}},
        {"argv": ("a",), "cwd": "\0"},
    ],
)
def test_what_no_kernel_takes(fields: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        planned(**fields)


def test_limits_only_become_less() -> None:
    ours = Limits(memory_bytes=100 << 20, cpus=1.0)
    asked = ours.capped(Asked(memory_bytes=50 << 20, cpus=8.0))
    assert (asked.memory_bytes, asked.cpus, asked.processes) == (50 << 20, 1.0, ours.processes)


def test_a_copy_of_an_interpreter_would_do_for_code_alone() -> None:
    assert planned(language="python", code="1").start.warm
    assert not planned(language="bash", code="ls").start.warm
    assert not planned(argv=("/py", "-c", "1")).start.warm
    assert not planned(language="python", code="1", pty=True).start.warm
    assert not planned(language="python", code="#" * 200_000).start.warm
    asked = ExecuteRequest(language="python", code="1")
    assert not plan(asked, ROOT, Limits(), "x", offline=True).start.warm
    session = ExecuteRequest(language="python", code="1", session=True)
    assert not plan(session, replace(ROOT, packages=("/p",)), Limits(), "x").start.warm
