"""Encrypted stores on the command line: making one, opening it, and changing what opens it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest

from holdfast.store import open_store

Run = Callable[..., Any]


@pytest.fixture
def vault(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An encrypted store with a checkpoint, and its key in the environment."""
    place, key = str(tmp_path / "vault"), str(tmp_path / "vault.key")
    made = run("init", place, "--encrypt", "--key-file", key, "--json")
    assert made.json == {"store": place, "made": True, "encrypted": True}
    assert os.stat(key).st_mode & 0o777 == 0o600
    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEY_FILE", key)
    with open_store(place) as store, store.draft("state/x", reason="hidden") as draft:
        draft.put("part", b"content")
        draft.commit()
    return place


def test_with_its_key_it_is_a_store_like_any(run: Run, vault: str) -> None:
    assert "hidden" in run("list", "--store", vault).out
    assert run("show", "state/x", "--part", "part", "--store", vault).out == "content"
    assert run("verify", "--deep", "--store", vault).code == 0
    assert "encrypted store at" in run("init", vault).out
    exported = run("export", "state/x", f"{vault}.holdfast", "--store", vault)
    assert "the file is not" in exported.err


def test_without_it_nothing_is_told(
    run: Run, vault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_ENCRYPTION_KEY_FILE")
    refused = run("list", "--store", vault)
    assert refused.code == 8
    assert "is encrypted" in refused.err
    assert "HOLDFAST_ENCRYPTION_KEY_FILE" in refused.err
    monkeypatch.setenv("HOLDFAST_PASSPHRASE", "wrong")
    assert "does not open" in run("list", "--store", vault).err
    monkeypatch.delenv("HOLDFAST_PASSPHRASE")
    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEY_FILE", str(tmp_path / "lost"))
    missing = run("list", "--store", vault)
    assert missing.code == 3
    assert "lost" in missing.err
    assert "holdfast init" not in missing.err  # the store is there


def test_slots_are_added_changed_and_removed(
    run: Run, vault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tmp_path / "words"
    words.write_text("one two three\n")
    added = run("key", "add", "--store", vault, "--new-passphrase-file", str(words), "--json").json
    assert run("key", "slots", "--store", vault, "--json").json["slots"][1] == {
        "slot": added["slot"],
        "opened_by": "passphrase",
        "created": run("key", "slots", "--store", vault, "--json").json["slots"][1]["created"],
    }
    assert "a key file" in run("key", "slots", "--store", vault).out
    monkeypatch.delenv("HOLDFAST_ENCRYPTION_KEY_FILE")
    monkeypatch.setenv("HOLDFAST_PASSPHRASE_FILE", str(words))
    assert run("list", "--store", vault).code == 0
    other = tmp_path / "other.key"
    rotated = run("key", "rotate", "--store", vault, "--new-key-file", str(other), "--json").json
    assert rotated["removed"] == added["slot"]
    assert run("list", "--store", vault).code == 8
    opened = run("key", "add", "--store", vault, "--key-file", str(other), "--json")
    assert opened.code == 2  # nobody is there to ask for a new one
    first = run("key", "slots", "--store", vault, "--json").json["slots"][0]["slot"]
    assert run("key", "remove", first[:8], "--store", vault).code == 0
    last = run("key", "remove", rotated["slot"], "--store", vault)
    assert last.code == 4
    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEY_FILE", str(other))
    assert "hidden" in run("list", "--store", vault).out
    both = [*("--new-key-file", str(other)), *("--new-passphrase-file", str(words))]
    assert run("key", "add", "--store", vault, *both).code == 2


def test_a_plain_store_has_no_slots(run: Run, ids: list[str], tmp_path: Path) -> None:
    for verb in ("slots", "add", "rotate"):
        assert run("key", verb).code == 11
    assert run("init", "--encrypt", "--key-file", str(tmp_path / "k")).code == 4
    assert run("init", str(tmp_path / "new"), "--key-file", str(tmp_path / "k")).code == 2
    assert run("init", str(tmp_path / "new"), "--encrypt").code == 2
    assert "state/demo" in run("list").out


def test_a_person_is_asked(holdfast_program: Path, tmp_path: Path) -> None:
    """On a real terminal: twice for a new passphrase, once for a known one, never echoed."""
    place = str(tmp_path / "vault")

    def talk(*arguments: str) -> pexpect.spawn:
        return pexpect.spawn(str(holdfast_program), list(arguments), timeout=60, encoding="utf-8")

    child = talk("init", place, "--encrypt")
    child.expect("New passphrase: ")
    child.sendline("open sesame")
    child.expect("again: ")
    child.sendline("open barley")
    child.expect("once more")
    child.expect("New passphrase: ")
    child.sendline("open sesame")
    child.expect("again: ")
    child.sendline("open sesame")
    child.expect("made an encrypted store")
    child.expect(pexpect.EOF)
    assert "sesame" not in child.before
    child.close()
    assert child.exitstatus == 0
    child = talk("list", "--store", place)
    child.expect("Passphrase: ")
    child.sendline("open sesame")
    child.expect("no checkpoints")
    child.expect(pexpect.EOF)
    child.close()
    child = talk("key", "rotate", "--store", place)
    for prompt, answer in (
        ("Passphrase: ", "open sesame"),
        ("New passphrase: ", "shut"),
        ("again: ", "shut"),
    ):
        child.expect(prompt)
        child.sendline(answer)
    child.expect("is gone")
    child.expect(pexpect.EOF)
    child.close()
    child = talk("list", "--store", place)
    child.expect("Passphrase: ")
    child.sendline("open sesame")
    child.expect("does not open")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 8


def test_config_tells_no_passphrase(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PASSPHRASE", "sesame")
    assert "sesame" not in run("config").out + run("config", "--json").out
