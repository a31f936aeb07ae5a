"""Commands on a store in a real object store, named in each of the ways there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run

from holdfast.store import open_store
from holdfast.testing.servers import SECRET, Server


@pytest.fixture
def filled(on_s3: str) -> str:
    with open_store(on_s3) as store:
        for text in ("first", "second"):
            with store.draft("state/x", reason=text) as draft:
                draft.put("part", text.encode() * 1000)
                draft.commit()
    return on_s3


def test_every_kind_of_command_works_there(run: Run, filled: str, tmp_path: Path) -> None:
    store = ("--store", filled)
    assert run(*store, "list", "--json").json["checkpoints"][0]["reason"] == "second"
    assert run(*store, "show", "state/x").code == 0
    assert run(*store, "diff", "state/x~1", "state/x").code == 0
    assert run(*store, "log", "state/x").code == 0
    assert run(*store, "rollback", "state/x").code == 0
    assert run(*store, "undo", "state/x").code == 0
    assert run(*store, "fork", "state/x", "other").code == 0
    assert run(*store, "tag", "state/x", "good").code == 0
    assert run(*store, "pin", "good").code == 0
    assert run(*store, "subjects").code == 0
    assert run(*store, "stats").code == 0
    assert run(*store, "verify", "--deep").code == 0
    assert run(*store, "export", "state/x", str(tmp_path / "x.holdfast")).code == 0
    assert run(*store, "delete", "state/other").code == 0
    assert run(*store, "prune", "--keep-last", "1").code == 0
    assert run(*store, "verify").code == 0


def test_the_environment_and_the_configuration_name_it(
    run: Run, filled: str, s3: Server, no_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", filled)
    assert run("list").code == 0
    monkeypatch.delenv("HOLDFAST_STORE")
    monkeypatch.delenv("HOLDFAST_S3_ENDPOINT")
    (no_config / "holdfast").mkdir(parents=True)
    (no_config / "holdfast/config.toml").write_text(
        f'store = "{filled}"\ns3_endpoint = "{s3.endpoint}"\ncache_limit = 1000000\n'
    )
    assert run("list").code == 0
    shown = run("config").out
    assert s3.endpoint in shown
    assert SECRET not in shown


def test_the_slots_of_an_encrypted_one_are_found_where_the_configuration_says(
    run: Run,
    on_s3: str,
    s3: Server,
    no_config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOLDFAST_S3_ENDPOINT")
    (no_config / "holdfast").mkdir(parents=True)
    (no_config / "holdfast/config.toml").write_text(
        f'store = "{on_s3}"\ns3_endpoint = "{s3.endpoint}"\n'
    )
    first, second, third = (str(tmp_path / name) for name in ("first", "second", "third"))
    assert run("init", "--encrypt", "--key-file", first).code == 0
    assert len(run("key", "slots", "--json").json["slots"]) == 1
    added = run("key", "add", "--key-file", first, "--new-key-file", second, "--json")
    assert added.code == 0, added.err
    rotated = run("key", "rotate", "--key-file", first, "--new-key-file", third, "--json")
    assert rotated.code == 0, rotated.err
    assert run("key", "remove", added.json["slot"]).code == 0
    left = run("key", "slots", "--json").json["slots"]
    assert [each["slot"] for each in left] == [rotated.json["slot"]]


def test_a_store_that_is_not_there_is_said_to_be_missing_and_can_be_made(
    run: Run, on_s3: str
) -> None:
    missing = run("--store", on_s3, "list")
    assert missing.code == 3
    assert "holdfast init" in missing.err
    assert run("init", on_s3).code == 0
    assert run("--store", on_s3, "list").code == 0


def test_an_address_with_a_secret_in_it_is_refused_without_repeating_it(run: Run) -> None:
    outcome = run("--store", "s3://key:hunter2@bucket/x", "list")
    assert outcome.code == 11
    assert "hunter2" not in outcome.out + outcome.err


def test_a_subject_in_use_elsewhere_is_a_conflict_that_names_its_owner(
    run: Run, filled: str
) -> None:
    with open_store(filled) as store, store.lease("state/x", owner="machine-a", url="http://a:1"):
        outcome = run("--store", filled, "rollback", "state/x")
    assert outcome.code == 4
    assert "machine-a" in outcome.err
    assert "http://a:1" in outcome.err
