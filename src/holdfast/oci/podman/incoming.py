"""Makes a checkpoint of an archive that Podman wrote (`podman container checkpoint --export`).

Nobody has signed such an archive, and whoever wrote it decides what will run: taking it in is for
whoever vouches for it. Nothing in it can reach beyond the folder in which it is unpacked.
"""

from __future__ import annotations

import json
import platform
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import zstandard

from holdfast.model.errors import BadInput, from_os_error
from holdfast.oci import vault
from holdfast.oci.likeness import likeness
from holdfast.oci.podman.criu_files import FILES, loosen_root
from holdfast.oci.podman.rootfs import write_layer
from holdfast.oci.private import private_folder

_CONFIG, _SPEC = "config.dump", "spec.dump"
_WANTED = (_CONFIG, _SPEC, "rootfs-diff.tar", "deleted.files")
_IMAGES = "checkpoint"
_STATISTICS = "stats-dump"
_NEEDED = ("inventory.img", FILES, "pstree.img")
_COPY = 1024 * 1024
_ZSTD = b"\x28\xb5\x2f\xfd"
# What is in the images tells which options a restore needs.
_OPTIONS = {"filelocks*.img": "--file-locks", "tcp-stream-*.img": "--tcp-established"}


def name_of(archive: Path) -> str | None:
    """What the container was called; raises BadInput when this is no archive of Podman's."""
    with _members(archive) as members:
        for name, stream in members:
            if name == _CONFIG:
                return str(_json(_CONFIG, stream.read()).get("name") or "") or None
    raise _not_one(archive, f"it has no {_CONFIG}")


def take_in(archive: Path, staged: Path) -> None:
    """Put the parts of a checkpoint together in a staged folder; raises BadInput, Corrupt."""
    work, memory = staged / vault.WORK, staged / vault.MEMORY
    try:
        for folder in (staged, work, memory, staged / "files"):
            private_folder(folder)
        with _members(archive) as members:
            for name, stream in members:
                if (place := _place(name, work, memory)) is not None:
                    _copy(stream, place)
        missing = [name for name in _NEEDED if not (memory / name).is_file()]
        missing += [name for name in (_CONFIG, _SPEC) if not (work / name).is_file()]
        if missing:
            raise _not_one(archive, f"it has no {missing[0]}")
        (memory / FILES).write_bytes(loosen_root((memory / FILES).read_bytes()))
        _put_files(work, staged)
        _describe(_json(_SPEC, (work / _SPEC).read_bytes()), staged)
    except OSError as error:
        raise from_os_error(error, "taking in an archive") from error


def _place(name: str, work: Path, memory: Path) -> Path | None:
    """Where a file of the archive goes: flat names in two folders, and nothing else."""
    folder, _, plain = name.rpartition("/")
    if plain in ("", ".", ".."):
        return None
    if folder == _IMAGES or name == _STATISTICS:
        return memory / plain
    return work / plain if name in _WANTED else None


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[tuple[str, IO[bytes]]]]:
    """The plain files of an archive one after the other, however it was compressed."""
    try:
        with archive.open("rb") as file:
            magic = file.read(len(_ZSTD))
            file.seek(0)
            source = zstandard.ZstdDecompressor().stream_reader(file) if magic == _ZSTD else file
            mode = "r|" if magic == _ZSTD else "r|*"
            with tarfile.open(fileobj=source, mode=mode) as opened:  # type: ignore[call-overload]
                yield _files(opened)
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise _not_one(archive, str(error)) from None
    except OSError as error:
        raise from_os_error(error, "reading an archive") from error


def _files(opened: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    for member in opened:
        stream = opened.extractfile(member) if member.isreg() else None
        if stream is not None:
            yield member.name.removeprefix("./"), stream


def _copy(stream: IO[bytes], place: Path) -> None:
    with place.open("wb") as out:
        while data := stream.read(_COPY):
            out.write(data)


def _put_files(work: Path, staged: Path) -> None:
    """The writable layer, of the two files in which Podman has it; without them it was clean."""
    deleted = work / "deleted.files"
    gone = json.loads(deleted.read_bytes()) if deleted.exists() else []
    if not isinstance(gone, list) or not all(isinstance(each, str) for each in gone):
        raise BadInput("deleted.files in the archive is no list of paths")
    diff = work / "rootfs-diff.tar"
    if not diff.exists():
        with tarfile.open(diff, "w"):
            pass
    with tarfile.open(diff) as tar, (staged / vault.LAYER).open("xb") as out:
        write_layer(tar, gone, out)


def _describe(spec: dict[str, Any], staged: Path) -> None:
    memory = staged / vault.MEMORY
    options = [option for files, option in _OPTIONS.items() if any(memory.glob(files))]
    environment = {
        "format": 1,
        "machine": platform.machine(),  # Podman does not say; CRIU finds out
        "options": options,
        "criu_options": [],
        "cpu": [],
        "container": likeness(spec),
    }
    report = {"items": [{"name": "podman", "outcome": "rebuilt", "reason": "from an archive"}]}
    (staged / vault.CONFIG).write_text(json.dumps(spec))
    (staged / vault.ENVIRONMENT).write_text(json.dumps(environment, indent=1))
    (staged / vault.REPORT).write_text(json.dumps(report, indent=1))


def _json(name: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadInput(f"{name} in the archive is not JSON")
    return found


def _not_one(archive: Path, why: str) -> BadInput:
    return BadInput(
        f"{archive} is no archive of a Podman checkpoint: {why}",
        hint="`podman container checkpoint --export FILE` writes one",
    )
