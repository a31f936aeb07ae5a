"""A layer laid out through a mounted root: what is seen there is what the layer shows below it."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt, Unsupported
from holdfast.sandbox import merged, upper, volume
from holdfast.sandbox.volume import Volume

HELD = ("/proc", "/srv/tools")


@pytest.fixture
def lower(tmp_path: Path) -> Path:
    """A root with something of every kind in it."""
    place = tmp_path / "lower"
    for name in ("proc", "srv/tools", "etc/deep/er", "same", "replaced", "emptied/below", "home"):
        (place / name).mkdir(parents=True)
    for name in ("etc/a", "etc/b", "etc/deep/c", "replaced/d", "emptied/e", "emptied/below/f"):
        (place / name).write_text(name)
    (place / "link").symlink_to("etc")
    (place / "out").symlink_to(tmp_path)
    (place / "changed").write_text("as it was")
    (place / "file").write_text("becomes a folder")
    os.setxattr(place / "same", "user.note", b"of the root")
    return place


@pytest.fixture
def volumes(tmp_path: Path, lower: Path) -> Iterator[list[Volume]]:
    if os.geteuid() != 0:
        pytest.fail("an overlay needs root: run the tests as root")
    made = [volume.make(tmp_path / name, 16 << 20) for name in ("one", "two", "three", "four")]
    yield made
    for each in made:
        volume.clear(each)


def seen(root: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    links: dict[int, str] = {}
    for path in sorted([root, *root.rglob("*")]):
        status = path.lstat()
        name = str(path.relative_to(root))
        kind = status.st_mode
        folder = stat.S_ISDIR(kind)
        found[name] = (
            *(kind, status.st_uid, status.st_gid, status.st_mtime_ns),
            0 if folder else status.st_size,
            0 if folder else status.st_nlink,
            "" if folder else links.setdefault(status.st_ino, name),
            path.read_bytes() if stat.S_ISREG(kind) else b"",
            os.readlink(path) if path.is_symlink() else "",
            {
                key: os.getxattr(path, key, follow_symlinks=False)
                for key in os.listxattr(path, follow_symlinks=False)
            },
        )
    return found


def change(root: Path) -> None:
    """What programs may do to a root, as far as a layer can keep it."""
    (root / "etc/a").unlink()
    (root / "etc/b").chmod(0o4750)
    (root / "etc/deep/c").write_text("another")
    (root / "changed").write_bytes(os.urandom(3_000_000))
    (root / "file").unlink()
    (root / "file").mkdir(mode=0o700)
    (root / "file/in").write_text("it")
    shutil.rmtree(root / "replaced")
    (root / "replaced").write_text("a file now")
    shutil.rmtree(root / "emptied")
    (root / "emptied").mkdir()
    (root / "emptied/new").write_text("alone here")
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "link/in").write_text("no link")
    (root / "out").unlink()
    (root / "out").symlink_to("/nowhere")
    os.removexattr(root / "same", "user.note")
    os.setxattr(root / "home", "user.mine", b"\x00\xff")
    os.chown(root / "home", 60999, 60999)
    home = root / "home"
    (home / "first").write_text("one of two")
    os.link(home / "first", home / "second")
    os.chown(home / "first", 60999, 60999)
    os.mkfifo(home / "pipe", 0o640)
    (home / "deep" / "empty").mkdir(parents=True)
    (home / ("ü" * 80)).write_text("x")
    os.rename(home / "pipe", os.fsencode(home) + b"/\xff\xfe")
    os.utime(home / "second", ns=(7, 1_700_000_000_123_456_789))
    os.utime(root / "etc", ns=(9, 1_600_000_000_000_000_001))
    os.utime(root, ns=(5, 5_000_000_007))


def test_it_is_what_a_layer_below_shows(volumes: list[Volume], lower: Path) -> None:
    origin, cold, warm, again = volumes
    volume.mount_root(origin, lower)
    change(origin.merged)
    layer = b"".join(upper.pack(origin.upper))
    expected = seen(origin.merged)
    upper.unpack(io.BytesIO(layer), cold.upper)
    volume.mount_root(cold, lower)
    assert seen(cold.merged) == expected
    volume.mount_root(warm, lower)
    assert os.listdir(warm.merged / "emptied")  # the kernel has seen what will not be there
    merged.unpack(io.BytesIO(layer), warm.merged, HELD)
    assert seen(warm.merged) == expected
    # And it can be kept once more.
    upper.unpack(io.BytesIO(b"".join(upper.pack(warm.upper))), again.upper)
    volume.mount_root(again, lower)
    assert seen(again.merged) == expected
    assert (lower / "etc/a").read_text() == "etc/a"


@pytest.mark.parametrize("path", ["proc", "srv", "srv/tools"])
@pytest.mark.parametrize("how", ["gone", "new"])
def test_what_a_mount_is_on_is_not_removed(
    volumes: list[Volume], lower: Path, path: str, how: str
) -> None:
    origin, _, warm, _ = volumes
    volume.mount_root(origin, lower)
    shutil.rmtree(origin.merged / path)
    if how == "new":
        (origin.merged / path).mkdir()
    layer = b"".join(upper.pack(origin.upper))
    volume.mount_root(warm, lower)
    with pytest.raises(Unsupported, match="in the way"):
        merged.unpack(io.BytesIO(layer), warm.merged, HELD)
    assert (warm.merged / "srv/tools").is_dir()
    assert (warm.merged / "proc").is_dir()


@pytest.mark.parametrize("before", ["", "link"])
def test_no_link_leads_outside(
    volumes: list[Volume], lower: Path, tmp_path: Path, before: str
) -> None:
    """Neither one of the root, nor one that takes the place of a folder that was real."""
    volume.mount_root(volumes[0], lower)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        if before:
            for kind, name in ((tarfile.DIRTYPE, "out"), (tarfile.REGTYPE, "out/in")):
                info = tarfile.TarInfo(name)
                info.type = kind
                tar.addfile(info)
            link = tarfile.TarInfo("out")
            link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
            tar.addfile(link)
        tar.addfile(tarfile.TarInfo("out/evil"))
    stream.seek(0)
    with pytest.raises(Corrupt, match="through a link"):
        merged.unpack(stream, volumes[0].merged, HELD)
    assert not (tmp_path / "evil").exists()
