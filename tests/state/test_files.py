"""The files of a session: their names, what is in them, and everything that goes wrong on disks."""

from __future__ import annotations

import errno
import json
import logging
import os
import resource
import socket
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from holdfast.model.errors import (
    BadInput,
    Conflict,
    Corrupt,
    Denied,
    NotFound,
    StorageFull,
    Unsupported,
)
from holdfast.state import StateManager, files
from holdfast.state.lock import held

NOON = datetime(2026, 1, 2, 12, 0, 0, 0, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def clock_of(*times: datetime) -> Callable[[], datetime]:
    """A clock that shows these times, and then stands still."""
    left = list(times)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def test_a_checkpoint_is_a_readable_file_with_the_agreed_fields(tmp_path: Path) -> None:
    manager = StateManager("session_12345", directory=tmp_path, clock=lambda: NOON)
    manager.set_state("current_stage", "enhance")
    manager.set_state("größe", 0.75)
    made = manager.checkpoint("transition")
    assert made.id == "20260102_120000_000000"
    assert made.path == tmp_path / "session_12345_checkpoint_20260102_120000_000000.json"
    assert made.time == NOON
    text = made.path.read_text("utf-8")
    assert '\n  "reason": "transition",\n' in text
    assert '"größe": 0.75' in text
    assert json.loads(text) == {
        "session_id": "session_12345",
        "timestamp": "2026-01-02T12:00:00.000000Z",
        "reason": "transition",
        "stage": "enhance",
        "state_info": {"current_stage": "enhance", "größe": 0.75},
        "parent_session": None,
        "parent": None,
        "rollback_of": None,
        "state_version": 1,
        "schema_version": 1,
    }
    assert made.size_bytes == len(text.encode())


def test_nan_makes_no_invalid_json(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path)
    manager.set_state("loss", [float("nan"), float("inf")])
    path = manager.checkpoint().path
    assert path

    def no_constants(name: str) -> None:
        raise AssertionError(name)

    json.loads(path.read_text(), parse_constant=no_constants)
    loss = StateManager.load("s", directory=tmp_path).state_data["loss"]
    assert str(loss) == "[nan, inf]"


def test_the_saved_state_has_the_name_of_the_session(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path)
    manager.set_state("a", 1)
    manager.save_state()
    assert names_in(tmp_path) == ["s.json"]
    assert json.loads((tmp_path / "s.json").read_text())["state_info"] == {"a": 1}


def test_files_are_private_to_their_user(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path / "new" / "sessions")
    path = manager.checkpoint().path
    assert path
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_where_an_app_keeps_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holdfast_home: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert StateManager("s", app="edi").checkpoint_dir == tmp_path / ".edi" / "sessions"
    assert StateManager("s").checkpoint_dir == holdfast_home / "sessions"
    monkeypatch.delenv("HOLDFAST_HOME")
    assert StateManager("s").checkpoint_dir == tmp_path / ".holdfast" / "sessions"
    assert StateManager("s", app="edi", directory="~/mine").checkpoint_dir == tmp_path / "mine"
    assert (tmp_path / "mine").is_dir()


def test_the_directory_can_be_changed(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path / "one")
    manager.checkpoint()
    manager.checkpoint_dir = tmp_path / "two"
    assert manager.list_checkpoints() == []
    made = manager.checkpoint()
    assert made.path
    assert made.path.parent == tmp_path / "two" == manager.checkpoint_dir


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput):
        StateManager("s", directory=tmp_path / "file")


# time


def test_two_checkpoints_in_one_microsecond(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path, clock=lambda: NOON)
    times = [manager.checkpoint().time for _ in range(3)]
    assert times == [NOON, NOON + MICROSECOND, NOON + 2 * MICROSECOND]
    # Also by another manager, which knows nothing of the first one's clock:
    other = StateManager("s", directory=tmp_path, clock=lambda: NOON)
    assert other.checkpoint().id == "20260102_120000_000003"


def test_a_clock_that_steps_back(tmp_path: Path) -> None:
    clock = clock_of(NOON, NOON - timedelta(days=1), NOON + timedelta(hours=1))
    manager = StateManager("s", directory=tmp_path, clock=clock)
    made = [manager.checkpoint(str(number)) for number in range(3)]
    assert [each.time for each in made] == [NOON, NOON + MICROSECOND, NOON + timedelta(hours=1)]
    assert manager.list_checkpoints() == made[::-1]
    manager.rollback()
    assert made[1].id == manager.list_checkpoints()[0].rollback_of


