"""A layer as Podman has it, and back."""

from __future__ import annotations

import io
import os
import socket
import stat
import subprocess
import tarfile
from pathlib import Path

import msgspec
import pytest

from holdfast.model.errors import Corrupt, Unsupported
from holdfast.oci.layer import capture
from holdfast.oci.layer.entry import Entry, read_entries
from holdfast.oci.layer.extract import extract
from holdfast.oci.podman.rootfs import Losses, write_layer, write_tar

CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")  # cap_net_raw+ep


def fill(upper: Path) -> None:
    (upper / "etc").mkdir(mode=0o750)
    os.mknod(upper / "etc/doomed", stat.S_IFCHR, os.makedev(0, 0))
    (upper / "etc/new").write_text("new")
    os.link(upper / "etc/new", upper / "a-link")  # sorts before what it was a link to
    os.symlink("/nowhere/at all", upper / "link")
    with (upper / "sparse").open("wb") as file:
        file.truncate(5_000_000)
        file.seek(2_000_000)
        file.write(b"data" * 5000)
        file.seek(4_000_000)
        file.write(b"more")
    os.mkfifo(upper / "pipe", 0o640)
    os.mknod(upper / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (upper / "ping").write_bytes(b"elf")
    os.chown(upper / "ping", 12, 34)
    os.chmod(upper / "ping", 0o4755)
    os.setxattr(upper / "ping", "security.capability", CAPABILITY)
    os.setxattr(upper / "etc", "user.note", b"\x00\xffbinary")
    (upper / os.fsdecode(b"not-utf8-\xff\xfe")).write_text("bytes")


def layer_of(upper: Path) -> bytes:
    out = io.BytesIO()
    capture.write(str(upper), out)
    return out.getvalue()


def contents(layer: bytes) -> list[tuple[Entry, bytes]]:
    """Entries, and files without their holes."""
    found = []
    stream = io.BytesIO(layer)
    for entry in read_entries(stream):
        data = bytearray(entry.z)
        for offset, length in entry.e:
            data[offset : offset + length] = stream.read(length)
        plain = msgspec.structs.replace(entry, e=())
        found.append((plain, bytes(data)))
    return found


def converted(layer: bytes) -> tuple[bytes, Losses, bytes]:
    tar, back = io.BytesIO(), io.BytesIO()
    losses = write_tar(io.BytesIO(layer), tar)
    tar.seek(0)
    with tarfile.open(fileobj=tar) as opened:
        write_layer(opened, losses.deleted, back)
    return tar.getvalue(), losses, back.getvalue()


def test_there_and_back(tmp_path: Path) -> None:
    fill(tmp_path)
    layer = layer_of(tmp_path)
    _, losses, back = converted(layer)
    assert losses == Losses(("/etc/doomed",), ())
    assert contents(back) == contents(layer)


@pytest.mark.parametrize(
    "time", [0, -1, -1_500_000_000, 1_700_000_000_999_999_999, 1_763_294_400_123_450_511, 2**62 + 1]
)
def test_times_are_exact(tmp_path: Path, time: int) -> None:
    (tmp_path / "file").write_text("old")
    os.utime(tmp_path / "file", ns=(time, time))
    layer = layer_of(tmp_path)
    _, _, back = converted(layer)
    assert contents(back) == contents(layer)
    assert contents(back)[1][0].n == time


def test_others_read_the_same_times(tmp_path: Path) -> None:
    time = 1_763_294_400_123_450_511
    upper, theirs = tmp_path / "upper", tmp_path / "theirs"
    upper.mkdir()
    theirs.mkdir()
    (upper / "file").write_text("old")
    os.utime(upper / "file", ns=(time, time))
    tar, _, _ = converted(layer_of(upper))
    subprocess.run(["tar", "-x", "-C", theirs, "file"], input=tar, check=True)
    assert (theirs / "file").stat().st_mtime_ns == time


@pytest.mark.parametrize("text", ["nan", "inf", "1e5", " ", "1.2.3", "9" * 30, "9" * 6000])
def test_a_time_that_is_none(text: str) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as made:
        info = tarfile.TarInfo("file")
        info.pax_headers = {"mtime": text}
        made.addfile(info)
    tar.seek(0)
    with tarfile.open(fileobj=tar) as opened, pytest.raises(Corrupt, match="time"):
        write_layer(opened, [], io.BytesIO())


def test_what_podman_has_no_word_for(tmp_path: Path) -> None:
    (tmp_path / "anew").mkdir()
    os.setxattr(tmp_path / "anew", "trusted.overlay.opaque", b"y")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    tar, losses, _ = converted(layer_of(tmp_path))
    assert losses.replaced == ("/anew",)
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        assert opened.getnames() == [".", "anew"]  # whoever listens makes the socket again
    os.setxattr(tmp_path / "anew", "trusted.overlay.redirect", b"/old")
    with pytest.raises(Unsupported):
        converted(layer_of(tmp_path))


def test_directories_that_podman_takes_for_granted(tmp_path: Path) -> None:
    """Its tar names a file alone; the directories above it are to stay as the image has them."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as made:
        info = tarfile.TarInfo("tmp/new")
        info.size = 3
        made.addfile(info, io.BytesIO(b"new"))
    tar.seek(0)
    layer = io.BytesIO()
    with tarfile.open(fileobj=tar) as opened:
        write_layer(opened, ["/home/app/gone"], layer)
    below, upper = tmp_path / "below", tmp_path / "upper"
    (below / "tmp").mkdir(parents=True)
    (below / "tmp").chmod(0o1777)
    (below / "home/app").mkdir(parents=True)
    os.chown(below / "home/app", 77, 78)
    below.chmod(0o555)
    upper.mkdir()
    layer.seek(0)
    extract(layer, str(upper), below=str(below))
    assert stat.S_IMODE((upper / "tmp").stat().st_mode) == 0o1777
    assert (upper / "tmp/new").read_text() == "new"
    assert (upper / "home/app").stat().st_uid == 77
    assert stat.S_ISCHR((upper / "home/app/gone").lstat().st_mode)
    assert stat.S_IMODE(upper.stat().st_mode) == 0o555
    # And it goes back to Podman as it came: without them.
    again = io.BytesIO()
    losses = write_tar(io.BytesIO(layer.getvalue()), again)
    again.seek(0)
    with tarfile.open(fileobj=again) as opened:
        assert opened.getnames() == ["tmp/new"]
    assert losses.deleted == ("/home/app/gone",)


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "a//b", "a/./b"])
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as made:
        made.addfile(tarfile.TarInfo(name))
    tar.seek(0)
    with tarfile.open(fileobj=tar) as opened, pytest.raises(Corrupt):
        write_layer(opened, [], io.BytesIO())
    with tarfile.open(fileobj=io.BytesIO(bytes(10240))) as opened, pytest.raises(Corrupt):
        write_layer(opened, [name], io.BytesIO())


def test_a_link_to_nothing(tmp_path: Path) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as made:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.LNKTYPE, "/etc/shadow"
        made.addfile(info)
    tar.seek(0)
    with tarfile.open(fileobj=tar) as opened, pytest.raises(Corrupt):
        write_layer(opened, [], io.BytesIO())
