"""Restoring large memory: it is mapped, verified while the session runs, and damage is told."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.session.noted import Noted

from holdfast import sync
from holdfast.model.errors import Corrupt, HoldfastError
from holdfast.session import checkpoints
from holdfast.session.layout import Environment, Import, Sources
from holdfast.session.mapped import Mapped
from holdfast.session.worker.memory.overlay import Overlay
from holdfast.store import Store, open_store
from holdfast.store.slots import new_key_file

PAGE = 4096

MAKE = (
    "import numpy as np\n"
    "a = np.random.default_rng(1).standard_normal(700_000)\n"
    "same = a.copy()\nzero = np.zeros(400_000)\nv = a[10:500_000:7]\n"
    "f = np.asfortranarray(a[:600_000].reshape(800, 750))\n"
    "raw = bytearray(a.tobytes())\ntext = a.tobytes()\n"
    "t = np.arange(300_000).astype('M8[s]')"
)
LOOK = (
    "[float(a.sum()), float(same.sum()), float(v.sum()), float(f.sum()), float(zero.sum()),"
    " hash(bytes(raw)) == hash(text), str(t[-1]), v.base is a, f.flags.f_contiguous]"
)


def resident(session: sync.Session) -> int:
    """Bytes of anonymous memory that the worker has of its own."""
    assert session.pid
    status = Path(f"/proc/{session.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


@pytest.fixture
def place(tmp_path: Path) -> Store:
    return open_store(tmp_path / "large")


SCATTER = (
    "i = globals().get('i', 0) + 1\n"
    "a[i::97] += i\nf.reshape(-1, order='A')[i::89] *= -1\n"
    "t.view('i8')[i::103] += i\nsame.view('u4')[i::111] ^= 77\n"
)


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_was_changed_here_and_there_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    """Deltas are laid on what they lie on in the worker, or where that is encrypted by the host."""
    new_key_file(tmp_path / "key")
    if encrypted:
        monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEY_FILE", str(tmp_path / "key"))
    place = open_store(tmp_path / "large", encrypt=encrypted)
    with sync.Session("large", store=place) as session:
        session.execute(MAKE, check=True)
        session.checkpoint()
        for _ in range(3):
            session.execute(SCATTER, check=True)
            made = session.checkpoint().checkpoint
        assert made.stored_bytes < 2_000_000  # of 18 MB on which every page changed
        before = session.execute(LOOK, check=True).value
    layouts = place.lay_out(made)
    assert any(each.deltas for each in layouts.values()) is not encrypted
    layouts.check()
    with sync.Session.resume("large", store=place) as session:
        assert session.execute(LOOK, check=True).value == before
        session.execute(SCATTER + "a[7] = 5", check=True)
        changed = session.execute(LOOK, check=True).value
        second = session.checkpoint()
        assert second.checkpoint.stored_bytes < 2_000_000
        session.execute("a[:] = f[:] = 0\ndel raw", check=True)
        session.restore(second)
        assert session.execute(LOOK, check=True).value == changed
    assert place.verify(deep=True).ok


@pytest.mark.parametrize("size", [0, -300, 77 - (1 << 19), 5000])
def test_deltas_end_where_memory_ends(place: Store, size: int) -> None:
    """What they lie on may have been longer: nothing is written beyond."""
    numbers = np.random.default_rng(2).integers(0, 255, 9 << 18, dtype=np.uint8)
    for step in range(3):
        numbers[step::97] += 1
        with place.draft("session/x") as draft:
            whole = numbers.tobytes() + bytes(5000)
            data = whole[: numbers.size + size] if step == 2 else whole[: numbers.size]
            draft.put("buffers/b1", data, "segment", skew=16)
            made = draft.commit()
    with Mapped(1, place.lay_out(made)) as mapped:
        (message,) = mapped.messages
        assert message.deltas
        overlay = Overlay({message.name: message}, mapped.files)
        assert overlay.view(message.name) == data
        room = np.zeros(len(data) + 3 * PAGE, dtype=np.uint8)
        at = -room.ctypes.data % PAGE + 16
        first = room.ctypes.data + at
        overlay._fill(message, first - 16, first, first + len(data))
        assert room[at : at + len(data)].tobytes() == data
        assert not room[:at].any()
        assert not room[at + len(data) :].any()


def test_it_comes_back_as_it_was_and_can_be_changed(place: Store) -> None:
    with sync.Session("large", store=place) as session:
        session.execute(MAKE, check=True)
        before = session.execute(LOOK, check=True).value
        session.checkpoint()
    with sync.Session.resume("large", store=place) as session:
        assert session.execute(LOOK, check=True).value == before
        # each has its own memory, which is like any other
        session.execute("a[5] = 1e6\nf[3] = 0\nraw[7:9] = b'xy'\nzero += 1", check=True)
        assert session.execute("[float(same[5]) != 1e6, v.flags.writeable]").value == [True, True]
        changed = session.execute(LOOK, check=True).value
        second = session.checkpoint()
        session.execute("del v\na.resize(900_000, refcheck=False)\nsame.sort()\ndel zero")
        session.restore(second)
        assert session.execute(LOOK, check=True).value == changed
    assert place.verify(deep=True).ok
    # what was written to never reached the store's own files
    first = place.list("session/large")[-1]
    with sync.Session("other", store=place) as session:
        session.execute("pass")
    with sync.Session.resume("large", store=place) as session:
        session.restore(first)
        assert session.execute(LOOK, check=True).value == before


@pytest.mark.parametrize("kind", ["memory", "encrypted"])
def test_what_cannot_be_mapped_is_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "memory":
        store = open_store("memory://")
    else:
        new_key_file(tmp_path / "key")
        monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEY_FILE", str(tmp_path / "key"))
        store = open_store(tmp_path / "sealed", encrypt=True)
    with sync.Session("large", store=store) as session:
        session.execute(MAKE, check=True)
        before = session.execute(LOOK, check=True).value
        session.checkpoint()
        session.execute("a += 1\nraw[:] = bytes(len(raw))")
        session.restore()
        assert session.execute(LOOK, check=True).value == before


def test_an_increment_on_what_was_mapped(place: Store) -> None:
    with sync.Session("large", store=place) as session:
        session.execute("import numpy as np\na = np.ones(4_000_000)\nb = np.ones(2_000_000)")
        session.checkpoint()
    with sync.Session.resume("large", store=place) as session:
        session.execute("a.sum()\na[2_000_000] = 5", check=True)  # reading is no change
        made = session.checkpoint().checkpoint
        assert made.stored_bytes < 64 << 10
        assert resident(session) < 100 << 20
        session.execute("b[:] = 3\na[0] = 7", check=True)
        session.checkpoint()
    with sync.Session.resume("large", store=place) as session:
        look = "[float(each) for each in (a[0], a[1], a[2_000_000], b[5], a.sum())]"
        assert session.execute(look, check=True).value == [7, 1, 5, 3, 4_000_010]


def damage(folder: Path) -> None:
    """One byte in the middle of the largest pack."""
    pack = max((folder / "packs").rglob("*.pack"), key=lambda path: path.stat().st_size)
    with pack.open("r+b") as file:
        file.seek(pack.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def test_damage_is_told_by_the_next_call(tmp_path: Path) -> None:
    store = open_store(tmp_path / "large")
    with sync.Session("large", store=store) as session:
        session.execute(MAKE, check=True)
        session.checkpoint()
    damage(tmp_path / "large")
    session = sync.Session.resume("large", store=open_store(tmp_path / "large"))
    told = ""
    end = time.monotonic() + 60
    while not told and time.monotonic() < end:
        try:
            session.execute("1")
        except Corrupt as error:
            told = f"{error}"
    assert "damaged" in told
    with pytest.raises(HoldfastError, match="damaged"):
        session.checkpoint()
    session.shutdown()


def test_a_fork_does_not_vouch_for_what_nobody_has_looked_at(tmp_path: Path) -> None:
    """As little as a checkpoint: its first one would be of memory that is damaged."""
    with sync.Session("large", store=open_store(tmp_path / "large")) as session:
        session.execute(MAKE, check=True)
        made = session.checkpoint()
    damage(tmp_path / "large")
    again = open_store(tmp_path / "large")
    session = sync.Session.resume("large", store=again)
    with pytest.raises(Corrupt, match="damaged"):
        session.fork("other")  # before it was looked at by itself
    assert [each.id for each in again.list()] == [made.id]
    assert [str(each.subject) for each in again.subjects()] == ["session/large"]
    with pytest.raises(HoldfastError, match="damaged"):
        session.checkpoint()
    assert session.alive
    with suppress(Corrupt):  # that it was found by itself, too
        session.shutdown()


def test_what_is_written_while_it_is_restored_is_a_change(place: Store) -> None:
    code = (
        "import numpy as np\n"
        "class Counted:\n"
        "    def __init__(self): self.data = np.zeros(400_000)\n"
        "    def __setstate__(self, state):\n"
        "        self.__dict__.update(state)\n"
        "        self.data[200_000] += 1\n"
        "c = Counted()"
    )
    with sync.Session("counted", store=place) as session:
        session.execute(code, check=True)
        session.checkpoint()
    for expected in (1.0, 2.0):
        with sync.Session.resume("counted", store=place) as session:
            assert session.execute("float(c.data[200_000])", check=True).value == expected
            session.checkpoint()


def test_what_is_written_to_neighbours_while_they_are_restored_is_a_change(place: Store) -> None:
    """Their memory has pages in common, and each is written to before the next one is there."""
    code = (
        "import numpy as np\n"
        "class Model:\n"
        "    def __init__(self, n): self.weights, self.loaded = np.zeros(160_000) + n, False\n"
        "    def __setstate__(self, state):\n"
        "        self.__dict__.update(state)\n"
        "        if not self.loaded:\n"
        "            self.loaded, self.weights[-1] = True, 99\n"
        "large = np.ones(2_000_000); del large\n"  # then malloc has room for several in one piece
        "models = [Model(n) for n in range(4)]"
    )
    look = "[float(each.weights[-1]) for each in models], models[0].loaded"
    with sync.Session("models", store=place) as session:
        session.execute(code, check=True)
        session.restore(session.checkpoint())
        assert session.execute(look).value == ([99.0] * 4, True)
        session.checkpoint()
        session.restore(session.checkpoint())
        assert session.execute(look).value == ([99.0] * 4, True)


RESUME = """
import sys
from holdfast import sync
from holdfast.store import open_store
with sync.Session.resume("m", store=open_store(sys.argv[1])) as session:
    told = [session.execute("float(a.sum())", check=True).value, "numpy" in sys.modules]
