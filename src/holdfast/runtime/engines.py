"""Where the engines are.

One rule: what the environment names wins (`HOLDFAST_RUNC`, `HOLDFAST_RUNSC`, `HOLDFAST_CRIU`),
then the private prefix that the set-up fills, then PATH.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PREFIX = Path("/usr/local/lib/holdfast")
"""Where `scripts/setup-engines` puts criu and runsc unless HOLDFAST_ENGINES says otherwise."""

VARIABLES = {"runc": "HOLDFAST_RUNC", "runsc": "HOLDFAST_RUNSC", "criu": "HOLDFAST_CRIU"}

_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not on an ordinary user's PATH


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine's program and how it was found: a variable's name, `prefix` or `path`."""

    name: str
    program: Path
    source: str


def prefix(environ: Mapping[str, str], record: Path | None = None) -> Path:
    """The private prefix: `HOLDFAST_ENGINES`, else what the set-up recorded, else the default.

    The record is a file `holdfast-engines` in the environment that Holdfast runs from.
    """
    given = environ.get("HOLDFAST_ENGINES")
    if given:
        return Path(given)
    record = record or Path(sys.prefix) / "holdfast-engines"
    try:
        recorded = record.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):  # not set up from a checkout: the default holds
        recorded = ""
    return Path(recorded) if recorded else DEFAULT_PREFIX


def search_path(environ: Mapping[str, str], private: Path | None = None) -> str:
    """A PATH that finds the private engines first: runc looks for `criu` there."""
    private = private or prefix(environ)
    folders = [str(private / "bin"), *environ.get("PATH", os.defpath).split(os.pathsep)]
    folders.extend(folder for folder in _SYSTEM_FOLDERS if folder not in folders)
    named = environ.get(VARIABLES["criu"])
    if named and Path(named).name == "criu":
        folders.insert(0, str(Path(named).parent))
    return os.pathsep.join(folder for folder in folders if folder)


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which an engine is to be run."""
    return {**environ, "PATH": search_path(environ)}


def find(name: str, environ: Mapping[str, str] = os.environ) -> Engine | None:
    """The engine of that name, or None. A variable that names nothing runnable is not an
    engine, and nothing else is used in its place: the user asked for that one."""
    variable = VARIABLES.get(name)
    given = environ.get(variable) if variable else None
    if variable and given:
        program = shutil.which(given, path=environ.get("PATH"))
        return Engine(name, Path(program), variable) if program else None
    private = prefix(environ)
    ours = private / "bin" / name
    if os.access(ours, os.X_OK):
        return Engine(name, ours, "prefix")
    program = shutil.which(name, path=search_path(environ, private))
    return Engine(name, Path(program), "path") if program else None
