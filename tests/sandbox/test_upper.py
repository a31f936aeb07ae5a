"""The writable layer as a stream: everything an overlay and gVisor look at survives."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt, HoldfastError
from holdfast.sandbox.upper import pack, unpack, write


def packed(folder: Path) -> bytes:
    return b"".join(pack(folder))


def described(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        link = os.readlink(path) if path.is_symlink() else ""
        size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
        found[str(path.relative_to(folder))] = (
            *(status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, status.st_rdev),
            *(size, content, link),
        )
    return found


def test_holes_stay_holes(tmp_path: Path) -> None:
    """A program may make files with more of them than its disk has room."""
    upper, target, file = tmp_path / "upper", tmp_path / "target", tmp_path / "file"
    upper.mkdir()
    target.mkdir()
    with open(upper / "sparse", "xb") as sparse:
        for at, data in ((5000, b"some"), (30 << 20, b"more"), (45 << 20, bytes(8192) + b"x" * 9)):
            sparse.seek(at)
            sparse.write(data)
    os.truncate(upper / "sparse", (60 << 20) + 77)
    (upper / "nothing").write_bytes(b"")
    before = described(upper)
    with open(file, "xb") as packing:
        write(packing, pack(upper))
    assert file.read_bytes() == packed(upper)
    with open(file, "rb") as packing:
        unpack(packing, target)
    assert described(target) == before
    assert max(each.stat().st_blocks * 512 for each in (file, target / "sparse")) < 1 << 20


def test_holes_are_not_read(tmp_path: Path) -> None:
    """A program makes terabytes of them in no time, and they must not take any to keep either."""
    upper, target = tmp_path / "upper", tmp_path / "target"
    upper.mkdir()
    target.mkdir()
    for number in range(3):
        with open(upper / f"ü{number}", "xb") as file:
            file.seek(number << 40)
            file.write(b"end")
    (upper / "behind").write_bytes(b"b" * 700)
    before = {each.name: each.stat().st_size for each in upper.iterdir()}
    data = packed(upper)
    assert len(data) < 64 << 10
    unpack(io.BytesIO(data), target)
    assert {each.name: each.stat().st_size for each in target.iterdir()} == before
    with open(target / "ü2", "rb") as file:
        file.seek(2 << 40)
        assert file.read() == b"end"
    assert (target / "behind").read_bytes() == b"b" * 700
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:  # as everybody reads it
        found = archive.getmember("ü1")
        assert (found.size, found.issparse()) == ((1 << 40) + 3, True)


def names_in(data: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [info.name for info in archive]


def packed_while(upper: Path, change: Callable[[], object], *, at_rest: bool) -> bytes:
    """The layer, of which something is changed when its first file is being packed."""
    packing = pack(upper, at_rest=at_rest)
    first = next(packing) + next(packing)
    change()
    return first + b"".join(packing)


def test_what_vanishes_is_left_out(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    (tmp_path / "folder").mkdir()

    def change() -> None:
        (tmp_path / "b").unlink()
        (tmp_path / "c").rename(tmp_path / "d")
        (tmp_path / "folder").rmdir()

    found = names_in(packed_while(tmp_path, change, at_rest=False))
    assert found == [".", "a", "d"]


def test_a_folder_that_changes_is_read_again(tmp_path: Path) -> None:
    """A file that gets another name meanwhile is there under one of both."""
    for number in range(5):
        (tmp_path / f"{number}").write_text("x")
    packing = pack(tmp_path, at_rest=False)
    data = next(packing) + next(packing)  # the folder, and the first file in it
    (tmp_path / "4").rename(tmp_path / "00")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "inner").write_text("x")
    found = names_in(data + b"".join(packing))
    assert found == [".", "0", "1", "2", "3", "00", "new", "new/inner"]


def test_at_rest_nothing_may_vanish(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    with pytest.raises(HoldfastError, match="No such file"):
        packed_while(tmp_path, (tmp_path / "b").unlink, at_rest=True)


def test_a_file_that_shrinks_ends_in_zeros(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (3 << 20))
    packing = pack(tmp_path, at_rest=False)
    data = b"".join(next(packing) for _ in range(3))  # the folder, a header, a first piece
    os.truncate(tmp_path / "a", 2 << 20)
    (tmp_path / "b").write_text("behind")
    data += b"".join(packing)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        content = archive.extractfile("a")
        assert content is not None
        assert content.read() == b"x" * (2 << 20) + bytes(1 << 20)
        assert "b" in archive.getnames()


def test_no_link_in_place_of_a_folder_is_followed(tmp_path: Path) -> None:
    """Or a program that runs meanwhile would have files of the host in its checkpoint."""
    upper, outside = tmp_path / "upper", tmp_path / "outside"
    (upper / "folder" / "deep").mkdir(parents=True)
    (upper / "a").write_text("first")
    (outside / "deep").mkdir(parents=True)
    for place in (upper / "folder", upper / "folder" / "deep", outside, outside / "deep"):
        (place / "file").write_text("secret" if outside in (place, place.parent) else "own")

    def change() -> None:
        (upper / "folder").rename(upper / "moved")
        (upper / "folder").symlink_to(outside)

    assert b"secret" not in packed_while(upper, change, at_rest=False)


def test_a_layer_comes_back_as_it_was(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.fail("whiteouts and owners need root: run the tests as root")
    upper = tmp_path / "upper"
    (upper / "d" / "empty").mkdir(parents=True)
    (upper / "d" / "file").write_bytes(os.urandom(100_000))
    (upper / "d" / "file").chmod(0o4711)
    os.chown(upper / "d" / "file", 60999, 60999)
    os.utime(upper / "d" / "file", ns=(1, 1_700_000_000_123_456_789))
    os.link(upper / "d" / "file", upper / "same")
    (upper / "link").symlink_to("/etc/passwd")
    os.mkfifo(upper / "pipe")
    os.mknod(upper / "gone", stat.S_IFCHR, os.makedev(0, 0))
    os.setxattr(upper / "d", "trusted.overlay.opaque", b"y")
    (upper / "long").mkdir()
    (upper / "long" / ("ü" * 120)).write_text("x")
    (upper / "bytes").write_bytes(b"")
    os.rename(upper / "bytes", os.fsencode(upper) + b"/\xff\xfe")
    os.utime(upper, ns=(5, 5_000_000_007))
    before = described(upper)
    data = packed(upper)
    target = tmp_path / "target"
    target.mkdir()
    unpack(io.BytesIO(data), target)
    assert described(target) == before
    assert os.getxattr(target / "d", "trusted.overlay.opaque") == b"y"
    assert (target / "same").stat().st_ino == (target / "d/file").stat().st_ino
    assert packed(target) == data  # stable, so that the store keeps it once


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    stream.seek(0)
    return stream


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "members",
    [
        [(entry("../evil"), b"x")],
        [(entry("/evil"), b"x")],
        [(entry("a/../../evil"), b"x")],
        [(entry("out", tarfile.SYMTYPE, ".."), b""), (entry("out/evil"), b"x")],
        [(entry("hard", tarfile.LNKTYPE, "../secret"), b"")],
        [(entry("disk", tarfile.BLKTYPE), b"")],
    ],
)
def test_nothing_is_written_outside(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    (tmp_path / "secret").write_text("s")
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(Corrupt):
        unpack(archive(*members), target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "target"]
    assert (tmp_path / "secret").stat().st_nlink == 1


def test_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(Corrupt):
        unpack(io.BytesIO(b"no archive at all" * 100), tmp_path)
