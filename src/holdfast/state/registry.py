"""The registry: which directories hold states, so that a command can find them.

One small file for each directory in `HOLDFAST_HOME/registry/state`, so that writers never have
to agree. It is a convenience: a registry that cannot be written never stops a checkpoint.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import msgspec

from holdfast.model.errors import BadInput, Corrupt
from holdfast.model.files import make_folder, publish
from holdfast.model.home import home as default_home
from holdfast.state import durable

log = logging.getLogger("holdfast.state")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One directory with the checkpoints of some sessions."""

    directory: str
    schema_version: int = 1


def note(directory: Path, home: Path | None = None) -> None:
    """Remember a directory. What goes wrong is logged."""
    text = os.fspath(directory.absolute())
    name = hashlib.sha256(os.fsencode(text)).hexdigest()[:32] + ".json"
    try:
        folder = _folder(home)
        if (folder / name).exists():
            return
        data = msgspec.json.encode(Entry(directory=text))
        make_folder(folder)
        publish(folder / name, data, draft=folder / f".{name}.{os.getpid()}.tmp")
    except (OSError, UnicodeEncodeError, BadInput) as error:  # BadInput: nobody's home
        log.warning("could not note %s in the registry: %s", directory, error)


def directories(home: Path | None = None) -> list[Path]:
    """The directories that were noted and still exist, sorted."""
    found = set()
    for file in _folder(home).glob("*.json"):
        try:
            entry = msgspec.json.decode(durable.read(file)[0], type=Entry)
        except (OSError, Corrupt, msgspec.MsgspecError, RecursionError) as error:
            log.warning("ignored %s: %s", file, error)
            continue
        if "\0" not in entry.directory and os.path.isdir(entry.directory):
            found.add(Path(entry.directory))
    return sorted(found)


def _folder(home: Path | None) -> Path:
    return (home or default_home()) / "registry" / "state"
