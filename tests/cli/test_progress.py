"""Progress: a bar on stderr for a person who watches, and nothing for anybody else."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest
from tests.cli.conftest import HOLDFAST, Run

from holdfast.store import open_store

SIZE = 40_000_000


@pytest.fixture
def large(holdfast_home: Path) -> str:
    """A checkpoint that takes a while to be carried anywhere."""
    with open_store() as store, store.draft("state/large") as draft:
        draft.put("part", random.Random(0).randbytes(SIZE), split="pages")
        return draft.commit().id


@pytest.fixture
def carry(large: str, tmp_path: Path) -> Callable[[str], list[str]]:
    """The arguments of a command that carries it."""
    archive = str(tmp_path / "large.holdfast")
    with open_store() as store:
        store.export(large, archive)
    home = str(Path(os.environ["HOLDFAST_HOME"]) / "store")
    return {
        "export": ["export", large, str(tmp_path / "again.holdfast")],
        "import": ["--store", str(tmp_path / "imported"), "import", archive],
        "copy": ["copy", home, str(tmp_path / "copied")],
    }.__getitem__


@pytest.mark.parametrize(
    ("verb", "title"), [("export", "exporting"), ("import", "importing"), ("copy", "copying")]
)
def test_a_person_sees_a_bar(carry: Callable[[str], list[str]], verb: str, title: str) -> None:
    child: pexpect.spawn[str] = pexpect.spawn(
        str(HOLDFAST),
        carry(verb),
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        encoding="utf-8",
        timeout=90,
        dimensions=(40, 100),
    )
    try:
        child.expect(title)
        child.expect(r"/40\.0 MB")  # of so much
        child.expect(rf"{verb.removesuffix('y')}\w*ed|copied")  # and what came of it
        child.expect(pexpect.EOF)
        child.close()
    finally:
        child.close(force=True)
    assert child.exitstatus == 0


@pytest.mark.parametrize("verb", ["export", "import", "copy"])
def test_programs_see_none(program: Run, carry: Callable[[str], list[str]], verb: str) -> None:
    done = program(*carry(verb), "--json")
    assert done.code == 0
    assert done.err == ""
    assert done.json


@pytest.mark.parametrize("act", ["export", "import", "copy"])
def test_a_program_that_imports_the_library_is_told(large: str, tmp_path: Path, act: str) -> None:
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    archive = tmp_path / "x.holdfast"
    with open_store() as store, open_store(tmp_path / "other") as other:
        store.export(large, archive, progress=tell if act == "export" else None)
        if act == "import":
            other.import_(archive, progress=tell)
        if act == "copy":
            store.copy_to(other, progress=tell)
    done = [how for how, _ in told]
    assert len(told) > 10
    assert done == sorted(done)
    assert done[-1] == told[-1][1] >= SIZE
