"""A container image for tests: busybox, and room for the host's Python to be mounted into."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

NAME = "docker.io/library/holdfast-test:latest"
_FOLDERS = [
    "bin",
    "proc",
    "sys",
    "dev",
    "tmp",
    "etc",
    "usr",
    "root",
    "run",
    "srv",
    "var",
    "var/old",
]
_APPLETS = ["sh", "cat", "ls", "sleep", "rm", "mkdir", "echo", "true", "false", "kill", "date"]
_LINKS = {"lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
_FILES = {"etc/doomed": b"to be deleted", "etc/kept": b"to be changed", "var/old/hidden": b"old"}


def write_image(path: Path, name: str = NAME, command: Sequence[str] = ("sh",)) -> None:
    """Write the image as an archive that `ctr image import` and `docker load` read."""
    layer = _layer()
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin:/usr/bin"], "Cmd": [*command]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    described = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, config_name, config)
        _add(archive, f"{digest}/layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(described).encode())


def unpack_root(folder: Path) -> None:
    """The same root file system as plain files."""
    with tarfile.open(fileobj=io.BytesIO(_layer())) as archive:
        if hasattr(tarfile, "fully_trusted_filter"):  # since Python 3.11.4
            archive.extraction_filter = tarfile.fully_trusted_filter
        archive.extractall(folder)


def _layer() -> bytes:
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError("busybox is not installed: run `make setup-test` as root")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        _add(archive, "bin/busybox", Path(busybox).read_bytes(), mode=0o755)
        for name, target in {**{f"bin/{each}": "busybox" for each in _APPLETS}, **_LINKS}.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name, content in _FILES.items():
            _add(archive, name, content)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    archive.addfile(member, io.BytesIO(data))
