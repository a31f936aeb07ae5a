"""Registering `holdfast-runc` with the engines of a node: by their configuration, and undone.

One rule: runc itself is never touched. `plan_install` and `plan_uninstall` give the files as they
would be; `carry_out` writes them. What was there before is kept in `installed.json`, so that
uninstalling gives back the same bytes, or takes out only our lines where somebody went on editing.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from holdfast.model.errors import BadInput, NotFound, from_os_error
from holdfast.oci.registration import ENGINES, FILES, EngineName, register, without_us
from holdfast.oci.trampoline import Trampoline

PROGRAM = "usr/local/bin/holdfast-runc"
SCRIPT = "usr/local/libexec/holdfast-runc"  # where the program is a quick way past it
POLICY = "etc/holdfast/policy.toml"
RECORD = "etc/holdfast/installed.json"
UNIT = "etc/systemd/system/holdfast-watch.service"
_RESTART: dict[EngineName, str] = {
    "containerd": "systemctl restart containerd",
    "docker": "systemctl restart docker",
    "podman": "",
}
_UNIT_TEXT = """\
[Unit]
Description=Saves containers before this machine goes away (Holdfast)
# Started after the engines, so stopped before them, while containers can still be frozen.
After=containerd.service docker.service local-fs.target network-online.target
Wants=network-online.target

[Service]
# To ask the cloud for a reclaim notice, too: systemctl edit holdfast-watch, and add --command.
ExecStart={python} -m holdfast container watch --deadline 90
# SIGTERM is the word that it is time. Only the watcher itself gets it, and then has this long.
KillMode=mixed
TimeoutStopSec=120
# Not saved in full (9) is told by the log; starting the watcher again would not help.
Restart=on-failure
RestartPreventExitStatus=9

