"""Archives in Podman's form, with real checkpoints and without Podman."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.main import main
from holdfast.model.errors import BadInput, Corrupt
from holdfast.model.subject import Subject
from holdfast.oci.podman.criu_files import loosen_root
from holdfast.oci.podman.exchange import read_archive
from holdfast.oci.podman.incoming import name_of, take_in
from holdfast.oci.store_vault import StoreVault
from holdfast.store import open_store
from holdfast.testing.bundles import Bundle
from holdfast.testing.waiting import eventually

COUNT = (
    "echo new > /etc/new; rm /etc/doomed;"
    " i=0; while :; do i=$((i+1)); echo $i >> /count; sleep .05; done"  # never empty
)
IMAGE = ("--image", "docker.io/library/holdfast-test:latest", "--image-id", "sha256:" + "ab" * 32)
# As Podman writes them; `devshm-checkpoint.tar`, `artifacts` and logs may be absent.
NAMES = {
    "config.dump",
    "spec.dump",
    "network.status",
    "stats-dump",
    "checkpoint",
    "checkpoint/inventory.img",
    "checkpoint/descriptors.json",
    "rootfs-diff.tar",
    "deleted.files",
}


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Bundle]:
    it = Bundle(tmp_path / "container", ["sh", "-c", COUNT])
    try:
        yield it
    finally:
        it.close()


def holdfast(bundle: Bundle, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "holdfast", "container", *words]
    return subprocess.run(
        program, capture_output=True, text=True, env=bundle.environ, timeout=100, check=False
    )


def test_out_and_in_again_under_another_name(bundle: Bundle, tmp_path: Path) -> None:
    bundle.runc("create")
    bundle.runc("start")
    eventually(lambda: bundle.count() > 3, "it counts")
    bundle.runc("checkpoint", "--leave-running")
    bundle.runc("checkpoint")  # an increment: the archive must need no other
    at = bundle.count()
    bundle.runc("delete")
    file = tmp_path / "tc.tar"
    done = holdfast(bundle, "export", "tc", str(file))
    assert done.returncode == 2, done.stderr  # nobody knows the image
    assert "--image" in done.stderr
    assert holdfast(bundle, "export", "tc", str(file), *IMAGE).returncode == 0
    assert file.stat().st_mode & 0o077 == 0
    assert holdfast(bundle, "export", "tc", str(file), *IMAGE).returncode == 4  # it is there
    with tarfile.open(file) as archive:
        assert set(archive.getnames()) >= NAMES
        assert "checkpoint/parent" not in archive.getnames()
        config = read(archive, "config.dump")
        assert config["rootfsImageID"] == "ab" * 32
        assert config["name"] == "tc"
        assert read(archive, "deleted.files") == ["/etc/doomed"]
        assert "org.criu.config" not in read(archive, "spec.dump")["annotations"]

    done = holdfast(bundle, "import", str(file), "--name", "runc/copy")
    assert done.returncode == 8  # nobody vouches for it
    assert "--trust" in done.stderr
    done = holdfast(bundle, "import", str(file), "--name", "runc/copy", "--trust")
    assert done.returncode == 0, done.stderr
    path = bundle.bundle / "config.json"
    changed = json.loads(path.read_text())
    changed["process"]["env"].append("HOLDFAST_NAME=copy")
    path.write_text(json.dumps(changed))
    bundle.renew()
    bundle.runc("create")
    bundle.runc("start")
    assert bundle.count() >= at
    assert (bundle.bundle / "rootfs/etc/new").read_text() == "new\n"
    assert not (bundle.bundle / "rootfs/etc/doomed").exists()
    eventually(lambda: bundle.count() > at, "it goes on")
    done = holdfast(bundle, "import", str(file), "--name", "runc/copy", "--trust")
    assert done.returncode == 4, done.stderr  # that one runs here
    assert bundle.leftovers() == []


def read(archive: tarfile.TarFile, name: str) -> dict[str, object]:
    stream = archive.extractfile(name)
    assert stream is not None
    found: dict[str, object] = json.loads(stream.read())
    return found


def archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return out.getvalue()


WHOLE = {
    "config.dump": b'{"name": "shop"}',
    "spec.dump": b'{"process": {"args": ["sh"]}}',
    "checkpoint/inventory.img": b"i",
    "checkpoint/files.img": bytes(8),
    "checkpoint/pstree.img": b"p",
    "checkpoint/tcp-stream-1.img": b"t",
}


@pytest.mark.parametrize("form", ["plain", "gzip", "zstd"])
def test_however_it_was_compressed(tmp_path: Path, form: str) -> None:
    data = archive(
        {**WHOLE, "checkpoint/../../outside": b"x", "/etc/outside": b"x", "checkpoint/a/b": b"x"}
    )
    pack = {"plain": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}[form]
    (tmp_path / "file").write_bytes(pack(data))
    assert name_of(tmp_path / "file") == "shop"
    take_in(tmp_path / "file", tmp_path / "staged")
    environment = json.loads((tmp_path / "staged/environment").read_text())
    assert environment["options"] == ["--tcp-established"]
    assert {path.name for path in (tmp_path / "staged/memory").iterdir()} == {
        name.rpartition("/")[2] for name in WHOLE if name.startswith("checkpoint/")
    }
    assert {path.name for path in tmp_path.iterdir()} == {"file", "staged"}


def test_from_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    (tmp_path / "in.tar").write_bytes(archive({**WHOLE, "deleted.files": b'["/etc/doomed"]'}))
    place = str(tmp_path / "store")
    with open_store(place, create=True) as store:
        vault = StoreVault(lambda: store, tmp_path / "work", tmp_path)
        read_archive(vault, Subject("container", "default/shop"), tmp_path / "in.tar", "a test")
    words = ["--store", place, "export", "container/default/shop", str(tmp_path / "out.tar")]
    assert main([*words, "--format", "podman", *IMAGE]) == 0
    with tarfile.open(tmp_path / "out.tar") as opened:
        assert read(opened, "config.dump")["name"] == "shop"
        assert read(opened, "deleted.files") == ["/etc/doomed"]
        assert "checkpoint/tcp-stream-1.img" in opened.getnames()


@pytest.mark.parametrize("lacking", ["config.dump", "spec.dump", "checkpoint/inventory.img"])
def test_what_is_no_archive_of_podmans(tmp_path: Path, lacking: str) -> None:
    file = tmp_path / "file"
    whole = archive(WHOLE)
    for data in (
        archive({name: data for name, data in WHOLE.items() if name != lacking}),
        archive({**WHOLE, "spec.dump": b"[]"}),
        archive({**WHOLE, "deleted.files": b'{"a": 1}'}),
        whole[: len(whole) // 4 + 100],
        b"HOLDFAST-ARCHIVE",
        b"",
    ):
        file.write_bytes(data)
        with pytest.raises(BadInput):
            take_in(file, tmp_path / "staged")


@given(st.binary(max_size=200))
def test_a_damaged_list_of_files(data: bytes) -> None:
    try:
        loosened = loosen_root(data)
    except Corrupt:
        return
    assert len(loosened) <= len(data)
