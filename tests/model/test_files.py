"""Files and folders: closed to others from the first moment, whatever the umask."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model import files
from holdfast.model.disk import Disk
from holdfast.model.files import GROUP, PRIVATE, Access


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["000", "022", "077"], autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize(("access", "wanted"), [(PRIVATE, 0o600), (GROUP, 0o660)])
def test_new_files_have_their_mode(tmp_path: Path, access: Access, wanted: int) -> None:
    os.close(files.create(tmp_path / "one", access))
    os.close(files.open_or_create(tmp_path / "two", access))
    files.publish(tmp_path / "three", b"data", access=access)
    assert [mode(tmp_path / name) for name in ("one", "two", "three")] == [wanted] * 3
    assert sorted(os.listdir(tmp_path)) == ["one", "three", "two"]


def test_folders_above_are_private_too(tmp_path: Path) -> None:
    assert files.make_folder(tmp_path / "a" / "b" / "c")
    assert not files.make_folder(tmp_path / "a" / "b" / "c")
    assert {mode(tmp_path / each) for each in ("a", "a/b", "a/b/c")} == {0o700}


def test_group_folders_pass_their_group_on(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "shared"
    assert files.make_folder(folder, GROUP)
    os.chown(folder, -1, 12345)
    folder.chmod(0o2770)
    assert mode(tmp_path / "a") == 0o700
    assert files.access_of(folder) is GROUP
    files.make_folder(folder / "below", GROUP)
    os.close(files.create(folder / "file", GROUP))
    assert [(folder / name).stat().st_gid for name in ("below", "file")] == [12345] * 2


def test_other_folders_are_private_places(tmp_path: Path) -> None:
    for each in (0o700, 0o755, 0o770, 0o2700):
        tmp_path.chmod(each)
        assert files.access_of(tmp_path) is PRIVATE
    assert files.access_of(tmp_path / "none") is PRIVATE


def test_a_failed_publication_leaves_nothing(tmp_path: Path) -> None:
    final = tmp_path / "final"
    files.publish(final, b"first", replace=False)
    with pytest.raises(FileExistsError):
        files.publish(final, b"second", replace=False)

    class Broken(Disk):
        def sync_file(self, fd: int, what: str) -> None:
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        files.publish(final, b"third", sync=(Broken(), "slot data", "slot name"))
    assert final.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["final"]
    files.publish(final, b"fourth")
    assert final.read_bytes() == b"fourth"


def test_another_writers_draft_stays(tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        files.publish(tmp_path / "final", b"ours", draft=draft)
    assert draft.read_bytes() == b"theirs"


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for make in (files.create, files.open_or_create):
        with pytest.raises(OSError, match=r"exists|symbolic links"):
            make(tmp_path / "link")
    assert not (tmp_path / "target").exists()


def test_sockets_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        files.bind(listener, "socket")
        assert mode(tmp_path / "socket") == 0o600


@pytest.fixture
def reachable(tmp_path: Path) -> Iterator[Path]:
    """A folder that all may enter, as pytest's are not."""
    folder = Path("/var/tmp") / f"holdfast-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    for each in sorted(folder.rglob("*"), reverse=True):
        each.rmdir() if each.is_dir() else each.unlink()
    folder.rmdir()


def test_what_others_can_open_is_named(reachable: Path) -> None:
    key = reachable / "a key"
    key.write_bytes(b"secret")
    for wide, who in ((0o644, "every user"), (0o640, "its group"), (0o604, "every user")):
        key.chmod(wide)
        found = files.exposure(key)
        assert found is not None
        assert str(found).startswith(f"{who} of this machine can open {key}")
        assert found.mends == f"chmod go-rwx '{key}'"
        assert os.system(found.mends) == 0
        assert mode(key) == 0o600
        assert files.exposure(key) is None


def test_closed_folders_protect_what_is_inside(reachable: Path) -> None:
    inside = reachable / "folder" / "inside"
    inside.mkdir(parents=True)
    inside.chmod(0o755)
    inside.parent.chmod(0o755)
    found = files.exposure(inside)
    assert found is not None
    assert found.mends == f"chmod -R go-rwx {inside}"
    inside.parent.chmod(0o700)
    assert files.exposure(inside) is None
    inside.parent.chmod(0o750)
    found = files.exposure(inside)
    assert found is not None
    assert str(found).startswith("its group")


def test_a_group_may_be_allowed(reachable: Path) -> None:
    folder = reachable / "shared"
    files.make_folder(folder, GROUP)
    assert files.exposure(folder, allowed=0o070) is None
    folder.chmod(0o2775)
    found = files.exposure(folder, allowed=0o070)
    assert found is not None
    assert found.mends == f"chmod -R o-rwx {folder}"
    assert os.system(found.mends) == 0
    assert files.exposure(folder, allowed=0o070) is None


def test_nothing_is_no_exposure(tmp_path: Path) -> None:
    assert files.exposure(tmp_path / "none" / "there") is None
