"""The parser reads a command line as runc does."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import UsageError
from holdfast.oci.command import GLOBAL, SUBCOMMANDS, RuncCommand, Syntax
from holdfast.runtime import engines

# The line, then subcommand, container, namespace, and some options.
LINES: list[tuple[str, str, str | None, str, dict[str, str | bool]]] = [
    (
        "--root R --log L --log-format json create --bundle B --pid-file P tc",
        "create",
        "tc",
        "R",
        {"root": "R", "log": "L", "log-format": "json", "bundle": "B", "pid-file": "P"},
    ),
    ("--root=/r/ns create --bundle=B tc", "create", "tc", "ns", {"--bundle": "B"}),
    ("--root /r/ns/ start tc", "start", "tc", "ns", {"root": "/r/ns/"}),
    ("-root /r/ns start tc", "start", "tc", "ns", {"root": "/r/ns"}),
    ("--rootless auto --root /R create -b B tc", "create", "tc", "R", {"rootless": "auto"}),
    ("checkpoint --manage-cgroups-mode soft tc", "checkpoint", "tc", "default", {}),
    ("checkpoint --page-server H:1 tc", "checkpoint", "tc", "default", {"page-server": "H:1"}),
    ("checkpoint --status-fd 5 tc", "checkpoint", "tc", "default", {"status-fd": "5"}),
    (
        "checkpoint --empty-ns network --leave-running tc",
        "checkpoint",
        "tc",
        "default",
        {"empty-ns": "network", "leave-running": True},
    ),
    ("delete -f tc", "delete", "tc", "default", {"force": True, "-f": True}),
    ("delete tc --force", "delete", "tc", "default", {"force": True}),
    (
        "restore --detach --image-path I -no-subreaper tc",
        "restore",
        "tc",
        "default",
        {"no-subreaper": True, "image-path": "I"},
    ),
    ("create --bundle B -- tc", "create", "tc", "default", {"bundle": "B"}),
    ("--debug=true start tc", "start", "tc", "default", {"debug": True}),
    ("--debug=false start tc", "start", "tc", "default", {"debug": False}),
    ("--systemd-cgroup --root /r/a start tc", "start", "tc", "a", {"systemd-cgroup": True}),
    ("--root /r/a --systemd-cgroup start tc", "start", "tc", "a", {"systemd-cgroup": True}),
    ("run -b B -d tc", "run", "tc", "default", {"bundle": "B", "detach": True}),
    ("create --preserve-fds 3 tc", "create", "tc", "default", {"preserve-fds": "3"}),
    ("create --console-socket S tc", "create", "tc", "default", {"console-socket": "S"}),
    ("kill --all tc 9", "kill", "tc", "default", {"all": True}),
    ("kill tc SIGTERM", "kill", "tc", "default", {}),
    ("list -f json", "list", None, "default", {"format": "json"}),
    ("features", "features", None, "default", {}),
    ("checkpoint --help", "checkpoint", None, "default", {"help": True}),
    ("exec -t --user 1 tc sh -c x", "exec", "tc", "default", {"tty": True, "user": "1"}),
    ("--root /run/runc start tc", "start", "tc", "default", {}),
    ("--root //r//x/../ns start tc", "start", "tc", "ns", {}),
]


@pytest.mark.parametrize("line", LINES, ids=[each[0] for each in LINES])
def test_a_line_is_read(line: tuple[str, str, str | None, str, dict[str, str | bool]]) -> None:
    text, subcommand, container, namespace, options = line
    command = RuncCommand.parse(text.split())
    assert (command.subcommand, command.container_id, command.namespace) == (
        subcommand,
        container,
        namespace,
    )
    assert {name: command.options[name] for name in options} == options
    assert not command.doubts


def test_nothing_and_no_subcommand_are_errors_in_words() -> None:
    with pytest.raises(UsageError, match="Empty command"):
        RuncCommand.parse([])
    for argv in (["--version"], ["--root", "/r"], ["--debug", "--"]):
        with pytest.raises(UsageError, match="No subcommand found"):
            RuncCommand.parse(argv)


@pytest.mark.parametrize(
    "line",
    [
        "start --new x tc",
        "checkpoint --later=1 tc",
        "frobnicate tc",
        "create --bundle",
        "pause -x tc",
    ],
)
def test_what_is_not_known_is_doubted_and_no_word_is_taken_for_the_id(line: str) -> None:
    command = RuncCommand.parse(line.split())
    assert command.doubts
    assert command.container_id is None


def _documented(*subcommand: str) -> Syntax:
    """The options of runc's own help, which writes `value` behind those that take one."""
    runc = engines.find("runc")
    assert runc is not None, "runc is not installed"
    told = subprocess.run(
        [runc.program, *subcommand, "--help"], capture_output=True, text=True, check=True
    ).stdout
    values, switches, short = set(), set(), {}
    for line in told.splitlines():
        found = re.match(r"   --([\w-]+)( value)?(?:, -(\w)( value)?)?  ", line)
        if found:
            (values if found[2] else switches).add(found[1])
            if found[3]:
                short[found[3]] = found[1]
    return Syntax(frozenset(values), frozenset(switches), short)


