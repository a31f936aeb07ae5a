"""`export` and `import` on the command line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main
from holdfast.store import open_store

Run = Callable[..., Any]


@pytest.fixture
def there(tmp_path: Path, run: Run) -> str:
    """Another store."""
    place = str(tmp_path / "there")
    assert run("init", place).code == 0
    return place


def test_a_checkpoint_goes_over_in_a_file(
    run: Run, ids: list[str], there: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "demo.holdfast")
    done = run("export", "state/demo", file)
    assert done.code == 0
    assert "state/demo (step 2)" in done.out
    done = run("import", file, "--store", there)
    assert done.code == 0
    assert "imported 1 checkpoint" in done.out
    assert run("show", "state/demo", "--part", "still", "--store", there).out == "always the same"


def test_a_folder_that_is_not_there(run: Run, ids: list[str], tmp_path: Path) -> None:
    outcome = run("export", "state/demo", str(tmp_path / "nowhere" / "demo.holdfast"))
    assert outcome.code == 3
    assert outcome.err.startswith(f"error: there is no folder {tmp_path / 'nowhere'}\nhint: ")


def test_names_of_no_file(run: Run, ids: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("", "/", str(tmp_path / "file" / "x")):
        for words in (("export", "state/demo", name), ("import", name)):
            refused = run(*words)
            assert refused.code in (2, 11), words  # click knows what a directory is
            assert "hint: " in refused.err
            assert "unexpected" not in refused.err


def test_no_store_is_made_for_an_archive_that_is_not_there(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "new"
    assert run("import", str(tmp_path / "nothing"), "--store", str(place)).code == 3
    assert not place.exists()


def test_nor_for_a_subject_that_is_not_there(
    run: Run, ids: list[str], tmp_path: Path, holdfast_home: Path
) -> None:
    place = tmp_path / "new"
    for subject, code in (("state/dema", 3), ("demo", 11), ("", 11)):
        refused = run("copy", str(holdfast_home / "store"), str(place), "--subject", subject)
        assert refused.code == code
        assert not place.exists()
    refused = run("copy", str(holdfast_home / "store"), str(place), "--subject", "state/dema")
    assert "hint: did you mean state/demo?" in refused.err


def test_json_and_ancestors(run: Run, ids: list[str], there: str, tmp_path: Path) -> None:
    file = str(tmp_path / "demo.holdfast")
    exported = run("export", "state/demo", file, "--ancestors", "--json").json
    assert [one["id"] for one in exported["checkpoints"]] == ids
    assert exported["archive_bytes"] == os.path.getsize(file)
    planned = run("import", file, "--store", there, "--dry-run", "--json").json
    assert (planned["dry_run"], len(planned["imported"]), planned["already"]) == (True, 3, [])
    assert run("list", "--store", there, "--json").json == {"checkpoints": []}
    imported = run("import", file, "--store", there, "--json").json
    assert imported["checkpoint"]["id"] == ids[-1]
    again = run("import", file, "--store", there)
    assert "3 are here already" in again.out
    listed = run("import", file, "--store", there, "--dry-run").out
    assert all(f"step {number}" in listed for number in range(3))


def test_a_file_is_not_overwritten(run: Run, ids: list[str], tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("data")
    refused = run("export", "state/demo", str(file))
    assert refused.code == 4
    assert "--force" in refused.err
    assert file.read_text() == "data"
    assert run("export", "state/demo", str(file), "--force").code == 0
    assert file.stat().st_size > 500


def test_strangers_are_told_apart(
    run: Run, ids: list[str], there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "demo.holdfast")
    run("export", "state/demo", file)
    theirs = run("show", "state/demo", "--json").json["checkpoint"]["signer"]
    monkeypatch.setenv("HOLDFAST_KEY", "77" * 32)
    assert "--trust" in run("import", file, "--store", there).out
    refused = run("restore", "state/demo", "--store", there)
    assert refused.code == 8
    assert theirs in refused.err  # and not the key of whoever took it in
    late = run("import", file, "--store", there, "--trust")  # what came as foreign stays foreign
    short = run("show", "state/demo", "--json").json["checkpoint"]["short"]
    assert "1 checkpoint is here already as foreign" in late.out
    assert f"`holdfast restore {short} --trust`" in late.out
    assert run("restore", "state/demo", "--store", there).code == 8
    assert run("restore", "state/demo", "--store", there, "--trust").code == 0
    other = str(tmp_path / "other")
    assert "foreign" not in run("import", file, "--store", other, "--trust").out
    assert run("restore", "state/demo", "--store", other).code == 0


def test_a_parent_that_did_not_come_along_is_not_called_deleted(
    run: Run, ids: list[str], there: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "demo.holdfast")
    run("rollback", "state/demo", "--to", ids[0])
    store = open_store()
    head = store.head("state/demo")
    assert head is not None
    with store.draft("state/demo", reason="after it") as draft:
        draft.put("still", b"always the same")
        draft.commit()
    run("export", head.id, file)
    run("import", file, "--store", there)
    shown = run("show", "state/demo", "--store", there).out
    assert f"{ids[-1]} (not in this store)" in shown
    assert f"{ids[0]} (not in this store)" in shown
    assert "deleted" not in shown + run("log", "state/demo", "--store", there).out


def test_a_head_that_stays_is_spoken_of(
    run: Run, ids: list[str], there: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "demo.holdfast")
    run("export", "state/demo~1", file)
    run("import", file, "--store", there)
    run("export", "state/demo", file, "--force")
    done = run("import", file, "--store", there)
    assert "the head of state/demo stays" in done.out


def test_damage_is_told_in_words(run: Run, ids: list[str], there: str, tmp_path: Path) -> None:
    file = tmp_path / "demo.holdfast"
    run("export", "state/demo", str(file))
    file.write_bytes(file.read_bytes()[:-5])
    cut = run("import", str(file), "--store", there)
    assert cut.code == 6
    assert "before it is whole" in cut.err
    file.write_text("hello")
    assert run("import", str(file), "--store", there).code == 11
    assert run("import", str(tmp_path / "none"), "--store", there).code == 3
    assert run("list", "--store", there, "--json").json == {"checkpoints": []}


def test_through_a_pipe_between_programs(
    ids: list[str], there: str, holdfast_program: Path, tmp_path: Path
) -> None:
    send = subprocess.Popen([holdfast_program, "export", "state/demo", "-"], stdout=subprocess.PIPE)
    take = subprocess.run(
        [holdfast_program, "import", "-", "--store", there, "--json"],
        stdin=send.stdout,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert send.wait(60) == 0
    assert json.loads(take.stdout)["checkpoint"]["id"] == ids[-1]


def test_a_reader_that_leaves_ends_the_export(ids: list[str], holdfast_program: Path) -> None:
    send = subprocess.Popen(
        [holdfast_program, "export", "state/demo", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert send.stdout is not None
    send.stdout.close()
    assert send.wait(60) == 141


def test_stdout_takes_either_the_archive_or_json(run: Run, ids: list[str]) -> None:
    assert run("export", "state/demo", "-", "--json").code == 2
    assert run("export", "state/demo", "x.holdfast", "--format", "podman").code == 5
    assert main(["export", "state/none", "nowhere.holdfast"]) == 3


def test_copy_between_stores(run: Run, ids: list[str], tmp_path: Path, holdfast_home: Path) -> None:
    here, there = str(holdfast_home / "store"), str(tmp_path / "copy")
    run("init", there)
    planned = run("copy", here, there, "--dry-run")
    assert "would copy 3 checkpoints" in planned.out
    assert "step 1" in planned.out
    assert "copied 3 checkpoints" in run("copy", here, there).out
    again = run("copy", here, there, "--json").json
    assert (again["copied"], again["already"], again["transferred_bytes"]) == ([], 3, 0)
    assert run("copy", here, str(tmp_path / "made"), "--subject", "state/demo").code == 0
    assert len(run("list", "--store", str(tmp_path / "made"), "--json").json["checkpoints"]) == 3
    assert run("copy", here, here).code == 11
    assert run("copy", here, there, "--store", here).code == 2
    assert run("copy", str(tmp_path / "none"), there).code == 3
    assert run("copy", here, there, "--subject", "state/none").code == 3


def test_copy_out_of_an_encrypted_store_is_meant(
    run: Run, ids: list[str], tmp_path: Path, holdfast_home: Path
) -> None:
    here, vault, out = str(holdfast_home / "store"), str(tmp_path / "vault"), str(tmp_path / "out")
    key = str(tmp_path / "key")
    run("init", vault, "--encrypt", "--key-file", key)
    assert run("copy", here, vault, "--to-key-file", key).code == 0
    assert run("copy", vault, out, "--from-key-file", key).code == 3  # it is not made by mistake
    run("init", out)
    refused = run("copy", vault, out, "--from-key-file", key)
    assert refused.code == 8
    assert "--plaintext" in refused.err
    assert run("list", "--store", out, "--json").json == {"checkpoints": []}
    assert run("copy", vault, out, "--from-key-file", key, "--plaintext").code == 0
    assert len(run("list", "--store", out, "--json").json["checkpoints"]) == 3


def test_copy_tells_what_is_damaged(
    run: Run, tmp_path: Path, ids: list[str], holdfast_home: Path
) -> None:
    from holdfast.store import open_store

    with open_store() as store, store.draft("state/big") as draft:
        draft.put("part", os.urandom(3_000_000))
        draft.commit()
    (pack,) = (holdfast_home / "store" / "packs").iterdir()
    data = bytearray(pack.read_bytes())
    data[5000] ^= 1
    pack.write_bytes(data)
    done = run("copy", str(holdfast_home / "store"), str(tmp_path / "copy"))
    assert done.code == 9
    assert "copied 3 checkpoints" in done.out
    assert "not copied" in done.out
