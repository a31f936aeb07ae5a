"""The JavaScript client's folder, and the package built from it once for all who want it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

import pytest


def run(folder: Path, *command: str, **environ: str) -> str:
    """What a command prints, which has to succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def client(repository: Path) -> Path:
    return repository / "clients/js"


@pytest.fixture(scope="session")
def built(client: Path) -> Path:
    """The client's folder with a build of this very source. Workers share it: one builds, and
    nobody takes it away from those who use it."""
    sources = sorted([*client.glob("src/*"), *client.glob("scripts/*"), *client.glob("*.json")])
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    last = client / "dist/cjs/package.json"  # what a build writes last

    def stamp() -> str:
        return f"{digest.hexdigest()} {last.stat().st_mtime_ns if last.exists() else 'none'}"

    with (client / "node_modules/.built").open("a+") as note:
        fcntl.flock(note, fcntl.LOCK_EX)
        note.seek(0)
        if note.read() != stamp():
            run(client, "npm", "run", "--silent", "build")
            note.truncate(0)
            note.write(stamp())
            note.flush()  # before the lock is given back
    return client