def test_a_clock_that_steps_back_after_saving(tmp_path: Path) -> None:
    clock = clock_of(NOON, NOON - timedelta(days=1))
    manager = StateManager("s", directory=tmp_path, clock=clock)
    manager.save_state()
    manager.set_state("step", 1)
    manager.checkpoint()
    assert StateManager.load("s", directory=tmp_path).state_data == {"step": 1}
    manager.set_state("step", 2)
    manager.save_state()
    assert StateManager.load("s", directory=tmp_path).state_data == {"step": 2}


def test_stamps_are_utc(tmp_path: Path) -> None:
    clock = clock_of(NOON.astimezone(ZoneInfo("Asia/Tokyo")))
    made = StateManager("s", directory=tmp_path, clock=clock).checkpoint()
    assert made.id == "20260102_120000_000000"
    assert made.time == NOON


# neighbours


def test_sessions_with_similar_names_do_not_touch_each_other(tmp_path: Path) -> None:
    ids = ["a", "a_checkpoint_b", "a_checkpoint", "ab"]
    managers = [StateManager(each, directory=tmp_path, checkpoint_limit=2) for each in ids]
    for manager in managers:
        for _ in range(4):
            manager.checkpoint()
            manager.save_state()
    for manager in managers:
        assert len(manager.list_checkpoints()) == 2
    assert len(names_in(tmp_path)) == len(ids) * 3


def test_a_file_copied_from_another_session_is_not_ours(tmp_path: Path) -> None:
    other = StateManager("other", directory=tmp_path).checkpoint().path
    assert other
    (tmp_path / other.name.replace("other", "s")).write_bytes(other.read_bytes())
    assert StateManager("s", directory=tmp_path).list_checkpoints() == []


def test_a_fork_says_which_session_it_is_from(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path)
    manager.checkpoint()
    path = manager.fork("other").list_checkpoints()[0].path
    assert path
    document = json.loads(path.read_text())
    assert (document["parent_session"], document["parent"]) == ("s", None)
    assert document["reason"] == "fork of s"


# damage


@pytest.mark.parametrize("size", [0, 1, 60, -2, -20])
def test_a_half_written_file_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    manager = StateManager("s", directory=tmp_path, clock=lambda: NOON)
    manager.set_state("step", 1)
    good = manager.checkpoint()
    assert good.path
    # As an older program would leave it that did not write beside and rename:
    torn = tmp_path / "s_checkpoint_20300101_000000_000000.json"
    good_bytes = good.path.read_bytes()
    torn.write_bytes(good_bytes[:size])
    with caplog.at_level(logging.WARNING):
        assert manager.list_checkpoints() == [good]
        assert torn.name in caplog.text
        caplog.clear()
        assert StateManager.load("s", directory=tmp_path).state_data == {"step": 1}
        assert torn.name in caplog.text
    with pytest.raises(Corrupt):
        manager.rollback("20300101_000000_000000")
    # It is neither counted nor overwritten nor removed, whatever the time in its name.
    manager.checkpoint_limit = 2
    later = manager.checkpoint()
    assert later.id < "20300101_000000_000000"
    assert manager.list_checkpoints() == [later, good]
    there = datetime(2030, 1, 1, tzinfo=UTC)
    again = StateManager.load("s", directory=tmp_path, clock=lambda: there).checkpoint()
    assert again.id == "20300101_000000_000001"
    assert torn.read_bytes() == good_bytes[:size]


def test_a_warning_about_a_file_comes_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "s_checkpoint_20260101_000000_000000.json").write_bytes(b"{")
    manager = StateManager("s", directory=tmp_path)
    for _ in range(3):
        manager.checkpoint()
        manager.list_checkpoints()
    assert caplog.text.count("ignored") == 1


