"""The writable layer as a stream: everything an overlay and gVisor look at survives."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt
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
