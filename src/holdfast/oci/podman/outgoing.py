"""Writes a checkpoint as an archive that Podman restores and checkpointctl reads.

Its configuration says as little as Podman accepts: what belongs to the node on which the container
ran, such as folders and cgroups, is for the Podman that restores it to decide.
"""

from __future__ import annotations

import copy
import hashlib
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.model import moment
from holdfast.model.errors import UsageError
from holdfast.model.files import create
from holdfast.oci import vault
from holdfast.oci.memory.pagemap import is_increment
from holdfast.oci.memory.whole import make_whole
from holdfast.oci.podman.criu_files import FILES, loosen_root
from holdfast.oci.podman.rootfs import write_tar
from holdfast.oci.vault import Saved

_NAMES = ("io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName")
_IDS = ("io.kubernetes.cri-o.ImageRef",)
_OURS = ("org.criu.config",)  # a path of the node on which it was frozen
_MANAGER = {"io.container.manager": "libpod"}  # whose form this is
_STATISTICS = "stats-dump"
_LEAST_SHM = 65536000


@dataclass(frozen=True, slots=True)
class Exported:
    """What went into an archive, and what Podman cannot be told."""

    archive_bytes: int
    replaced: tuple[str, ...]  # directories whose earlier content will be seen again


@dataclass(frozen=True, slots=True)
class Image:
    """What a container is made of. Of what nobody says, the container's annotations may."""

    name: str | None = None
    id: str | None = None

    def complete(self, config: dict[str, Any]) -> Image:
        """The same with nothing open; raises UsageError."""
        name = self.name or _annotated(config, _NAMES, "--image NAME")
        found = self.id or _annotated(config, _IDS, "--image-id ID")
        return Image(name, found.removeprefix("sha256:"))


def export(folder: Path, saved: Saved, image: Image, out: Path, scratch: Path) -> Exported:
    """Write a fetched checkpoint to a tar; raises UsageError, Unsupported, Corrupt."""
    config = json.loads((folder / vault.CONFIG).read_bytes())
    image = image.complete(config)
    with (folder / vault.LAYER).open("rb") as layer, (scratch / "rootfs").open("xb") as tar:
        losses = write_tar(layer, tar)
    memory = _whole(folder / vault.MEMORY, scratch)
    (scratch / FILES).write_bytes(loosen_root((memory / FILES).read_bytes()))
    described = {
        "config.dump": _container(saved, config, image),
        "spec.dump": _spec(config),
        "network.status": None,
        **({"deleted.files": list(losses.deleted)} if losses.deleted else {}),
    }
    # A container's memory, with every secret in it.
    with (
        open(create(out), "wb") as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, value in described.items():
            (scratch / name).write_text(json.dumps(value, indent=1))
            _add(archive, scratch / name, name)
        _add_folder(archive, "checkpoint")
        for path in sorted(memory.iterdir()):
            if path.name == _STATISTICS:
                _add(archive, path, _STATISTICS)
            elif path.is_file():
                source = scratch / FILES if path.name == FILES else path
                _add(archive, source, f"checkpoint/{path.name}")
        _add(archive, scratch / "rootfs", "rootfs-diff.tar")
    return Exported(out.stat().st_size, losses.replaced)


def _annotated(config: dict[str, Any], names: Sequence[str], option: str) -> str:
    annotations = config.get("annotations") or {}
    found = next((annotations[name] for name in names if annotations.get(name)), None)
    if found is None:
        raise UsageError(
            "nobody told runc which image this container is made of, and Podman wants to know",
            hint=f"{option}; `podman image inspect -f '{{{{.Id}}}}' NAME` tells an image's id",
        )
    return str(found)


def _whole(memory: Path, scratch: Path) -> Path:
    """Images that need no others: an archive has one set of them."""
    if not is_increment(memory):
        return memory
    out = scratch / "whole"
    out.mkdir()
    make_whole(memory, out)
    return out


def _spec(config: dict[str, Any]) -> dict[str, Any]:
    """The container's own configuration, without what only its node could know."""
    spec = copy.deepcopy(config)
    annotations = {**(spec.get("annotations") or {}), **_MANAGER}
    spec["annotations"] = {key: annotations[key] for key in annotations if key not in _OURS}
    spec.pop("hooks", None)
    (spec.get("linux") or {}).pop("cgroupsPath", None)
    return spec


def _container(saved: Saved, config: dict[str, Any], image: Image) -> dict[str, Any]:
    """What Podman keeps about a container of its own."""
    process = config.get("process") or {}
    return {
        "spec": _spec(config),
        "id": hashlib.sha256(f"{saved.subject} {saved.id}".encode()).hexdigest(),
        "name": saved.subject.name.partition("/")[2].replace("/", "-"),
        "rootfsImageName": image.name,
        "rootfsImageID": image.id,
        "RawImageName": image.name,
        "idMappingsOptions": {"HostUIDMapping": True, "HostGIDMapping": True},
        "shmSize": _LEAST_SHM,
        "command": list(process.get("args") or ()),
        "createdTime": moment.to_text(saved.time),
        "checkpointedTime": moment.to_text(saved.time),
        "cgroupsMode": "enabled",
        "logDriver": "k8s-file",
        "stopSignal": 15,
        "stopTimeout": 10,
        "umask": "0022",
        "runtime": "runc",
    }


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = path.stat().st_size, 0o600
    info.mtime = int(path.stat().st_mtime)
    with path.open("rb") as file:
        archive.addfile(info, file)


def _add_folder(archive: tarfile.TarFile, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, 0o700
    archive.addfile(info)
