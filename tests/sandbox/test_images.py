"""Roots that are somebody else's: folders, tars, OCI layouts."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from tests.sandbox.foreign_roots import layout, packed, small_root

from holdfast.model.errors import BadInput, Corrupt, NotFound, Unsupported
from holdfast.sandbox import images, keeping, roots
from holdfast.sandbox.body import Workshop
from holdfast.sandbox.contract import Engine, Limits
from holdfast.sandbox.engines.gvisor import GvisorEngine
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.sandbox.start import Start


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, link
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


@pytest.mark.parametrize("engine", [ProcessEngine, GvisorEngine])
async def test_a_sandbox_in_a_root_without_python(engine: type[Engine], tmp_path: Path) -> None:
    lower, digest = images.prepare(small_root(tmp_path / "small"), tmp_path / "unpacked")
    root = roots.foreign("small", lower, tmp_path / "root", digest)
    body = await Workshop(engine(), tmp_path / "boxes").make(root, Limits(disk_bytes=16 << 20))
    try:
        await body.warm()  # nothing of what it begins is there
        script = "cat /etc/whose; echo $(cat /proc/self/status | while read a b; do"
        script += " [ $a = Uid: ] && echo $b; done); echo kept > /root/x; cat /root/x"
        process = await body.line.start(
            Start(argv=["/bin/sh", "-c", script], env={"PATH": root.path})
        )
        done = await asyncio.wait_for(process.wait(), 30)
        text = b"".join(piece.data for piece in process.replay.after(0)).decode()
        assert (done.code, text.splitlines()[0], text.splitlines()[-1]) == (0, "mine", "kept")
        assert "60999" in text
    finally:
        await body.end()
        await body.clear()
    assert not (tmp_path / "small" / "root" / "x").exists()


def test_a_tar(tmp_path: Path) -> None:
    source = tmp_path / "image.tar"
    source.write_bytes(packed(small_root(tmp_path / "small")))
    lower, digest = images.prepare(source, tmp_path / "out")
    assert (lower / "etc" / "whose").read_text() == "mine\n"
    assert (lower / "bin" / "sh").is_symlink()
    assert digest == "sha256:" + hashlib.sha256(source.read_bytes()).hexdigest()


def test_layers_and_what_they_delete(tmp_path: Path) -> None:
    first = tmp_path / "first"
    for name in ("a/gone", "a/stays", "b/old", "c"):
        (first / name).parent.mkdir(parents=True, exist_ok=True)
        (first / name).write_text(name)
    layers = [
        packed(first),
        member("a/.wh.gone"),
        member("b/.wh..wh..opq"),
        member("b/new", b"new"),
        member("c", b"replaced"),
    ]
    lower, digest = images.prepare(layout(tmp_path / "layout", *layers), tmp_path / "out")
    found = {str(p.relative_to(lower)): p.read_text() for p in lower.rglob("*") if p.is_file()}
    assert found == {"a/stays": "a/stays", "b/new": "new", "c": "replaced"}
    assert digest.startswith("sha256:")


def test_a_layer_puts_a_folder_for_a_file(tmp_path: Path) -> None:
    """And a file for a folder, also where it names only what is in it."""
    layers = [
        *(member("a", b"file"), member("b/inner", b"inner"), member("c", b"file")),
        *(member("a", kind=tarfile.DIRTYPE), member("b", b"now a file"), member("c/new", b"n")),
    ]
    lower, _ = images.prepare(layout(tmp_path / "layout", *layers), tmp_path / "out")
    assert (lower / "a").is_dir()
    assert (lower / "b").read_bytes() == b"now a file"
    assert (lower / "c" / "new").read_bytes() == b"n"


def test_a_changed_folder_is_another(tmp_path: Path) -> None:
    """Memory does not belong over it; files do."""
    small = small_root(tmp_path / "small")
    _, before = images.prepare(small, tmp_path / "unused")
    assert images.prepare(small, tmp_path / "unused") == (small.resolve(), before)
    (small / "usr" / "lib").mkdir(parents=True, exist_ok=True)
    (small / "usr" / "lib" / "libnew.so").write_text("x")
    _, after = images.prepare(small, tmp_path / "unused")
    assert not keeping.is_same_root(before, after, memory=True)
    assert keeping.is_same_root(before, after, memory=False)
    assert keeping.is_same_root(before.partition("#")[0], after, memory=True)  # of long ago
    assert not keeping.is_same_root(before, "folder:/elsewhere", memory=False)


def test_other_libraries_are_noticed(tmp_path: Path) -> None:
    libc = tmp_path / "libc.so.6"
    libc.write_bytes(b"one")
    before = images.fingerprint([libc, tmp_path / "none"])
    assert images.fingerprint([libc, tmp_path / "none"]) == before
    libc.write_bytes(b"another")
    assert images.fingerprint([libc, tmp_path / "none"]) != before
    assert "#" in roots.default(tmp_path / "root").digest


def test_owners_modes_times_and_links_are_kept(tmp_path: Path) -> None:
    stream = io.BytesIO()
    changed = 1_763_294_400_123_450_511
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, link, mode in (
            ("folder", tarfile.DIRTYPE, "", 0o1777),
            ("folder/tool", tarfile.REGTYPE, "", 0o4755),
            ("folder/same", tarfile.LNKTYPE, "folder/tool", 0o4755),
            ("folder/soft", tarfile.SYMTYPE, "/etc/absolute", 0o777),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, mode
            info.pax_headers = {"mtime": "1763294400.123450511"}
            # What the host calls that name has nothing to do with what the image means.
            info.uid, info.gid, info.uname = 4321, 1234, "root"
            archive.addfile(info)
    source = tmp_path / "image.tar"
    source.write_bytes(stream.getvalue())
    lower, _ = images.prepare(source, tmp_path / "out")
    tool = (lower / "folder" / "tool").stat()
    assert (tool.st_mode & 0o7777, tool.st_uid, tool.st_gid) == (0o4755, 4321, 1234)
    assert (tool.st_nlink, tool.st_mtime_ns) == (2, changed)
    assert (lower / "folder").stat().st_mode & 0o7777 == 0o1777
    soft = lower / "folder" / "soft"
    assert (str(soft.readlink()), soft.lstat().st_uid) == ("/etc/absolute", 4321)


@pytest.mark.parametrize(
    "layer",
    [
        member("../evil", b"x"),
        member("a/../../evil", b"x"),
        member("../.wh.victim"),
        member("out", kind=tarfile.SYMTYPE, link=".."),
        member("out", kind=tarfile.LNKTYPE, link="../victim"),
        member("out", kind=tarfile.LNKTYPE, link="nothing"),
    ],
)
def test_nothing_leads_outside(tmp_path: Path, layer: bytes) -> None:
    (tmp_path / "victim").write_text("still here")
    through = member("out/evil", b"x")
    evil = layout(tmp_path / "layout", layer, through)
    with pytest.raises(BadInput):
        images.prepare(evil, tmp_path / "out")
    assert (tmp_path / "victim").read_text() == "still here"
    assert not (tmp_path / "evil").exists()


def test_what_is_no_image(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        images.prepare(tmp_path / "none", tmp_path / "out")
    (tmp_path / "text").write_text("no image")
    with pytest.raises(BadInput):
        images.prepare(tmp_path / "text", tmp_path / "out1")
    broken = layout(tmp_path / "layout", member("a", b"x"))
    for blob in (broken / "blobs" / "sha256").iterdir():
        blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(Corrupt):
        images.prepare(broken, tmp_path / "out2")
    unknown = layout(tmp_path / "unknown", member("a", b"x"))
    for blob in (unknown / "blobs" / "sha256").iterdir():
        if b"layers" in blob.read_bytes():
            text = blob.read_bytes().replace(b"tar+gzip", b"tar+zstd")
            digest = hashlib.sha256(text).hexdigest()
            (blob.parent / digest).write_bytes(text)
            index = {"manifests": [{"digest": f"sha256:{digest}"}]}
            (unknown / "index.json").write_text(json.dumps(index))
            break
    with pytest.raises(Unsupported):
        images.prepare(unknown, tmp_path / "out3")
