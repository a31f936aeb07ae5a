"""What people see when the store is damaged or signed by somebody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from holdfast.store import open_store


@pytest.fixture
def damaged(holdfast_home: Path) -> str:
    """A checkpoint in a pack with one flipped bit; its id."""
    with open_store() as store, store.draft("state/big") as draft:
        draft.put("bytes", os.urandom(3_000_000))
        made = draft.commit().id
    (pack,) = (holdfast_home / "store").rglob("*.pack")
    pack.chmod(0o600)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 1
    pack.write_bytes(content)
    return made


def test_verify_names_the_damage(run: Run, damaged: str) -> None:
    outcome = run("verify", "--deep")
    assert outcome.code == 6
    with open_store() as store:
        assert f"affects: {store.resolve(damaged).short} state/big" in outcome.out
    assert outcome.err.startswith("error: 1 problem found\nhint: ")
    outcome = run("verify", "--deep", "--json")
    assert outcome.code == 6
    assert outcome.json["ok"] is False
    assert outcome.json["problems"][0]["affects"] == [damaged]
    assert '"kind": "corrupt"' in outcome.err


def test_damaged_bytes_are_never_written_out_in_full(program: Run, damaged: str) -> None:
    outcome = program("show", damaged, "--part", "bytes", binary=True)
    assert outcome.code == 6
    assert "error: " in outcome.err
    assert len(outcome.out) < 3_000_000


def test_a_checkpoint_of_an_unknown_key(
    run: Run, ids: list[str], tmp_path: Path, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("key", "export", str(tmp_path / "their.key"))
    store = str(holdfast_home / "store")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("HOLDFAST_STORE", store)
    assert "foreign" in run("list").out
    assert run("list", "--json").json["checkpoints"][0]["foreign"] is True
    for command in (
        ["show", ids[0], "--part", "still"],
        ["restore", ids[0]],
        ["rollback", "state/demo", "--to", ids[1]],
        ["fork", ids[0], "copy"],
        ["diff", ids[0], ids[1]],
    ):
        refused = run(*command)
        assert refused.code == 8, command
        assert "holdfast key import" in refused.err
        assert run(*command, "--trust").code == 0, command
    run("key", "import", str(tmp_path / "their.key"))
    assert run("fork", ids[0], "another").code == 0


def test_a_list_that_may_lack_something_says_so(
    run: Run, holdfast_home: Path, tmp_path: Path
) -> None:
    with open_store() as store:
        for number in range(3):
            with store.draft("state/x", reason=f"number {number}") as draft:
                draft.put("bytes", b"%d" % number)
                draft.commit()
    store_url, copy = str(holdfast_home / "store"), str(tmp_path / "copy")
    assert run("copy", store_url, copy).code == 0
    looks = (["list"], ["list", "--json"], ["log", "state/x"], ["subjects"], ["stats"])
    for look in looks:
        assert run(*look).err == ""
    (log,) = (holdfast_home / "store").rglob("*.log")
    content = bytearray(log.read_bytes())
    content[content.find(b"number 1")] ^= 1
    log.write_bytes(content)
    for look in looks:
        told = run(*look)
        assert told.code == 0
        assert told.err == (
            "warning: the store's log is damaged, so something may be missing here:"
            " entry 2 cannot be read; `holdfast verify` says what to do\n"
        )

    verified = run("verify").out
    assert "hint: what it said is lost: " in verified
    assert "nothing that can be restored is affected" not in verified
    assert run("copy", copy, store_url).code == 0
    assert run("prune", "--accept-loss").code == 0
    assert len(run("list", "--json").json["checkpoints"]) == 3
    assert run("list").err == ""


def test_prune_refuses_a_damaged_log_until_the_loss_is_accepted(
    run: Run, holdfast_home: Path
) -> None:
    with open_store() as store:
        for number in range(3):
            with store.draft("state/x", reason=f"number {number}") as draft:
                draft.put("bytes", b"%d" % number)
                draft.commit()
    (log,) = (holdfast_home / "store").rglob("*.log")
    content = bytearray(log.read_bytes())
    content[content.find(b"number 1")] ^= 1
    log.write_bytes(content)
    assert "needs --accept-loss" in run("prune", "--keep-last", "1", "--dry-run").out
    refused = run("prune", "--keep-last", "1")
    assert refused.code == 6
    assert "nothing was removed" in refused.err
    assert "--accept-loss" in refused.err
    assert len(run("list", "--json").json["checkpoints"]) == 2
    accepted = run("prune", "--keep-last", "5", "--accept-loss", "--json")
    assert accepted.code == 0
    assert accepted.json["problems"]
    assert run("verify", "--deep").code == 0
    assert run("prune", "--keep-last", "1").code == 0
    assert len(run("list", "--json").json["checkpoints"]) == 1
