"""Increments are made whole, and older ones compressed, without a container: nothing is lost by it,
whenever it is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.disk import Disk, Sync
from holdfast.model.errors import Corrupt
from holdfast.oci.compaction import Generation, Occasion, Plan, compact, plan
from holdfast.oci.memory.pagemap import Pagemap, is_increment, pagemaps
from holdfast.oci.path_vault import PathVault
from holdfast.oci.places import exchange
from holdfast.oci.policy import Policy
from holdfast.oci.private import private_folder
from holdfast.oci.vault import MEMORY, Saved
from holdfast.store.keys import Key, Keyring, load_keyring
from holdfast.testing.dumps import Dump, a_dump, read, write
from holdfast.testing.vaults import SUBJECT
from holdfast.testing.waiting import eventually

KEYRING = Keyring(Key.generate())


class Unsynced(Disk):
    """Nobody pulls the plug here."""

    def sync_file(self, fd: int, what: Sync) -> None:
        pass

    def sync_directory(self, path: Path, what: Sync) -> None:
        pass


def a_vault(folder: Path) -> PathVault:
    return PathVault(folder, lambda: KEYRING, disk=Unsynced())


def put(vault: PathVault, dump: Dump, layer: bytes = b"HFLAYER1...") -> Saved:
    staged = vault.stage()
    private_folder(staged / "files")
    write(staged / MEMORY, dump)
    (staged / "files/upper").write_bytes(layer)
    (staged / "environment").write_text("{}")
    return vault.save(SUBJECT, staged, "a reason")


def fetched(vault: PathVault, saved: Saved, scratch: Path) -> Dump:
    """Every byte of a checkpoint, verified."""
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        return read(vault.fetch(saved, Path(place)) / MEMORY)


def generations(parents: str) -> list[Generation]:
    """`3:2 2:1 1` are three, newest first; a star says that one is compressed."""
    found = []
    for word in parents.split():
        name, _, parent = word.rstrip("*").partition(":")
        found.append(Generation(name, parent or None, word.endswith("*")))
    return found


@pytest.mark.parametrize(
    ("parents", "occasion", "settings", "fold", "compress"),
    [
        ("", "running", {}, "", ""),
        ("1", "resting", {}, "", ""),
        ("2:1 1", "running", {}, "", ""),  # the newest needs it, and the line is short
        ("3:2 2:1 1", "running", {"line": 3}, "2", ""),
        ("3:2 2:1 1", "running", {"line": 3, "keep": 1}, "3", ""),
        ("2:1 1", "running", {"line": 2}, "2", "1"),  # and then nothing leans on the first
        ("5:4 4:3 3:2 2:1 1", "running", {"line": 5, "keep": 9}, "3", "1 2"),
        ("3 2 1", "running", {"line": 1}, "", "2"),
        ("3 2* 1", "running", {"line": 1}, "", ""),
        ("3 2 1", "running", {"line": 1, "zstd": "all"}, "", "2 3"),
        ("3 2 1", "running", {"line": 1, "zstd": "never"}, "", ""),
        ("3:2 2:1 1", "resting", {}, "2 3", "2"),
        ("3:2 2:1 1", "resting", {"zstd": "never"}, "2 3", ""),
        ("3:2 2:1 1", "archive", {"zstd": "never"}, "2 3", "2 3"),
        ("4:3 3:2 2:1 1", "resting", {"keep": 3}, "2 4", "2 3"),
    ],
)
def test_what_follows_for_which_checkpoints(
    parents: str, occasion: Occasion, settings: dict[str, object], fold: str, compress: str
) -> None:
    policy = Policy(**settings)  # type: ignore[arg-type]
    wanted = Plan(tuple(fold.split()), tuple(compress.split()))
    assert plan(generations(parents), policy, occasion) == wanted


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    dumps=st.lists(a_dump(), min_size=1, max_size=6),
    keep=st.integers(1, 4),
    line=st.integers(1, 4),
    occasions=st.lists(st.sampled_from(["running", "resting", "archive"]), min_size=6, max_size=6),
)
def test_every_kept_one_stays_what_it_was(
    tmp_path: Path, dumps: list[Dump], keep: int, line: int, occasions: list[Occasion]
) -> None:
    """Maps come and go, are of one side only or shared, and all of it is compacted at any time."""
    top = Path(tempfile.mkdtemp(dir=tmp_path))
    vault = a_vault(top / "base")
    policy = Policy(keep=keep, line=line)
    known: dict[str, Dump] = {}
    for dump, occasion in zip(dumps, occasions, strict=False):
        known[put(vault, dump).id] = dump
        _, trouble = compact(vault, SUBJECT, policy, occasion)
        assert trouble == []
        found = vault.list(SUBJECT)
        assert found[0].id == max(known)
        assert {each.id for each in found[:keep]} <= known.keys()
        for saved in found:
            assert fetched(vault, saved, top) == known[saved.id]
        if occasion != "running":
            assert len(vault.line(SUBJECT, found[0].id)) == 1
            assert len(found) <= keep
    assert not list((top / "base/.staging").iterdir())


def images(folder: Path) -> bool:
    """Whether CRIU could restore a folder of images without any other."""
    return not is_increment(folder) and not any(
        entry.in_parent
        for name in pagemaps(folder)
        for entry in Pagemap.read(folder / name).entries
    )


def test_compressed_it_is_smaller_and_comes_back(tmp_path: Path) -> None:
    vault = a_vault(tmp_path / "base")
    dump = {"pagemap-1.img": dict.fromkeys(range(1, 200), 7)}
    layer = b"HFLAYER1" + bytes(300_000)
    saved = put(vault, dump, layer)
    done, _ = compact(vault, SUBJECT, Policy(), "archive")
    assert done.plan == Plan((), (saved.id,))
    assert done.bytes_after * 20 < done.bytes_before
    again = put(vault, {"pagemap-1.img": {**dump["pagemap-1.img"], 5: 8}})
    place = vault.place(SUBJECT, again.id)
    assert is_increment(place / MEMORY)  # it leans on what is compressed
    (tmp_path / "scratch").mkdir()
    folder = vault.fetch(again, tmp_path / "scratch")
    assert folder != place
    assert images(folder / MEMORY)
    assert read(folder / MEMORY)["pagemap-1.img"][5] == 8
    assert (vault.fetch(saved, tmp_path / "scratch") / "files/upper").read_bytes() == layer


def test_what_is_damaged_is_not_signed_again(tmp_path: Path) -> None:
    vault = a_vault(tmp_path / "base")
    put(vault, {"pagemap-1.img": {1: 1, 2: 2, 3: 3, 4: 4}})
    saved = put(vault, {"pagemap-1.img": {1: 1, 2: 2, 3: 3, 4: 5}})
    (vault.place(SUBJECT, saved.id) / "environment").write_text("[]")
    done, trouble = compact(vault, SUBJECT, Policy(keep=1), "resting")
    assert [type(each) for each in trouble] == [Corrupt]
    assert done.plan == Plan()
    assert len(vault.list(SUBJECT)) == 2  # and what it leans on stays
    assert is_increment(vault.place(SUBJECT, saved.id) / MEMORY)


def test_two_folders_change_places(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one/other").exists()
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "nowhere")


PROGRAM = """
import sys
from pathlib import Path
from holdfast.model.subject import Subject
from holdfast.oci.compaction import compact
from holdfast.oci.path_vault import PathVault
from holdfast.oci.policy import Policy
from holdfast.store.keys import load_keyring
vault = PathVault(Path(sys.argv[1]), load_keyring)
_, trouble = compact(vault, Subject.parse(sys.argv[2]), Policy(keep=1), "archive")
sys.exit(len(trouble))
"""
# Whatever changes a name or makes something durable is a step, and so is copying.
KILLS = [
    (call, number)
    for call in ("mkdir", "copy_file_range", "link", "fsync", "renameat2", "unlinkat", "rmdir")
    for number in (1, 2)
]


@pytest.fixture
def line(tmp_path: Path) -> tuple[PathVault, Dump]:
    """Three generations, each leaning on the one before; and what the last one is."""
    environ = {"HOLDFAST_HOME": str(tmp_path / "home")}
    vault = PathVault(tmp_path / "base", lambda: load_keyring(environ))
    pages = dict.fromkeys(range(1, 40), 1)
    for number in range(3):
        dump = {
            "pagemap-1.img": {**pages, number: 9},
            "pagemap-shmem-4.img": {**pages, 50 + number: 9},
            f"pagemap-{7 + number}.img": {1: number + 1},  # of one side only
        }
        put(vault, dump)
    return vault, dump


def compacted(vault: PathVault, home: Path, inject: str = "") -> int:
    """Compact in a process of its own; gives its exit code."""
    words = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject] if inject else []
    program = [sys.executable, "-c", PROGRAM, str(vault.base), str(SUBJECT)]
    environ = {**os.environ, "HOLDFAST_HOME": str(home)}
    return subprocess.run([*words, *program], env=environ, check=False).returncode


def test_killed_at_each_step_nothing_is_lost(line: tuple[PathVault, Dump], tmp_path: Path) -> None:
    vault, dump = line
    killed = 0
    for call, number in KILLS:
        code = compacted(vault, tmp_path / "home", f"inject={call}:signal=KILL:when={number}")
        killed += code == -signal.SIGKILL
        newest = vault.list(SUBJECT)[0]
        assert fetched(vault, newest, tmp_path) == dump, (call, number)
    assert killed > len(KILLS) / 2
    assert compacted(vault, tmp_path / "home") == 0
    (newest,) = vault.list(SUBJECT)
    assert vault.line(SUBJECT, newest.id) == [newest.id]
    assert fetched(vault, newest, tmp_path) == dump


def test_a_full_disk_leaves_all_as_it_was(line: tuple[PathVault, Dump], tmp_path: Path) -> None:
    vault, dump = line
    assert compacted(vault, tmp_path / "home", "inject=copy_file_range:error=ENOSPC") == 1
    newest, *older = vault.list(SUBJECT)
    assert len(older) == 2
    assert is_increment(vault.place(SUBJECT, newest.id) / MEMORY)
    assert fetched(vault, newest, tmp_path) == dump
    assert not list((vault.base / ".staging").iterdir())


def test_a_checkpoint_that_is_being_read_keeps_its_form(
    line: tuple[PathVault, Dump], tmp_path: Path
) -> None:
    vault, dump = line
    newest = vault.list(SUBJECT)[0]
    with ThreadPoolExecutor(1) as pool:
        with vault.reading(SUBJECT):
            folder = vault.fetch(newest, tmp_path)
            done = pool.submit(vault.rewrite, newest, whole=True, compress=True)
            eventually(
                lambda: next(vault.base.glob(".staging/*/manifest.json"), None) is not None,
                "the new form is ready",
            )
            assert is_increment(folder / MEMORY)
            assert read(folder / MEMORY) == dump
        done.result(60)
    assert not is_increment(vault.place(SUBJECT, newest.id) / MEMORY)
    assert fetched(vault, newest, tmp_path) == dump
