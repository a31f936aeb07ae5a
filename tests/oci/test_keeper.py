"""A server of pages that ends too early takes the container with it, and its end is known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import Conflict
from holdfast.oci import keeper
from holdfast.oci.lazy import await_pages
from holdfast.oci.state import Process
from holdfast.testing.processes import running


@pytest.mark.parametrize(
    ("script", "code", "ended"),
    [("exit 0", "0", False), ("exit 1", "1", True), ("kill -9 $$", "-9", True)],
)
def test_how_the_server_ended(script: str, code: str, ended: bool, tmp_path: Path) -> None:
    stop = ["touch", str(tmp_path / "stopped")]
    serve = ["sh", "-c", f"read x; {script}"]
    status = tmp_path / "pages"
    words = [sys.executable, "-I", "-S", keeper.__file__, str(status), *stop, "--", *serve]
    with running(words, stdin=subprocess.PIPE) as process:
        daemon = Process.of(process.pid)
        assert daemon is not None
        with pytest.raises(Conflict, match="not been read back yet"):
            await_pages(daemon, status, 0.1)
        process.communicate(b"\n")
    assert status.read_text() == code
    assert (tmp_path / "stopped").exists() == ended
    if ended:
        with pytest.raises(Conflict, match="too early"):
            await_pages(daemon, status, 10)
    else:
        await_pages(daemon, status, 10)
        status.unlink()  # of somebody who was killed, nobody knows
        with pytest.raises(Conflict, match="too early"):
            await_pages(daemon, status, 10)