[Install]
WantedBy=multi-user.target
"""
_POLICY_TEXT = """\
# What Holdfast may do with the containers of this node. Its keys: docs/guides/containers.md.
# mode = "local"
# checkpoint_path = "/var/lib/holdfast/checkpoints"
"""


@dataclass(frozen=True, slots=True)
class Change:
    """One file, before and after; None is no file."""

    path: Path
    before: bytes | None
    after: bytes | None
    mode: int = 0o644

    @property
    def verb(self) -> str:
        if self.before == self.after:
            return "leave"
        if self.after is None:
            return "remove"
        return "write" if self.before is None else "change"


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes of an installation or of its undoing, and what to do afterwards."""

    changes: tuple[Change, ...]
    engines: tuple[EngineName, ...]
    notes: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()  # that go, unless somebody else put something there


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was before, and as we left it; base64."""

    path: str
    before: str | None
    after: str


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """`installed.json`."""

    engines: tuple[EngineName, ...]
    files: tuple[Kept, ...]
    folders: tuple[str, ...] = ()  # that were not there before


def present(root: Path) -> tuple[EngineName, ...]:
    """The engines that this root has a configuration folder or a program of."""
    programs = {"containerd": "containerd", "docker": "dockerd", "podman": "podman"}
    places = ("usr/bin", "usr/sbin", "usr/local/bin", "bin")
    return tuple(
        name
        for name in ENGINES
        if (root / FILES[name]).exists()
        or any((root / place / programs[name]).exists() for place in places)
    )


def plan_install(
    root: Path,
    engines: Sequence[EngineName],
    trampoline: Trampoline,
    *,
    watch: bool = False,
) -> Plan:
    """The changes that register the runtime with these engines; raises BadInput, Unsupported."""
    if not engines:
        raise NotFound(
            "no engine was found to register with",
            hint=f"name one: --engine {' or '.join(ENGINES)}",
        )
    program = "/" + PROGRAM
    changes = [
        *_programs(root, trampoline),
        _change(root / POLICY, lambda text: _POLICY_TEXT if text is None else text),
    ]
    changes += [
        _change(root / FILES[engine], partial(register, engine, program)) for engine in engines
    ]
    if watch:
        changes.append(_change(root / UNIT, lambda _: _UNIT_TEXT.format(python=sys.executable)))
    known = _read_record(root)
    folders = {*(known.folders if known else ()), *_missing_folders(root, changes)}
    kept = {each.path: each for each in known.files} if known else {}
    for each in changes:
        name = str(each.path.relative_to(root))
        kept[name] = _kept(name, each, kept.get(name))
    both = tuple(n for n in ENGINES if n in engines or (known and n in known.engines))
    record = Installed(engines=both, files=tuple(kept.values()), folders=tuple(sorted(folders)))
    data = msgspec.json.format(msgspec.json.encode(record), indent=1)
    changes.append(Change(root / RECORD, _read(root / RECORD), data, mode=0o600))
    restarts = [_RESTART[name] for name in engines if _RESTART[name]]
    if watch:
        restarts += ["systemctl daemon-reload", "systemctl enable --now holdfast-watch"]
    return Plan(tuple(changes), tuple(engines), tuple(restarts))


def plan_uninstall(root: Path) -> Plan:
    """The changes that undo every installation; raises NotFound when there is none."""
    known = _read_record(root)
    if known is None:
        raise NotFound(
            "Holdfast is not installed here", hint="to do so: holdfast container install"
        )
    changes, notes = [], []
    for each in known.files:
        path = root / each.path
        now = _read(path)
        if now == _unpack(each.after):
            after = _unpack(each.before)
        elif each.path in (PROGRAM, SCRIPT, UNIT):
            after = _unpack(each.before)  # it is ours whatever it says now
        else:
            after, note = without_us(each.path, now)
            if note:
                notes.append(note)
        changes.append(Change(path, now, after, mode=path.stat().st_mode & 0o777 if now else 0o644))
    changes.append(Change(root / RECORD, _read(root / RECORD), None))
    restarts = [_RESTART[name] for name in known.engines if _RESTART[name]]
    if any(each.path == UNIT for each in known.files):
        restarts = ["systemctl disable --now holdfast-watch", *restarts]
    empty = tuple(root / each for each in reversed(known.folders))
    return Plan(tuple(changes), known.engines, (*notes, *restarts), empty)


def carry_out(plan: Plan) -> None:
    """Write every file of a plan, each whole or not at all; raises Denied and the like."""
    for change in plan.changes:
        if change.verb == "leave":
            continue
        try:
            if change.after is None:
                change.path.unlink(missing_ok=True)
                continue
            change.path.parent.mkdir(parents=True, exist_ok=True)
            draft = change.path.with_name(f".{change.path.name}.holdfast")
            draft.write_bytes(change.after)
            draft.chmod(change.mode)
            draft.rename(change.path)
        except OSError as error:
            raise from_os_error(error, "changing the node's configuration") from error
    for folder in plan.folders:
        with suppress(OSError):  # it is gone, or not ours alone any more
            folder.rmdir()


def _programs(root: Path, trampoline: Trampoline) -> list[Change]:
    script = trampoline.script.encode()
    if trampoline.quick is None:
        return [Change(root / PROGRAM, _read(root / PROGRAM), script, 0o755)]
    return [
        Change(root / SCRIPT, _read(root / SCRIPT), script, 0o755),
        Change(root / PROGRAM, _read(root / PROGRAM), trampoline.quick, 0o755),
    ]


def _kept(name: str, change: Change, last: Kept | None) -> Kept:
    """What to remember of a file. What somebody edited since the last installation stays told apart
    from what we wrote, or uninstalling would take it for ours and undo it."""
    after = _pack(change.after) or ""
    if last is None:
        return Kept(path=name, before=_pack(change.before), after=after)
    edited = _pack(change.before) != last.after
    return Kept(path=name, before=last.before, after=last.after if edited else after)


def _missing_folders(root: Path, changes: Sequence[Change]) -> set[str]:
    """The folders that these changes bring with them."""
    paths = [*(each.path for each in changes), root / RECORD]
    above = {folder for path in paths for folder in path.parents if root in folder.parents}
    return {str(folder.relative_to(root)) for folder in above if not folder.exists()}


# -- files


def _change(path: Path, make: Callable[[str | None], str], mode: int = 0o644) -> Change:
    before = _read(path)
    try:
        text = None if before is None else before.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text") from None
    kept = os.stat(path).st_mode & 0o777 if before is not None and mode == 0o644 else mode
    return Change(path, before, make(text).encode(), kept)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os_error(error, "reading the node's configuration") from error


def _read_record(root: Path) -> Installed | None:
    data = _read(root / RECORD)
    return None if data is None else msgspec.json.decode(data, type=Installed)


def _pack(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _unpack(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
