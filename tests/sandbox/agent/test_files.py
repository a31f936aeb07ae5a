"""What the agent does to files, by itself: one order, the standard streams, and an end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ACTS = """
import json, sys
from holdfast.sandbox.agent.files import file_verb
file_verb(json.loads(sys.argv[1]))
"""


def order(data: bytes = b"", **fields: object) -> tuple[int, bytes, str]:
    done = subprocess.run(
        [sys.executable, "-c", ACTS, json.dumps(fields)], input=data, capture_output=True
    )
    return done.returncode, done.stdout, done.stderr.decode()


def test_a_file_is_written_in_pieces_and_read_in_pieces(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "file")
    assert order(b"first ", call="write", path=path, offset=0)[0] == 0
    assert order(b"second", call="write", path=path, offset=6)[0] == 0
    code, _, said = order(b"again", call="write", path=path, offset=6)
    assert (code, "the file has 12 bytes, not 6" in said) == (1, True)
    code, told, _ = order(call="read", path=path, offset=3, size=5)
    whole, _, piece = told.partition(b"\n")
    assert (code, json.loads(whole)["size"], piece) == (0, 12, b"st se")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    assert order(b"after", call="write", path=str(path)) == (0, b"", "")
    assert path.read_bytes() == b"after"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "tool"
    path.write_text("before")
    path.chmod(0o750)
    assert order(b"after", call="write", path=str(path))[0] == 0
    assert (path.read_bytes(), path.stat().st_mode & 0o7777) == (b"after", 0o750)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    code, _, said = order(b"x", call="write", path=str(tmp_path / "folder"))
    assert (code, "directory" in said) == (1, True)
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, _, said = order(call="read", path=str(tmp_path / "pipe"))
    assert (code, "not a regular file" in said) == (1, True)
    code, _, said = order(call="read", path=str(tmp_path / "none"))
    assert (code, said.startswith("2 ")) == (1, True)  # the host learns the number


def test_a_folder_is_listed_and_removed_without_following_links(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    assert order(call="mkdir", path=str(folder / "below"))[0] == 0
    (folder / "link").symlink_to(outside)
    lines = order(call="list", path=str(folder))[1].splitlines()
    assert [(each["name"], each["kind"]) for each in map(json.loads, lines)] == [
        ("below", "folder"),
        ("link", "link"),
    ]
    assert order(call="remove", path=str(folder))[0] == 0
    assert not folder.exists()
    assert (outside / "kept").read_text() == "kept"
