"""Whatever happens while an encrypted store is made or its secret is changed: one of the two
secrets opens it, the promised one does, and it never turns into a plain store with content."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.system import slot_acts
from tests.system.slot_acts import NEW, OLD

from holdfast.model.errors import Denied
from holdfast.store import Store, open_store, slots
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.testing.stage import Performance, Stage

CALLS = (
    *("write", "pwrite64", "fsync", "fdatasync", "ftruncate"),
    *("rename", "renameat", "link", "linkat", "unlink", "unlinkat", "mkdir"),
)
FAULTS = ("signal=KILL", "error=EIO", "error=ENOSPC")
Check = Callable[[Path, Performance], None]


@pytest.fixture(scope="module")
def stage(repository: Path) -> Iterator[Stage]:
    with Stage("tests.system.slot_acts", repository) as opened:
        yield opened


def sweep(stage: Stage, act: str, template: Path, folder: Path, fault: str, check: Check) -> int:
    base = folder / "base"

    def fresh() -> str:
        shutil.rmtree(base, ignore_errors=True)
        shutil.copytree(template, base)
        return str(base)

    counts = stage.count(act, fresh(), calls=CALLS)
    for call, times in counts.items():
        for when in range(1, times + 1):
            done = stage.perform(act, fresh(), faults=[f"{call}:{fault}:when={when}"])
            check(base, done)
    return sum(counts.values())


def open_at(base: Path, secret: slots.Secret, *, encrypt: bool = False) -> Store:
    environ = {"HOLDFAST_HOME": str(base / "home")}
    return open_store(base / "store", encrypt=encrypt, secret=secret, environ=environ)


@pytest.mark.parametrize("fault", FAULTS)
def test_making_one(stage: Stage, tmp_path: Path, fault: str) -> None:
    template = tmp_path / "template"
    template.mkdir()

    def check(base: Path, done: Performance) -> None:
        assert not done.noted("fault"), done
        with open_at(base, OLD, encrypt=not done.noted("made")) as store:
            assert store.encrypted
            with store.draft("state/x") as draft:
                draft.put("part", b"content")
                draft.commit()
            assert store.verify(deep=True).ok

    assert sweep(stage, "begin", template, tmp_path, fault, check) > 15


@pytest.mark.parametrize("fault", FAULTS)
def test_changing_the_secret(stage: Stage, tmp_path: Path, fault: str) -> None:
    template = tmp_path / "template"
    with open_at(template, OLD, encrypt=True) as store, store.draft("state/x") as draft:
        draft.put("part", b"content")
        draft.commit()

    def check(base: Path, done: Performance) -> None:
        assert not done.noted("fault"), done
        backend = LocalBackend(base / "store")
        keys = set()
        for secret in (OLD, NEW):
            try:
                keys.add(slots.unlock(backend, [secret])[0])
            except Denied:
                # Gone only when the new one had been promised; there only when it was tried.
                assert secret is NEW or done.noted("added"), done
                assert secret is OLD or not done.noted("added"), done
            else:
                assert secret is NEW or not done.noted("rotated"), done
        assert len(keys) == 1
        with open_at(base, NEW if done.noted("added") else OLD) as store:
            assert store.read("state/x", "part") == b"content"

    assert sweep(stage, "rotate", template, tmp_path, fault, check) > 8


def test_the_acts_do_what_they_say(stage: Stage, tmp_path: Path) -> None:
    assert stage.perform("begin", str(tmp_path)).noted("made")
    assert stage.perform("rotate", str(tmp_path)).noted("rotated")
    assert slots.unlock(LocalBackend(tmp_path / "store"), [slot_acts.NEW])
