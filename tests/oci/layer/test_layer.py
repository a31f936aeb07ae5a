"""A writable layer survives: on a real overlay, seen through the mount before and after."""

from __future__ import annotations

import io
import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt, Unsupported
from holdfast.model.mounts import parse_mountinfo
from holdfast.oci.layer import capture
from holdfast.oci.layer.entry import MAGIC, Entry, encode, read_entries
from holdfast.oci.layer.extract import empty, extract, is_empty
from holdfast.oci.overlay import find_overlay, overlay_at

CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")  # cap_net_raw+ep


class Stage:
    """An overlay over a lower layer that has something to hide and something to delete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lower = folder / "lower"
        self.upper = folder / "upper"
        self.merged = folder / "rootfs"
        for each in (self.lower, self.upper, self.merged, folder / "work"):
            each.mkdir(parents=True)
        (self.lower / "etc").mkdir()
        (self.lower / "etc/doomed").write_text("old")
        (self.lower / "etc/kept").write_text("old")
        (self.lower / "var/old").mkdir(parents=True)
        (self.lower / "var/old/hidden").write_text("old")
        self.mounted = False

    def mount(self) -> None:
        options = f"lowerdir={self.lower},upperdir={self.upper},workdir={self.folder / 'work'}"
        words = ["mount", "-t", "overlay", "overlay", "-o", options, str(self.merged)]
        subprocess.run(words, check=True)
        self.mounted = True

    def unmount(self) -> None:
        if self.mounted:
            subprocess.run(["umount", str(self.merged)], check=True)
            self.mounted = False


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    it = Stage(tmp_path / "with space")
    try:
        it.mount()
        yield it
    finally:
        it.unmount()


def look(top: Path) -> dict[str, tuple[object, ...]]:
    """Everything that a process in the container could see."""
    seen: dict[str, tuple[object, ...]] = {}
    inodes: dict[int, str] = {}
    for folder, folders, files in os.walk(top):
        for name in sorted([*folders, *files, "."]):
            path = Path(folder, name)
            info = path.lstat()
            mode = stat.S_IFMT(info.st_mode)
            content: object = None
            if mode == stat.S_IFLNK:
                content = os.readlink(path)
            elif mode == stat.S_IFREG:
                content = (path.read_bytes(), inodes.setdefault(info.st_ino, name))
            attributes = {
                key: os.getxattr(path, key, follow_symlinks=False)
                for key in os.listxattr(path, follow_symlinks=False)
            }
            times = info.st_mtime_ns
            seen[str(path.relative_to(top))] = (
                info.st_mode,
                info.st_uid,
                info.st_gid,
                times,
                info.st_rdev,
                attributes,
                content,
            )
    return seen


def write_everything(root: Path) -> None:
    """What containers do to their files."""
    (root / "etc/doomed").unlink()
    subprocess.run(["rm", "-r", str(root / "var/old")], check=True)
    (root / "var/old").mkdir()
    (root / "var/old/new").write_text("new")
    (root / "etc/kept").write_text("changed")
    (root / "a").mkdir(mode=0o750)
    (root / "a/file").write_bytes(os.urandom(3_000_000))
    (root / "a.b").write_text("after a, before a/file in a plain sort")
    (root / "a/empty").touch()
    os.link(root / "a/file", root / "hard")
    os.symlink("/nowhere/at all", root / "link")
    with (root / "sparse").open("wb") as file:
        file.truncate(50_000_000)
        file.seek(20_000_000)
        file.write(b"data" * 5000)
    os.mkfifo(root / "pipe", 0o640)
    os.mknod(root / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as listener:
        there = os.open(root, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{there}/socket")
        os.close(there)
    (root / "ping").write_bytes(b"elf")
    os.chown(root / "ping", 12, 34)
    os.chmod(root / "ping", 0o4755)
    os.setxattr(root / "ping", "security.capability", CAPABILITY)
    os.setxattr(root / "a", "user.note", b"\x00\xffbinary")
    os.setxattr(root / "a/file", "trusted.mark", b"t")
    (root / os.fsdecode(b"not-utf8-\xff\xfe")).write_text("bytes")
    os.chown(root / "link", 5, 6, follow_symlinks=False)
    os.utime(root / "a", ns=(1_500_000_000_123_456_789,) * 2)
    os.utime(root / "link", ns=(1_400_000_000_000_000_001,) * 2, follow_symlinks=False)
    (root / "a").chmod(0o2751)


def captured(upper: Path) -> bytes:
    out = io.BytesIO()
    capture.write(str(upper), out)
    return out.getvalue()


def test_everything_comes_back(stage: Stage, tmp_path: Path) -> None:
    write_everything(stage.merged)
    before = look(stage.merged)
    stream = captured(stage.upper)
    assert len(stream) < 4_000_000  # holes are not stored

    other = Stage(tmp_path / "other")
    (other.upper / "left behind").write_text("by somebody else")
    extract(io.BytesIO(stream), str(other.upper))
    other.mount()
    try:
        assert look(other.merged) == before
        assert not (other.merged / "etc/doomed").exists()
        assert os.listdir(other.merged / "var/old") == ["new"]
        assert (other.merged / "sparse").stat().st_blocks * 512 < 1_000_000
        hard, file = (other.merged / "hard").stat(), (other.merged / "a/file").stat()
        assert (hard.st_ino, hard.st_nlink) == (file.st_ino, 2)
        assert os.listdir(other.lower / "etc") == os.listdir(stage.lower / "etc")
    finally:
        other.unmount()
    assert captured(other.upper) == stream  # and the same stream again


def test_into_the_layer_of_a_fresh_mount(stage: Stage, tmp_path: Path) -> None:
    """As at create: the engine has mounted the root, and nobody has looked into it yet."""
    other = Stage(tmp_path / "other")
    other.mount()
    write_everything(other.merged)
    before = look(other.merged)
    stream = captured(other.upper)
    other.unmount()
    extract(io.BytesIO(stream), str(stage.upper))
    assert look(stage.merged) == before


def test_a_layer_is_emptied(stage: Stage) -> None:
    write_everything(stage.merged)
    stage.unmount()
    assert not is_empty(str(stage.upper))
    empty(str(stage.upper))
    assert is_empty(str(stage.upper))


def test_deep_directories(tmp_path: Path) -> None:
    upper, again = tmp_path / "upper", tmp_path / "again"
    deep = upper.joinpath(*["d"] * 600)
    deep.mkdir(parents=True)
    (deep / "file").write_text("down here")
    again.mkdir()
    extract(io.BytesIO(captured(upper)), str(again))
    assert again.joinpath(*["d"] * 600, "file").read_text() == "down here"


def test_the_overlay_is_found_by_its_mount_point(stage: Stage) -> None:
    found = find_overlay(str(stage.folder), {"root": {"path": "rootfs"}})
    assert Path(found.upper) == stage.upper
    link = stage.folder / "alias"
    link.symlink_to("rootfs")
    assert find_overlay(str(stage.folder), {"root": {"path": "alias"}}) == found
    with pytest.raises(Unsupported, match="no mount"):
        find_overlay(str(stage.folder), {"root": {"path": "lower"}})


def line(point: str, kind: str, options: str) -> bytes:
    return f"36 35 98:0 / {point} rw,noatime - {kind} src {options}\n".encode()


def test_mountinfo_is_read_as_fields() -> None:
    table = (
        line("/c/rootfs", "ext4", "rw")
        + line("/c/rootfs", "overlay", "rw,lowerdir=/l\\134:1:/l2,upperdir=/u\\0401,workdir=/w")
        + line("/c/rootfs2", "overlay", "rw,lowerdir=/x,upperdir=/wrong,workdir=/w")
        + line("/c/readonly", "overlay", "ro,lowerdir=/x:/y")
        + line("/c/indexed", "overlay", "rw,lowerdir=/x,upperdir=/u,workdir=/w,index=on")
        + line("/c/plain", "ext4", "rw")
    )
    mounts = parse_mountinfo(table)
    found = overlay_at(mounts, "/c/rootfs")
    assert (found.upper, found.lower) == ("/u 1", ("/l:1", "/l2"))
    for point, words in (
        ("/c/readonly", "read-only"),
        ("/c/indexed", "index"),
        ("/c/plain", "ext4"),
        ("/c/root", "no mount"),
    ):
        with pytest.raises(Unsupported, match=words):
            overlay_at(mounts, point)


TOP = Entry(t="d", m=0o755)


def stream_of(*entries: Entry, count: int | None = None, end: bool = True) -> bytes:
    tail = encode(Entry(t="end", k=len(entries) if count is None else count)) if end else b""
    return MAGIC + b"".join(map(encode, entries)) + tail


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"GARBAGE!",
        stream_of(TOP, end=False),
        stream_of(TOP, count=5),
        stream_of(Entry(t="f", p=b"a")),
        stream_of(TOP, Entry(t="f", p=b"../a")),
        stream_of(TOP, Entry(t="f", p=b"/etc/passwd")),
        stream_of(TOP, Entry(t="d", p=b"a"), Entry(t="f", p=b"a/../../b")),
        stream_of(TOP, Entry(t="l", p=b"a", l=b"/etc"), Entry(t="f", p=b"a/passwd")),
        stream_of(TOP, Entry(t="f", p=b"a"), Entry(t="f", p=b"a")),
        stream_of(TOP, Entry(t="f", p=b"b"), Entry(t="f", p=b"a")),
        stream_of(TOP, Entry(t="f", p=b"nowhere/a")),
        stream_of(TOP, Entry(t="h", p=b"a", l=b"/etc/shadow")),
        stream_of(TOP, Entry(t="h", p=b"a", l=b"../../etc/shadow")),
        stream_of(TOP, Entry(t="f", p=b"a\0b")),
        stream_of(TOP, Entry(t="f", p=b"a", z=10, e=((5, 20),)), end=False) + bytes(20),
        stream_of(TOP, Entry(t="f", p=b"a", z=10, e=((0, 10),)), end=False) + b"short",
        MAGIC + b"\xff\xff\xff\xff",
    ],
)
def test_a_bad_stream_is_refused_and_nothing_outside_is_touched(
    stream: bytes, tmp_path: Path
) -> None:
    upper = tmp_path / "upper"
    upper.mkdir()
    with pytest.raises(Corrupt):
        extract(io.BytesIO(stream), str(upper))
    assert os.listdir(tmp_path) == ["upper"]


@given(st.data())
def test_a_damaged_stream_never_crashes_the_reader(data: st.DataObject) -> None:
    stream = bytearray(
        stream_of(
            TOP,
            Entry(t="d", p=b"a", x={b"user.x": b"1"}),
            Entry(t="l", p=b"a/l", l=b"x"),
            Entry(t="w", p=b"b"),
        )
    )
    for at in data.draw(st.lists(st.integers(0, len(stream) - 1), min_size=1, max_size=4)):
        stream[at] = data.draw(st.integers(0, 255))
    try:
        found = list(read_entries(io.BytesIO(bytes(stream))))
    except Corrupt:
        return
    # What is let through could be laid out: each path once, none leading out of the layer.
    assert (found[0].t, found[0].p) == ("d", b"")
    paths = [entry.p for entry in found]
    assert len(set(paths)) == len(paths)
    assert not {b"", b".", b".."} & {part for path in paths[1:] for part in path.split(b"/")}