@pytest.mark.parametrize("subcommand", [None, *SUBCOMMANDS])
def test_options_take_values_where_this_runc_says_so(subcommand: str | None) -> None:
    ours = SUBCOMMANDS[subcommand] if subcommand else GLOBAL
    theirs = _documented(*([subcommand] if subcommand else []))
    assert theirs.values <= ours.values
    assert theirs.switches <= ours.switches
    assert theirs.short.items() <= ours.short.items()


NAMES = st.from_regex(r"[a-z][a-z0-9_.+]{0,8}", fullmatch=True)


@st.composite
def lines(draw: st.DrawFn) -> tuple[list[str], str, str, dict[str, str | bool]]:
    """A command line in one of the ways in which it may be written, and what it means."""
    subcommand = draw(st.sampled_from(["create", "checkpoint", "restore", "delete", "start"]))
    container = draw(NAMES)
    meaning: dict[str, str | bool] = {}

    def options(syntax: Syntax) -> list[str]:
        words: list[str] = []
        available = sorted(syntax.values | syntax.switches)
        for name in draw(st.lists(st.sampled_from(available), max_size=3, unique=True)):
            dashes = draw(st.sampled_from(["-", "--"]))
            if name in syntax.values:
                value = draw(NAMES)
                joined = draw(st.booleans())
                words += [f"{dashes}{name}={value}"] if joined else [f"{dashes}{name}", value]
                meaning[name] = value
            else:
                words += [f"{dashes}{name}"]
                meaning[name] = True
        return words

    before, after = options(GLOBAL), options(SUBCOMMANDS[subcommand])
    behind = draw(st.booleans())
    separator = ["--"] if not behind and draw(st.booleans()) else []
    tail = [container, *after] if behind else [*after, *separator, container]
    return [*before, subcommand, *tail], subcommand, container, meaning


@given(lines())
def test_any_way_of_writing_is_read(
    line: tuple[list[str], str, str, dict[str, str | bool]],
) -> None:
    argv, subcommand, container, meaning = line
    command = RuncCommand.parse(argv)
    assert not command.doubts
    assert (command.subcommand, command.container_id) == (subcommand, container)
    assert dict(command.options) == meaning


@given(lines())
def test_a_turned_line_keeps_every_word_and_its_own_options_win(
    line: tuple[list[str], str, str, dict[str, str | bool]],
) -> None:
    argv, subcommand, container, meaning = line
    command = RuncCommand.parse(argv)
    if subcommand not in ("checkpoint", "restore"):
        return
    turned = RuncCommand.parse(command.turned(subcommand, extra=["--image-path", "/ours"]))
    assert turned.container_id == container
    assert dict(turned.options) == {**meaning, "image-path": "/ours"}
    words = list(turned.argv)
    words.remove("/ours")
    assert sorted(words) == sorted([*argv, "--image-path"])


@given(st.lists(st.text(max_size=8), max_size=6))
def test_nothing_makes_it_crash(argv: list[str]) -> None:
    try:
        command = RuncCommand.parse(argv)
    except UsageError:
        return
    assert command.argv == tuple(argv)


def test_options_for_a_command_of_our_own() -> None:
    line = "--debug --root=/r/n --log L --log-format json --systemd-cgroup -- kill tc 9"
    assert RuncCommand.parse(line.split()).globals == ("--root=/r/n", "--systemd-cgroup")


def test_a_create_becomes_a_restore() -> None:
    line = "--root /r/n create --bundle B --no-new-keyring --preserve-fds=0 --pid-file P tc"
    turned = RuncCommand.parse(line.split()).turned(
        "restore", without=frozenset(["no-new-keyring", "preserve-fds"]), extra=["--detach"]
    )
    assert " ".join(turned) == "--root /r/n restore --bundle B --pid-file P --detach tc"
