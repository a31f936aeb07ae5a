"""Registering `holdfast-runc` with the engines of a node: by their configuration, and undone.

One rule: runc itself is never touched. `plan_install` and `plan_uninstall` give the files as they
would be; `carry_out` writes them. What was there before is kept in `installed.json`, so that
uninstalling gives back the same bytes, or takes out only our lines where somebody went on editing.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.model.errors import BadInput, NotFound, Unsupported, from_os_error

EngineName = Literal["containerd", "docker", "podman"]
ENGINES: tuple[EngineName, ...] = ("containerd", "docker", "podman")
RUNTIME = "holdfast"
PROGRAM = "usr/local/bin/holdfast-runc"
POLICY = "etc/holdfast/policy.toml"
RECORD = "etc/holdfast/installed.json"
UNIT = "etc/systemd/system/holdfast-watch.service"
_FILES: dict[EngineName, str] = {
    "containerd": "etc/containerd/config.toml",
    "docker": "etc/docker/daemon.json",
    "podman": "etc/containers/containers.conf.d/holdfast.conf",
}
_RESTART: dict[EngineName, str] = {
    "containerd": "systemctl restart containerd",
    "docker": "systemctl restart docker",
    "podman": "",
}
_BEGIN, _END = "# >>> holdfast", "# <<< holdfast"
_PLUGINS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
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
# What Holdfast may do with the containers of this node. The keys are in docs/guides/containers.md.
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


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was before, and as we left it; base64."""

    path: str
    before: str | None
    after: str


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """`installed.json`."""

    engines: tuple[EngineName, ...]
    files: tuple[Kept, ...]


def present(root: Path) -> tuple[EngineName, ...]:
    """The engines that this root has a configuration folder or a program of."""
    programs = {"containerd": "containerd", "docker": "dockerd", "podman": "podman"}
    places = ("usr/bin", "usr/sbin", "usr/local/bin", "bin")
    return tuple(
        name
        for name in ENGINES
        if (root / _FILES[name]).exists()
        or any((root / place / programs[name]).exists() for place in places)
    )


def plan_install(
    root: Path,
    engines: Sequence[EngineName],
    trampoline: str,
    runc: str,
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
        _change(root / PROGRAM, lambda _: _bake(trampoline, sys.executable, runc), mode=0o755),
        _change(root / POLICY, lambda text: _POLICY_TEXT if text is None else text),
    ]
    changes += [
        _change(root / _FILES[engine], partial(_register, engine, program)) for engine in engines
    ]
    if watch:
        changes.append(_change(root / UNIT, lambda _: _UNIT_TEXT.format(python=sys.executable)))
    known = _read_record(root)
    kept = {each.path: each for each in known.files} if known else {}
    for each in changes:
        name = str(each.path.relative_to(root))
        before = kept[name].before if name in kept else _pack(each.before)
        kept[name] = Kept(path=name, before=before, after=_pack(each.after) or "")
    both = tuple(n for n in ENGINES if n in engines or (known and n in known.engines))
    record = msgspec.json.format(
        msgspec.json.encode(Installed(engines=both, files=tuple(kept.values()))), indent=1
    )
    old = _read(root / RECORD)
    changes.append(Change(root / RECORD, old, record, mode=0o600))
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
        else:
            after, note = _without_us(each.path, now)
            if note:
                notes.append(note)
        changes.append(Change(path, now, after, mode=path.stat().st_mode & 0o777 if now else 0o644))
    changes.append(Change(root / RECORD, _read(root / RECORD), None))
    restarts = [_RESTART[name] for name in known.engines if _RESTART[name]]
    if any(each.path == UNIT for each in known.files):
        restarts = ["systemctl disable --now holdfast-watch", *restarts]
    return Plan(tuple(changes), known.engines, (*notes, *restarts))


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


# -- what each engine wants to read


def _register(name: EngineName, program: str, text: str | None) -> str:
    match name:
        case "containerd":
            return _register_containerd(text, program)
        case "docker":
            return _register_docker(text, program)
        case "podman":
            return f'[engine.runtimes]\n{RUNTIME} = ["{program}"]\n'


