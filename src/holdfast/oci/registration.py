"""How an engine is told about a runtime of its own, in its own configuration, and how that goes.

Texts in, texts out: nothing here reads or writes a file.
"""

from __future__ import annotations

import json
import tomllib
from typing import Literal

from holdfast.model.errors import BadInput, Unsupported

EngineName = Literal["containerd", "docker", "podman"]
ENGINES: tuple[EngineName, ...] = ("containerd", "docker", "podman")
RUNTIME = "holdfast"
FILES: dict[EngineName, str] = {
    "containerd": "etc/containerd/config.toml",
    "docker": "etc/docker/daemon.json",
    "podman": "etc/containers/containers.conf.d/holdfast.conf",
}
_BEGIN, _END = "# >>> holdfast", "# <<< holdfast"
_PLUGINS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}


def register(name: EngineName, program: str, text: str | None) -> str:
    """A configuration with our runtime in it; raises BadInput, Unsupported."""
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


def without_us(path: str, now: bytes | None) -> tuple[bytes | None, str]:
    """A file that somebody changed after us, without what is ours in it, and a word about it."""
    if now is None:
        return None, ""
    try:
        text = now.decode()
        if path == FILES["containerd"]:
            return _cut_block(text).encode(), f"/{path} was edited since; only our block goes"
        if path == FILES["docker"]:
            settings = json.loads(text)
            settings.get("runtimes", {}).pop(RUNTIME, None)
            if not settings.get("runtimes", True):
                del settings["runtimes"]
            return (json.dumps(settings, indent=4) + "\n").encode(), (
                f"/{path} was edited since; only our runtime goes"
            )
    except ValueError:
        return now, f"/{path} cannot be read any more; take `{RUNTIME}` out of it by hand"
    if path == FILES["podman"]:
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


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(
            f"containerd's configuration cannot be extended: {error}",
            hint=f"add a runtime `{RUNTIME}` with its BinaryName by hand",
        ) from None
