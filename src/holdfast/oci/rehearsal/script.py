"""The configuration of a container that comes back where it can do no harm. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.model.errors import Unsupported
from holdfast.oci.config_handler import Config

_CRIU = "org.criu.config"


def check(config: Config) -> None:
    """Raise Unsupported for a container that would meet others, whatever we give it."""
    if (config.get("process") or {}).get("terminal"):
        raise Unsupported("it has a terminal")
    spaces = _spaces(config)
    if "network" not in spaces:
        raise Unsupported("it uses the network of its node")
    if "pid" not in spaces or spaces["pid"].get("path"):
        raise Unsupported("it shares its processes with others")


def joins_network(config: Config) -> bool:
    """Whether its network is made by somebody else, and kept out of its dump."""
    return bool(_spaces(config)["network"].get("path"))


def bound(config: Config) -> list[str]:
    """What it sees of the node: the sources of its bind mounts, each once."""
    found = [str(each.get("source")) for each in config.get("mounts") or () if _is_bind(each)]
    return list(dict.fromkeys(found))


def harmless(
    config: Config, *, cgroup: str, criu: str, network: str | None, sources: Mapping[str, str]
) -> Config:
    """The same container with a place of its own: no hooks, another cgroup, the given network, and
    `sources` instead of what it saw of the node."""
    mounts = [
        {**each, "source": sources[str(each["source"])]} if _is_bind(each) else each
        for each in config.get("mounts") or ()
    ]
    linux = {key: value for key, value in (config.get("linux") or {}).items() if key != "intelRdt"}
    spaces = [
        {"type": kind, **({"path": network} if kind == "network" and network else {})}
        for kind in _spaces(config)
    ]
    return {
        **{key: value for key, value in config.items() if key != "hooks"},
        "root": {**(config.get("root") or {}), "path": "rootfs"},
        "annotations": {_CRIU: criu},
        "mounts": mounts,
        "linux": {**linux, "cgroupsPath": cgroup, "namespaces": spaces},
    }


def _spaces(config: Config) -> dict[str, Mapping[str, Any]]:
    listed = (config.get("linux") or {}).get("namespaces") or ()
    return {str(each.get("type")): each for each in listed}


def _is_bind(mount: Mapping[str, Any]) -> bool:
    return mount.get("type") == "bind" or not {"bind", "rbind"}.isdisjoint(
        mount.get("options") or ()
    )
