"""Key slots: any secret opens the store, changes are quick, and there is never none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.model.errors import BadInput, Conflict, Corrupt, Denied, NotFound
from holdfast.store import open_store, slots
from holdfast.store.backends.contract import Backend
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.backends.memory import MemoryBackend
from holdfast.store.slots import Secret

QUICK = 2**10  # scrypt's cost, for tests
ONE, TWO = Secret.passphrase("correct horse"), Secret.passphrase("battery staple")


@pytest.fixture(params=["local", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return MemoryBackend() if request.param == "memory" else LocalBackend(tmp_path / "store")


def test_a_secret_opens_what_it_closed(backend: Backend, tmp_path: Path) -> None:
    data_key = slots.begin(backend, ONE, QUICK)
    assert len(data_key) == 32
    assert slots.unlock(backend, [ONE])[0] == data_key
    assert slots.unlock(backend, [TWO, ONE])[0] == data_key
    with pytest.raises(Denied, match="passphrase does not open"):
        slots.unlock(backend, [TWO])
    with pytest.raises(Denied, match="is encrypted"):
        slots.unlock(backend, [])
    with pytest.raises(Conflict, match="already"):
        slots.begin(backend, TWO, QUICK)


def test_several_secrets_and_changing_them(backend: Backend, tmp_path: Path) -> None:
    data_key = slots.begin(backend, ONE, QUICK)
    file = slots.new_key_file(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    name = slots.add(backend, data_key, file)
    assert Secret.key_file(tmp_path / "key") == file
    assert slots.unlock(backend, [file]) == (data_key, name)
    assert [info.kind for info in slots.listed(backend)] == ["passphrase", "file"]
    (first, _) = slots.listed(backend)
    with pytest.raises(NotFound):
        slots.remove(backend, "zz")
    assert slots.remove(backend, first.name[:6]) == first.name
    with pytest.raises(Denied):
        slots.unlock(backend, [ONE])
    with pytest.raises(Conflict, match="last"):
        slots.remove(backend, name)
    assert slots.unlock(backend, [file])[0] == data_key


def test_the_log_tells_the_right_key(tmp_path: Path) -> None:
    """Two slots of one passphrase, as two makers of one store left them: the one whose key the log
    is encrypted with opens it, whatever their names are."""
    place = tmp_path / "store"
    open_store(place, encrypt=True, secret=ONE).close()
    backend = LocalBackend(place)
    right = slots.unlock(backend, [ONE])
    ((name, data),) = backend.slots().items()
    for wrong in ("0" * 15 + "1", "f" * 16):
        slots.add(backend, bytes(range(32)), ONE, QUICK, name=wrong)
    backend.remove_slot(name)
    backend.put_slot(name, data)
    assert slots.unlock(backend, [ONE]) == right
    with open_store(place, secret=ONE) as store, store.draft("state/x") as draft:
        draft.put("part", b"text")
        draft.commit()
    middle = slots.add(backend, right[0], ONE, QUICK, name="8" * 16)
    backend.remove_slot(name)
    assert slots.unlock(backend, [ONE]) == (right[0], middle)
    with open_store(place, secret=ONE) as store:
        assert store.read("state/x", "part") == b"text"
    backend.remove_slot(middle)
    with pytest.raises(Denied, match="not in its slots"):
        open_store(place, secret=ONE)


MAKE = """
import sys
from holdfast.model.errors import Denied
from holdfast.store import open_store
from holdfast.store.slots import Secret
sys.stdin.readline()
try:
    secret = Secret("file", sys.argv[2].encode())
    with open_store(sys.argv[1], encrypt=True, secret=secret) as store:
        with store.draft("state/x") as draft:
            draft.put("part", sys.argv[2].encode())
            draft.commit()
    print("made")
except Denied:
    print("denied")
"""


@pytest.mark.parametrize("secrets", ["aa", "ab"])
def test_two_makers_make_one_store(tmp_path: Path, secrets: str) -> None:
    for number in range(6):
        place = tmp_path / str(number)
        makers = [
            subprocess.Popen(
                [sys.executable, "-c", MAKE, place, each * 32],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for each in secrets
        ]
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.write("\n")
            maker.stdin.flush()
        said = [maker.communicate(timeout=60)[0].strip() for maker in makers]
        assert len(LocalBackend(place).slots()) == 1
        if secrets == "aa":
            assert said == ["made", "made"]
        else:
            assert sorted(said) == ["denied", "made"]
        winner = secrets[said.index("made")] * 32
        with open_store(place, secret=Secret("file", winner.encode())) as store:
            assert store.read("state/x", "part") == winner.encode()
            assert store.verify(deep=True).ok


def test_a_slot_of_another_store_does_not_fit(tmp_path: Path) -> None:
    """Nobody can have us write with a key of theirs by putting their slot into our store."""
    ours, theirs = LocalBackend(tmp_path / "ours"), LocalBackend(tmp_path / "theirs")
    slots.begin(theirs, ONE, QUICK)
    for name, data in theirs.slots().items():
        ours.put_slot(name, data)
    with pytest.raises(Denied):
        slots.unlock(ours, [ONE])


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2**40},
        {"n": 3},
        {"n": 0},
        {"r": 10**6},
        {"p": 10**6},
        {"salt": "00"},
        {"wrapped": "zz"},
        {"version": 2},
        {"kind": "magic"},
        {"n": "many"},
    ],
)
def test_slots_that_make_no_sense(backend: Backend, change: dict[str, object]) -> None:
    """Nor is memory taken because a slot says so."""
    slots.begin(backend, ONE, QUICK)
    ((name, data),) = backend.slots().items()
    backend.remove_slot(name)
    backend.put_slot(name, msgspec.json.encode(json.loads(data) | change))
    with pytest.raises(Corrupt):
        slots.unlock(backend, [ONE])
    with pytest.raises(Corrupt):
        slots.listed(backend)


def test_a_damaged_slot_shuts_nobody_else_out(backend: Backend) -> None:
    data_key = slots.begin(backend, ONE, QUICK)
    backend.put_slot("0" * 15 + "1", b"{")
    assert slots.unlock(backend, [ONE])[0] == data_key


def test_every_field_of_a_slot_is_bound(backend: Backend) -> None:
    slots.begin(backend, ONE, QUICK)
    ((name, data),) = backend.slots().items()
    changed = json.loads(data) | {"created": "2000-01-01T00:00:00.000000Z"}
    backend.put_slot("1" * 16, data)
    backend.remove_slot(name)
    with pytest.raises(Denied):
        slots.unlock(backend, [ONE])  # under another name
    backend.remove_slot(name)
    backend.put_slot(name, msgspec.json.encode(changed))
    with pytest.raises(Denied):
        slots.unlock(backend, [ONE])


def test_the_same_letters_in_another_form() -> None:
    assert Secret.passphrase("café") == Secret.passphrase("cafe\u0301")


def test_files_of_secrets(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("correct horse\nnever read\n")
    assert Secret.passphrase_file(file) == ONE
    file.write_bytes(b"correct horse\r\n")
    assert Secret.passphrase_file(file) == ONE
    file.write_text("\n")
    for wrong in (Secret.passphrase_file, Secret.key_file):
        with pytest.raises(BadInput):
            wrong(file)
    with pytest.raises(NotFound, match="no file") as missing:
        Secret.key_file(tmp_path / "none")
    assert missing.value.hint
    with pytest.raises(BadInput, match="directory"):
        Secret.key_file(tmp_path)
    with pytest.raises(BadInput):
        Secret.passphrase("")
    with pytest.raises(Conflict):
        slots.new_key_file(file)
    assert "correct" not in repr(ONE)
