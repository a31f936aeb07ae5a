"""runc's command line, read as runc reads it and never written anew.

One rule: a word's meaning comes from a table of runc's own options, not from a guess. Whatever
the tables do not know leaves `doubts`, and a command with doubts goes to runc as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.model.errors import UsageError
from holdfast.oci.constants import DEFAULT_NAMESPACE, RUNC_ROOT

Value = str | bool


@dataclass(frozen=True, slots=True)
class Syntax:
    """Which options a (sub)command has. `mixed`: options may follow the arguments."""

    values: frozenset[str]
    switches: frozenset[str]
    short: Mapping[str, str]
    mixed: bool = True


def _syntax(values: str = "", switches: str = "", *, mixed: bool = True, **short: str) -> Syntax:
    names = {letter: name.replace("_", "-") for letter, name in short.items()}
    return Syntax(
        frozenset(values.split()),
        frozenset([*switches.split(), "help"]),
        {"h": "help", **names},
        mixed,
    )


GLOBAL = _syntax(
    "log log-format root criu rootless", "debug systemd-cgroup version", mixed=False, v="version"
)
_CREATE = "bundle console-socket pid-file preserve-fds pidfd-socket"
_CRIU = "image-path work-path manage-cgroups-mode empty-ns"
_CRIU_SWITCHES = "tcp-established ext-unix-sk shell-job lazy-pages file-locks auto-dedup"
_KEYS = "no-pivot no-new-keyring"
SUBCOMMANDS: Mapping[str, Syntax] = {
    "create": _syntax(_CREATE, _KEYS, b="bundle"),
    "run": _syntax(_CREATE, f"{_KEYS} detach keep no-subreaper", b="bundle", d="detach"),
    "start": _syntax(),
    "pause": _syntax(),
    "resume": _syntax(),
    "state": _syntax(),
    "delete": _syntax("", "force", f="force"),
    "kill": _syntax("", "all", a="all"),
    "checkpoint": _syntax(
        f"{_CRIU} parent-path status-fd page-server", f"{_CRIU_SWITCHES} leave-running pre-dump"
    ),
    "restore": _syntax(
        f"{_CRIU} console-socket bundle pid-file lsm-profile lsm-mount-context",
        f"{_CRIU_SWITCHES} detach no-subreaper no-pivot",
        b="bundle",
        d="detach",
    ),
    "exec": _syntax(
        "console-socket cwd env user additional-gids process pid-file process-label apparmor cap"
        " preserve-fds cgroup pidfd-socket",
        "tty detach no-new-privs ignore-paused",
        mixed=False,
        e="env",
        t="tty",
        u="user",
        g="additional_gids",
        p="process",
        d="detach",
        c="cap",
    ),
    "events": _syntax("interval", "stats"),
    "ps": _syntax("format", mixed=False, f="format"),
    "list": _syntax("format", "quiet", f="format", q="quiet"),
    "spec": _syntax("bundle", "rootless", b="bundle"),
    "features": _syntax(),
    "update": _syntax(
        "resources blkio-weight cpu-period cpu-quota cpu-share cpu-shares cpu-rt-period"
        " cpu-rt-runtime cpu-burst cpu-idle cpuset-cpus cpuset-mems memory memory-reservation"
        " memory-swap pids-limit l3-cache-schema mem-bw-schema",
        r="resources",
    ),
}
_LOGGING = frozenset(["log", "log-format", "debug"])
_NO_CONTAINER = frozenset(["list", "spec", "features"])
_TRUE = frozenset(["1", "t", "T", "true", "TRUE", "True"])
_FALSE = frozenset(["0", "f", "F", "false", "FALSE", "False"])


@dataclass(frozen=True, slots=True)
class Given:
    """One option, and where its words stand in argv."""

    name: str
    value: Value
    places: tuple[int, ...]


class Options(Mapping[str, Value]):
    """Options by name. Any spelling finds one: `bundle`, `--bundle`, `-b`. The last one counts."""

    def __init__(self, given: Sequence[Given], short: Mapping[str, str]) -> None:
        self._values = {each.name: each.value for each in given}
        self._short = short

    def __getitem__(self, name: str) -> Value:
        bare = name.lstrip("-")
        return self._values[self._short.get(bare, bare)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def text(self, name: str) -> str | None:
        """The value of an option that takes one."""
        value = self.get(name)
        return value if isinstance(value, str) else None

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self.get(name) is True


@dataclass(frozen=True, slots=True)
class RuncCommand:
    """One command line of runc, without the program's name."""

    argv: tuple[str, ...]
    subcommand: str
    at: int  # where the subcommand stands
    container_id: str | None
    arguments: tuple[str, ...]  # what follows the subcommand and is no option
    options: Options
    before: tuple[Given, ...]  # the global options, before the subcommand
    given: tuple[Given, ...]  # the subcommand's own options
    doubts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, argv: Sequence[str]) -> RuncCommand:
        """Read a command line; raises UsageError when it is empty or names no subcommand."""
        words = tuple(argv)
        if not words:
            raise UsageError("Empty command", hint="holdfast-runc takes runc's own arguments")
        doubts: list[str] = []
        before, rest = _flags(words, list(range(len(words))), GLOBAL, doubts)
        if not rest:
            raise UsageError("No subcommand found", hint="see runc --help")
        at = rest[0]
        subcommand = words[at]
        syntax = SUBCOMMANDS.get(subcommand)
        after: list[Given] = []
        if syntax is None:
            doubts.append(f"unknown subcommand {subcommand!r}")
            arguments = rest[1:]
        else:
            order = _reordered(words, rest[1:], syntax) if syntax.mixed else rest[1:]
            after, arguments = _flags(words, order, syntax, doubts)
        found = tuple(words[i] for i in arguments)
        # Behind an option that is not known, what looks like the id may be that option's value.
        has_container = bool(found) and not doubts and subcommand not in _NO_CONTAINER
        short = {**GLOBAL.short, **(syntax.short if syntax else {})}
        return cls(
            argv=words,
            subcommand=subcommand,
            at=at,
            container_id=found[0] if has_container else None,
            arguments=found,
            options=Options([*before, *after], short),
            before=tuple(before),
            given=tuple(after),
            doubts=tuple(doubts),
        )

    @property
    def root(self) -> str:
        """Where runc keeps the container's state: absolute and normalised."""
        return normal_root(self.options.text("root") or RUNC_ROOT)

    @property
    def namespace(self) -> str:
        """The engine's namespace, which it puts last into `--root`."""
        root = self.root
        return DEFAULT_NAMESPACE if root in (RUNC_ROOT, "/") else root.rsplit("/", 1)[1]

    @property
    def bundle(self) -> str:
        """The bundle's folder; runc's default is the working directory."""
        return os.path.abspath(self.options.text("bundle") or ".")

    @property
    def globals(self) -> tuple[str, ...]:
        """The global options to put before a command of our own about the same container. Not
        those about logs: what we try and expect to fail is not for the caller to read."""
        kept = (each for each in self.before if each.name not in _LOGGING)
        return tuple(self.argv[place] for each in kept for place in each.places)

    def turned(
        self, subcommand: str, *, without: frozenset[str] = frozenset(), extra: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """The same argv with another subcommand, less some options and with others behind the
        last one, where they win over what came before."""
        dropped = {place for each in self.given if each.name in without for place in each.places}
        place = max([self.at, *(place for each in self.given for place in each.places)]) + 1
        head = [word for i, word in enumerate(self.argv[:place]) if i not in dropped]
        head[self.at] = subcommand
        return (*head, *extra, *self.argv[place:])


def normal_root(root: str) -> str:
    """A root as one and the same text, however it was written. Links are not followed: engines
    write the same root in the same way, and runc itself would follow them only much later."""
    path = os.path.normpath(os.path.abspath(root))
    return "/" + path.lstrip("/")  # POSIX lets `//x` be something else


def _flags(
    words: Sequence[str], order: Sequence[int], syntax: Syntax, doubts: list[str]
) -> tuple[list[Given], list[int]]:
    """Read options up to the first argument or `--`, as Go's flag package does; gives the options
    and the positions of all that follows."""
    found: list[Given] = []
    at = 0
    while at < len(order):
        index = order[at]
        word = words[index]
        if word == "--":
            return found, list(order[at + 1 :])
        if not word.startswith("-") or word == "-":
            break
        at += 1
        name, equals, value = word[2 if word.startswith("--") else 1 :].partition("=")
        name = syntax.short.get(name, name)
        if name in syntax.values:
            places = [index]
            if not equals:
                if at >= len(order):
                    doubts.append(f"{word} has no value")
                    break
                places.append(order[at])
                value = words[order[at]]
                at += 1
            found.append(Given(name, value, tuple(places)))
        elif name in syntax.switches and (not equals or value in _TRUE or value in _FALSE):
            found.append(Given(name, not equals or value in _TRUE, (index,)))
        else:
            doubts.append(f"unknown option {word!r}")
    return found, list(order[at:])


def _reordered(words: Sequence[str], order: Sequence[int], syntax: Syntax) -> list[int]:
    """Options first, arguments after them: runc lets options follow the container's id. A word
    that may be an option's value stays with it; nothing behind `--` moves."""
    options: list[int] = []
    others: list[int] = []
    may_be_value = False
    for at, index in enumerate(order):
        word = words[index]
        if word == "--":
            others.extend(order[at:])
            break
        if may_be_value and not word.startswith("-"):
            may_be_value = False
            options.append(index)
        elif _is_option(word, syntax):
            options.append(index)
            may_be_value = "=" not in word
        else:
            others.append(index)
    return [*options, *others]


def _is_option(word: str, syntax: Syntax) -> bool:
    if not word.startswith("-") or word == "-":
        return False
    name = word.lstrip("-").partition("=")[0]
    return syntax.short.get(name, name) in syntax.values | syntax.switches