def _register_containerd(text: str | None, program: str) -> str:
    """A block of our own at the end of the file. Not an import: some versions of containerd let
    an imported file replace the whole section that it adds to."""
    base = _cut_block(text) if text is not None else "version = 2\n"
    settings = _toml(base)
    version = settings.get("version", 1)
    plugin = _PLUGINS.get(version) if isinstance(version, int) else None
    if plugin is None:
        raise Unsupported(
            f"containerd's configuration has version {version}",
            hint="`containerd config migrate` makes a newer one",
        )
    table = f'plugins."{plugin}".containerd.runtimes.{RUNTIME}'
    block = [
        f"{_BEGIN}: written by `holdfast container install`",
        f"[{table}]",
        '  runtime_type = "io.containerd.runc.v2"',
        '  pod_annotations = ["holdfast.*"]',
        '  container_annotations = ["holdfast.*"]',
        f"  [{table}.options]",
        f'    BinaryName = "{program}"',
        # Pods under both runtimes are in the same tree of cgroups, so both need the same driver.
        *(["    SystemdCgroup = true"] if _systemd_cgroup(settings, plugin) else []),
        _END,
    ]
    separator = "" if base.endswith("\n") or not base else "\n"
    changed = f"{base}{separator}" + "\n".join(block) + "\n"
    _toml(changed)  # a runtime that somebody else called so, or runtimes in one line
    return changed


def _systemd_cgroup(settings: object, plugin: str) -> bool:
    """Whether containers under plain runc are put into cgroups by systemd."""
    at = settings
    for name in ("plugins", plugin, "containerd", "runtimes", "runc", "options", "SystemdCgroup"):
        at = at.get(name) if isinstance(at, dict) else None
    return at is True


def _register_docker(text: str | None, program: str) -> str:
    try:
        settings = json.loads(text) if text and text.strip() else {}
    except ValueError as error:
        raise BadInput(f"docker's daemon.json is not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise BadInput("docker's daemon.json is not an object")
    runtimes = {**settings.get("runtimes", {}), RUNTIME: {"path": program}}
    return json.dumps({**settings, "runtimes": runtimes}, indent=4) + "\n"


def _without_us(path: str, now: bytes | None) -> tuple[bytes | None, str]:
    """A file that somebody changed after us, without what is ours in it, and a word about it."""
    if now is None:
        return None, ""
    try:
        text = now.decode()
        if path == _FILES["containerd"]:
            return _cut_block(text).encode(), f"/{path} was edited since; only our block goes"
        if path == _FILES["docker"]:
            settings = json.loads(text)
            settings.get("runtimes", {}).pop(RUNTIME, None)
            if not settings.get("runtimes", True):
                del settings["runtimes"]
            return (json.dumps(settings, indent=4) + "\n").encode(), (
                f"/{path} was edited since; only our runtime goes"
            )
    except ValueError:
        return now, f"/{path} cannot be read any more; take `{RUNTIME}` out of it by hand"
    if path in (PROGRAM, UNIT, _FILES["podman"]):
        return None, ""  # it is ours whatever it says now
    return now, f"/{path} was edited since and stays"


def _cut_block(text: str) -> str:
    """A text without our block."""
    lines = text.splitlines(keepends=True)
    kept, inside = [], False
    for line in lines:
        inside = inside or line.startswith(_BEGIN)
        if not inside:
            kept.append(line)
        inside = inside and line.strip() != _END
    return "".join(kept)


def _bake(trampoline: str, python: str, runc: str) -> str:
    """The trampoline with its two programs written in, so that it looks for nothing."""
    for name, value in (("PYTHON", python), ("RUNC", runc)):
        open_end = f"${{HOLDFAST_{name}:-}}"
        if open_end not in trampoline:
            raise BadInput("this trampoline has been installed before; take the package's own")
        if any(character in value for character in "\"'\\$`} \n"):
            raise BadInput(f"{value!r} cannot be written into a shell script")
        trampoline = trampoline.replace(open_end, f"${{HOLDFAST_{name}:-{value}}}", 1)
    return trampoline


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(
            f"containerd's configuration cannot be extended: {error}",
            hint=f"add a runtime `{RUNTIME}` with BinaryName = /{PROGRAM} by hand",
        ) from None


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