print(*told, "numpy" in sys.modules)  # and nothing that was verified needed it
"""


def test_the_host_needs_no_numpy_to_bring_arrays_back(tmp_path: Path) -> None:
    """It would load it at the same time as the worker does, who is being waited for."""
    with sync.Session("m", store=open_store(tmp_path / "s")) as session:
        session.execute(MAKE, check=True)
        session.checkpoint()
        session.execute("a[1000:90_000] += 1\nsame[:] = 3", check=True)
        session.checkpoint()
        wanted = session.execute("float(a.sum())", check=True).value
    told = subprocess.run(
        [sys.executable, "-c", RESUME, tmp_path / "s"], capture_output=True, text=True, check=False
    )
    assert told.stdout.split() == [str(wanted), "False", "False"], told.stderr


def test_libraries_are_imported_ahead_as_far_as_they_are_known() -> None:
    told = _told("math", "numpy", "numpy.linalg", "of_somebody", "pandas")
    assert told == ("math", "numpy", "numpy.linalg")


NUMPY = "import sys, numpy as np"
DRAW = "float(np.random.random())"
LOADED = "'numpy.random' in sys.modules"


def test_the_state_of_a_generator_that_is_not_loaded_waits_for_it() -> None:
    """A tenth of numpy is loaded only for it, and few who come back need it at once."""
    with sync.Session("bare", store="memory://") as session:  # numpy 1 loads it with itself
        loaded = session.execute(f"{NUMPY}\n{LOADED}", check=True).value
    with sync.Session("drawn", store="memory://") as session:
        session.execute(f"{NUMPY}; np.random.seed(1); {DRAW}", check=True)
        made = session.checkpoint()
        expected = [session.execute(DRAW, check=True).value for _ in range(3)]
    with sync.Session.resume("drawn", store=session.store) as session:
        assert session.execute(LOADED, check=True).value is loaded
        session.checkpoint()  # of what waits still
        assert session.execute(DRAW, check=True).value == expected[0]
        session.restore()  # into what is loaded by now
        assert [session.execute(DRAW, check=True).value for _ in range(3)] == expected
    with sync.Session.resume("drawn", store=session.store) as session:
        assert session.execute(LOADED, check=True).value is loaded
        session.execute("state = np.random.get_state()[2]", check=True)  # by the library itself
        assert session.execute(DRAW, check=True).value == expected[0]
        session.restore(made)
        assert session.execute(DRAW, check=True).value == expected[0]


def test_a_state_that_waits_is_not_the_next_checkpoints() -> None:
    with sync.Session("drawn", store="memory://") as session:
        session.execute(NUMPY, check=True)
        before = session.checkpoint()
        session.execute(f"np.random.seed(1); {DRAW}", check=True)
        session.checkpoint()
        after = session.execute(DRAW, check=True).value
    with sync.Session.resume("drawn", store=session.store) as session:
        session.restore(before)  # which knows of no state
        assert session.execute(DRAW, check=True).value != after


def _told(*modules: str) -> tuple[str, ...]:
    """What a worker that is on its way is told to import."""
    imports = tuple(Import(module=each, names=(), statement=f"import {each}") for each in modules)
    told: list[tuple[str, ...]] = []

    def plain(part: msgspec.Struct) -> object:
        return msgspec.json.decode(msgspec.json.encode(part))

    with open_store("memory://") as store:
        with store.draft("session/x", reason="test") as draft:
            draft.put("sources", plain(Sources(imports=imports)), split="structure")
            draft.put("environment", plain(Environment()), split="structure")
            made = draft.commit()
        checkpoints.read(store, made, tell=told.append)
    (modules,) = told
    return modules


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_was_mapped_is_watched_again_after_it_was_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    """A mapped file could be changed by others; those of the store, and copies of them, are not."""
    new_key_file(tmp_path / "key")
    if encrypted:
        monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEY_FILE", str(tmp_path / "key"))
    store = open_store(tmp_path / "large", encrypt=encrypted)
    with sync.Session("large", store=store) as session:
        past = Noted.of(session, store)
        session.execute(
            "import numpy as np\na = np.random.default_rng(1).standard_normal(400_000)\n"
            "deep = [a * 2]",
            check=True,
        )
        session.restore(session.checkpoint())
        mapped = Path(f"/proc/{session.pid}/maps").read_text()
        assert ("memfd:holdfast-spill" if encrypted else f"{tmp_path}/large/packs/") in mapped
        monkeypatch.setenv("HOLDFAST_TRACK_MEMORY", "off")
        session.checkpoint()
        assert past.brought == past.memory
        monkeypatch.delenv("HOLDFAST_TRACK_MEMORY")
        session.checkpoint()
        session.execute("a[5] = deep[0][7] = 2", check=True)
        session.checkpoint()
        assert 0 < past.brought <= 4 * PAGE


def test_sessions_that_were_given_an_address_leave_no_files_open(tmp_path: Path) -> None:
    """Nobody but they knows of the store that they opened."""
    address = str(tmp_path / "store")
    for _ in range(5):
        with sync.Session(store=address) as session:
            session.execute("import numpy as np; x = np.arange(100_000)")
            first = session.checkpoint()
            session.execute("x[0] = 1")
            session.restore(first)
            assert session.execute("int(x[0])").value == 0
        del session
    deadline = time.monotonic() + 20
    while left := opened_below(address):  # a thread that was busy may have the last one still
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
        gc.collect()


def opened_below(folder: str) -> list[str]:
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            links.append(os.readlink(entry))
    return [link for link in links if link.startswith(folder)]