def _make_unreadable(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                monkeypatch.chdir(path.parent)  # the whole path can be too long for a socket
                listener.bind(path.name)
        case "denied":
            path.write_bytes(b"{}")
            path.chmod(0)
            if os.geteuid() == 0:  # to whom no mode is an obstacle
                really = os.open

                def refuse(at: Path, *more: Any) -> int:
                    if Path(at) == path:
                        raise PermissionError(errno.EACCES, "Permission denied", str(at))
                    return really(at, *more)

                monkeypatch.setattr(os, "open", refuse)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("stamp", ["20200101_000000_000000", "20300101_000000_000000", None])
@pytest.mark.parametrize("kind", ["fifo", "directory", "loop", "socket", "denied"])
def test_what_is_no_readable_file_is_ignored_with_a_warning(
    tmp_path: Path,
    kind: str,
    stamp: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd = tmp_path / (f"s_checkpoint_{stamp}.json" if stamp else "s.json")
    _make_unreadable(odd, kind, monkeypatch)
    manager = StateManager("s", directory=tmp_path, checkpoint_limit=2)
    with pytest.raises(Corrupt):
        StateManager.load("s", directory=tmp_path)
    made = []
    for step in (1, 2, 3):
        manager.set_state("step", step)
        made.append(manager.checkpoint())
    assert manager.list_checkpoints() == [made[2], made[1]]
    assert StateManager.load("s", directory=tmp_path).state_data == {"step": 3}
    manager.rollback()
    assert manager.state_data == {"step": 2}
    assert "ignored" in caplog.text
    assert os.path.lexists(odd)
    with pytest.raises(Conflict):
        StateManager("other", directory=tmp_path).fork("s")
    if stamp:
        with pytest.raises((Corrupt, Denied)):
            manager.rollback(stamp)


def test_a_file_that_becomes_readable_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = StateManager("s", directory=tmp_path)
    path = manager.checkpoint().path
    assert path
    data = path.read_bytes()
    path.unlink()
    with monkeypatch.context() as patch:
        _make_unreadable(path, "denied", patch)
        assert manager.list_checkpoints() == []
    path.chmod(0o600)
    path.write_bytes(data)
    assert len(manager.list_checkpoints()) == 1


END = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize("stamp", ["99991231_235959_999999", "99991231_235959_999998"])
def test_a_stray_file_at_the_end_of_time_stops_nothing(tmp_path: Path, stamp: str) -> None:
    stray = tmp_path / f"s_checkpoint_{stamp}.json"
    stray.write_bytes(b"garbage")
    manager = StateManager("s", directory=tmp_path, clock=lambda: NOON)
    first, second = manager.checkpoint(), manager.checkpoint()
    manager.save_state()
    assert manager.list_checkpoints() == [second, first]
    assert first.time == NOON
    assert stray.read_bytes() == b"garbage"


def test_nothing_comes_after_the_end_of_time(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path, clock=lambda: END)
    made = manager.checkpoint()
    assert made.time == END
    for write in (manager.checkpoint, manager.save_state, lambda: manager.rollback(made.id)):
        with pytest.raises(BadInput, match="no time comes after") as told:
            write()
        assert told.value.hint
    assert manager.list_checkpoints() == [made]
    assert made.path
    made.path.unlink()
    assert StateManager("s", directory=tmp_path).checkpoint().time < END


def test_a_torn_saved_state_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = StateManager("s", directory=tmp_path)
    manager.set_state("step", 1)
    manager.checkpoint()
    (tmp_path / "s.json").write_bytes(b'{"session_id": "s", ')
    assert StateManager.load("s", directory=tmp_path).state_data == {"step": 1}
    assert "saved state" in caplog.text
    manager.save_state()
    assert StateManager.load("s", directory=tmp_path).state_data == {"step": 1}


def test_nothing_readable_at_all(tmp_path: Path) -> None:
    (tmp_path / "s_checkpoint_20260101_000000_000000.json").write_bytes(b"{")
    with pytest.raises(Corrupt):
        StateManager.load("s", directory=tmp_path)
    (tmp_path / "t.json").write_bytes(b"")
    with pytest.raises(Corrupt):
        StateManager.load("t", directory=tmp_path)


def test_load_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        StateManager.load("s", directory=tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_unfinished_files_of_a_dead_writer_are_removed(tmp_path: Path) -> None:
    stale = tmp_path / ".s_checkpoint_20260101_000000_000000.json.tmp"
    other = tmp_path / ".other_checkpoint_20260101_000000_000000.json.tmp"
    for path in (stale, other, tmp_path / ".s.json.tmp"):
        path.write_bytes(b"{")
    manager = StateManager("s", directory=tmp_path)
    assert manager.list_checkpoints() == []
    manager.checkpoint()
    assert not stale.exists()
    assert other.exists()
    manager.save_state()


def test_a_file_of_a_newer_version_is_not_mistaken(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path)
    first, second = manager.checkpoint(), manager.checkpoint()
    assert second.path
    newer = json.loads(second.path.read_text()) | {"schema_version": 2, "state_info": [1]}
    second.path.write_text(json.dumps(newer))
    assert manager.list_checkpoints() == [first]
    with pytest.raises(Unsupported, match="schema 2"):
        StateManager.load("s", directory=tmp_path)
    with pytest.raises(Unsupported):
        manager.rollback(second.id)
    manager.checkpoint()
    assert second.path.exists()


def test_plain_files_without_a_version_are_read(tmp_path: Path) -> None:
    plain = {
        "session_id": "s",
        "timestamp": "2026-01-01T00:00:00.000001",
        "reason": "manual",
        "stage": "unknown",
        "state_info": {"a": {"$type": "not ours", "b": [1]}},
        "parent_session": None,
    }
    path = tmp_path / "s_checkpoint_20260101_000000_000001.json"
    path.write_text(json.dumps(plain))
    manager = StateManager.load("s", directory=tmp_path)
    assert manager.state_data == plain["state_info"]
    assert manager.list_checkpoints()[0].reason == "manual"


# no room, no right


def test_a_full_disk(full_disk: Path) -> None:
    manager = StateManager("s", directory=full_disk / "sessions", checkpoint_limit=2)
    made = []
    for step in range(3):
        manager.set_state("step", step)
        made.append(manager.checkpoint())
    manager.save_state()
    before = {path: path.read_bytes() for path in manager.checkpoint_dir.iterdir()}
    manager.set_state("big", "x" * 2_000_000)
    with pytest.raises(StorageFull):
        manager.checkpoint()
    with pytest.raises(StorageFull):
        manager.save_state()
    with pytest.raises(StorageFull):
        manager.fork("other")
    after = {path: path.read_bytes() for path in manager.checkpoint_dir.iterdir()}
    assert {path: data for path, data in after.items() if "other" not in path.name} == before
    assert manager.list_checkpoints() == [made[2], made[1]]
    del manager.state_data["big"]
    manager.checkpoint()
    manager.fork("other")


def test_a_disk_that_is_read_only(full_disk: Path) -> None:
    manager = StateManager("s", directory=full_disk)
    manager.set_state("step", 1)
    manager.checkpoint()
    subprocess.run(["mount", "-o", "remount,ro", full_disk], check=True)
    with pytest.raises(Denied):
        manager.checkpoint()
    assert StateManager.load("s", directory=full_disk).state_data == {"step": 1}


def test_too_many_open_files_lose_nothing(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path)
    manager.checkpoint()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, hard))
    try:
        with pytest.raises(Exception, match="Too many open files"):
            manager.checkpoint()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(manager.list_checkpoints()) == 1
    assert not list(tmp_path.glob(".*.tmp"))


# turns


def test_a_writer_that_hangs_is_a_conflict(tmp_path: Path) -> None:
    directory = files.Directory(tmp_path, "s", patience=0.05)
    manager = StateManager("s", directory=tmp_path)
    manager.checkpoint()
    document = directory.read(manager.list_checkpoints()[0].id)
    with held(tmp_path / ".s.lock"):
        with pytest.raises(Conflict):
            directory.add(document, limit=10)
        assert len(directory.checkpoints()) == 1
    directory.add(document, limit=10)


def test_a_writer_waits_for_its_turn(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path)
    with held(tmp_path / ".s.lock"):
        thread = threading.Thread(target=manager.checkpoint)
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
    thread.join()
    assert len(manager.list_checkpoints()) == 1


def test_two_managers_each_keep_their_own_line(tmp_path: Path) -> None:
    one, other = (StateManager("s", directory=tmp_path) for _ in range(2))
    for step in (1, 2):
        for manager, who in ((one, "one"), (other, "other")):
            manager.set_state("who", f"{who} {step}")
            manager.checkpoint()
    assert len(one.list_checkpoints()) == 4
    one.rollback()
    assert one.state_data == {"who": "one 1"}
    other.rollback()
    assert other.state_data == {"who": "other 1"}


@pytest.mark.parametrize(
    "directory",
    ["a\0b", "x" * 300, "x/" * 3000, "half \ud800", "~there-is-no-such-user/x", "/dev/null/x"],
)
def test_a_directory_that_cannot_be(directory: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        StateManager("s", directory=directory)
    with pytest.raises(BadInput):
        StateManager.load("s", directory=directory)
    manager = StateManager("s", directory=tmp_path)
    with pytest.raises(BadInput):
        manager.checkpoint_dir = directory
    assert manager.checkpoint_dir == tmp_path


def test_a_directory_whose_parent_may_not_be_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: object) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(Denied):
        StateManager("s", directory=tmp_path / "shut" / "in")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HOLDFAST_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    for app in ("holdfast", "edi"):
        with pytest.raises(BadInput, match="home directory") as told:
            StateManager("s", app=app)
        assert told.value.hint


def test_without_a_home_a_directory_still_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HOLDFAST_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    manager = StateManager("s", directory=tmp_path)
    made = manager.checkpoint()
    assert manager.list_checkpoints() == [made]
