"""The wrapper's log cannot grow for ever, and nobody else may read it."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.oci.journal import LIMIT, Journal, tell_engine


def test_lines_are_json_and_private(tmp_path: Path) -> None:
    path = tmp_path / "log/runc.log"
    Journal(path, "default/tc").write("info", "taken", id="x", where=Path("/y"))
    line = json.loads(path.read_text())
    assert (line["level"], line["container"], line["msg"], line["id"]) == (
        *("info", "default/tc", "taken", "x"),
    )
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_it_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "runc.log"
    for number in range(300):
        Journal(path).write("info", "x" * 10_000, number=number)
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["runc.log", "runc.log.1"]
    assert all(each.stat().st_size < LIMIT + 20_000 for each in tmp_path.iterdir())
    assert json.loads(path.read_text().splitlines()[-1])["number"] == 299


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Journal(tmp_path / "file/runc.log").write("info", "lost")
    assert (tmp_path / "file").read_bytes() == b""


def test_what_the_engine_reads(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    tell_engine(str(log), "json", "error", 'it "failed"')
    assert json.loads(log.read_text())["msg"] == 'it "failed"'
    tell_engine(str(log), None, "error", "in text")
    assert log.read_text().splitlines()[1].endswith('level=error msg="in text"')
    tell_engine(None, None, "error", "nowhere")
