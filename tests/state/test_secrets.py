"""Secrets: not in any file, told of, and brought back where somebody knows them."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.secret_corpus import DATA, KEYS, NAMED

from holdfast.model.errors import BadInput
from holdfast.state import StateManager

KEY = "sk-" + "a1B2" * 8
PASSWORD = "correct horse battery staple"


@dataclass
class Account:
    user: str
    password: str


class Pair(NamedTuple):
    secret: str
    n: int


def with_secrets(kept: dict[str, Any], **more: Any) -> StateManager:
    manager = StateManager("s", **kept, **more)
    manager.state_data.update(
        {
            "config": {"api_key": PASSWORD, "url": "https://example.org"},
            "keys": ["plain", f"use {KEY} please"],
            "account": Account("ada", PASSWORD),
            "pair": Pair(PASSWORD, 1),
            "binary": {"secret": PASSWORD.encode()},
            "odd": {1: KEY, "password": PASSWORD},
            "tokens": ["a", "b"],
            "token": "",
        }
    )
    return manager


WAYS = {
    "config.api_key",
    "keys[1]",
    "account.password",
    "pair.secret",
    "binary.secret",
    "odd[1]",
    "odd.password",
}


def everything_written(place: Path) -> bytes:
    return b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())


def test_they_are_in_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = with_secrets({"directory": tmp_path})
    made = manager.checkpoint()
    manager.save_state()
    manager.fork("other")
    written = everything_written(tmp_path)
    assert KEY.encode() not in written
    assert b"horse" not in written
    assert {item.name for item in made.report} == WAYS
    assert {item.outcome for item in made.report} == {"skipped"}
    assert "HOLDFAST_SECRET_API_KEY" in made.report["config.api_key"].reason
    assert "config.api_key" in caplog.text
    assert "horse" not in caplog.text
    assert KEY not in repr(made)


def test_the_log_says_once_what_each_report_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = with_secrets({"directory": tmp_path})
    manager.checkpoint()
    warned = len(caplog.records)
    made = manager.checkpoint()
    assert {item.name for item in made.report} == WAYS
    assert warned == len(WAYS) == len([r for r in caplog.records if r.levelname == "WARNING"])


def test_they_are_in_no_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from holdfast.store import open_store

    caplog.set_level(logging.DEBUG)
    with open_store(tmp_path / "store") as store:
        manager = with_secrets({"store": store})
        made = manager.checkpoint()
        for part in store.show(made.id).parts:
            content = store.read(made.id, part.name)
            assert KEY.encode() not in content
            assert b"horse" not in content
    assert {item.name for item in made.report} == WAYS


def test_the_process_that_has_them_keeps_them(kept: dict[str, Any]) -> None:
    manager = with_secrets(kept)
    made = manager.checkpoint()
    before = dict(manager.state_data)
    manager.state_data.clear()
    manager.checkpoint()
    manager.rollback(made)
    assert manager.state_data == before
    assert manager.report["config.api_key"].outcome == "rebuilt"
    assert manager.fork("other").state_data == before


def test_nobody_else_has_them(kept: dict[str, Any]) -> None:
    with_secrets(kept).checkpoint()
    manager = StateManager.load("s", types=[Account, Pair], **kept)
    assert manager.state_data == {
        "config": {"url": "https://example.org"},
        "keys": ["plain", None],
        "account": Account("ada", None),  # type: ignore[arg-type]
        "pair": (None, 1),
        "binary": {},
        "odd": {1: None, "password": None},
        "tokens": ["a", "b"],
        "token": "",
    }
    assert {item.name for item in manager.report if item.outcome == "skipped"} == WAYS
    assert not manager.report.complete


def test_they_are_given_again(kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with_secrets(kept).checkpoint()
    monkeypatch.setenv("HOLDFAST_SECRET_PASSWORD", PASSWORD)
    secrets = {"Config.Api_Key": "wrong", "API_KEY": PASSWORD, "secret": PASSWORD}
    manager = StateManager.load("s", types=[Account, Pair], secrets=secrets, **kept)
    assert manager.state_data["config"]["api_key"] == PASSWORD
    assert manager.state_data["account"] == Account("ada", PASSWORD)
    assert manager.state_data["pair"] == Pair(PASSWORD, 1)
    assert manager.state_data["binary"] == {"secret": PASSWORD.encode()}
    assert manager.state_data["odd"] == {1: None, "password": PASSWORD}
    assert "HOLDFAST_SECRET_PASSWORD" in manager.report["account.password"].reason
    # And they are left out again.
    assert {item.name for item in manager.checkpoint().report} == WAYS - {"keys[1]", "odd[1]"}


def test_what_only_looks_like_one_can_be_kept(kept: dict[str, Any]) -> None:
    options = {"keep_secrets": ["pin_password", "example"], "leave_out": ["study_id"]}
    manager = StateManager("s", **options, **kept)
    manager.state_data.update(
        {
            "pin_password": "pinned", "example": KEY, "password": "x", "study_id": "ada",
            "inner": {1: 2, "example": KEY, "study_id": b"bob"},
        }
    )  # fmt: skip
    left = {item.name for item in manager.checkpoint().report}
    assert left == {"password", "study_id", "inner.study_id"}
    assert StateManager.load("s", **kept).state_data == {
        "pin_password": "pinned", "example": KEY,
        "inner": {1: 2, "example": KEY, "study_id": None},
    }  # fmt: skip


def test_all_secrets_can_be_kept(kept: dict[str, Any]) -> None:
    state = {"password": "x", "keys": [KEY, KEY.encode()], "odd": {1: KEY, "secret": b"y"}}
    manager = StateManager("s", keep_secrets=True, **kept)
    manager.state_data.update(state)
    assert list(manager.checkpoint().report) == []
    assert StateManager.load("s", **kept).state_data == state


@pytest.mark.parametrize("options", [{"keep_secrets": "x"}, {"leave_out": [1]}, {"leave_out": 3}])
def test_names_to_keep_are_a_list(options: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="names of keys"):
        StateManager("s", directory=tmp_path, **options)


def test_words_of_data_are_saved(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.state_data.update({"rows": [{name: text} for name, text in DATA]})
    assert list(manager.checkpoint().report) == []
    assert StateManager.load("s", **kept).state_data == manager.state_data


def test_keys_of_providers_are_in_no_file(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path)
    named = [{name: text, "bytes": {name: text.encode()}} for name, text in NAMED.values()]
    manager.state_data.update({"keys": list(KEYS.values()), "named": named})
    report = manager.checkpoint().report
    assert len(report) == len(KEYS) + 2 * len(NAMED)
    written = everything_written(tmp_path).decode()
    for text in (*KEYS.values(), *(text for _, text in NAMED.values())):
        assert len(text) < 5 or max(text.split("\n"), key=len) not in written


def test_what_was_given_is_left_out_again(kept: dict[str, Any]) -> None:
    """Whatever it looks like, somebody calls it a secret."""
    manager = StateManager("s", **kept)
    manager.state_data.update({"config": {"text": KEY, "token": "a1B2c3D4e5F6g7H8"}})
    manager.checkpoint()
    manager = StateManager.load("s", secrets={"text": "given-1", "token": "given-2"}, **kept)
    assert manager.state_data == {"config": {"text": "given-1", "token": "given-2"}}
    left = {item.name for item in manager.checkpoint().report}
    assert left == {"config.text", "config.token"}


# -- each checkpoint has its own ---------------------------------------------------------------


def test_each_checkpoint_gives_its_own_secret(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.state_data["config"] = {"api_key": "first", "n": 1}
    first = manager.checkpoint()
    manager.state_data["config"]["api_key"] = "second"
    second = manager.checkpoint()
    manager.rollback(first)
    assert manager.state_data["config"]["api_key"] == "first"
    manager.rollback(second)
    assert manager.state_data["config"]["api_key"] == "second"
    manager.rollback(manager.rollback(first))
    assert manager.state_data["config"]["api_key"] == "first"


def test_a_fork_has_secrets_of_its_own(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.state_data["config"] = {"api_key": "mine"}
    made = manager.checkpoint()
    fork = manager.fork("other")
    assert fork.state_data["config"]["api_key"] == "mine"
    fork.state_data["config"]["api_key"] = "its own"
    fork.checkpoint()
    manager.rollback(made)
    assert manager.state_data["config"]["api_key"] == "mine"
    earlier = manager.fork("third", made)
    assert earlier.state_data["config"]["api_key"] == "mine"


def test_a_list_that_changed_gets_no_secret(kept: dict[str, Any]) -> None:
    """The first account's token must not become the second's."""
    made = StateManager("s", **kept)
    made.state_data["accounts"] = [
        {"name": "a", "secret": "of a"},
        {"name": "b", "secret": "of b"},
    ]
    both = made.checkpoint()
    del made.state_data["accounts"][0]
    made.checkpoint()
    made.rollback(both)
    assert [each["secret"] for each in made.state_data["accounts"]] == ["of a", "of b"]
    # Another process has only what it was told for the list as it was then.
    other = StateManager.load("s", **kept)
    other.state_data["accounts"] = [{"name": "b", "secret": "of b"}]
    other.checkpoint()
    other.rollback(both)
    assert other.state_data["accounts"] == [{"name": "a"}, {"name": "b"}]
    assert {item.name: item.outcome for item in other.report} == {
        "accounts[0].secret": "skipped",
        "accounts[1].secret": "skipped",
    }
    other.state_data["accounts"] = [
        {"name": "a", "secret": "new a"},
        {"name": "b", "secret": "new b"},
    ]
    other.checkpoint()
    other.rollback(both)
    assert [each["secret"] for each in other.state_data["accounts"]] == ["new a", "new b"]


def test_a_failed_stage_gets_its_secrets_back(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.state_data["config"] = {"password": "x"}

    def work() -> None:
        with manager.stage("work"):
            manager.state_data["config"]["password"] = "y"
            manager.checkpoint()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert manager.state_data["config"] == {"password": "x"}


def test_a_secret_that_was_in_a_plain_file_is_not_lost(tmp_path: Path) -> None:
    """Files that something else wrote may hold secrets; reading them leaves nothing out."""
    plain = {
        "session_id": "s",
        "timestamp": "2026-01-01T00:00:00+00:00",
        "reason": "manual",
        "stage": "x",
        "state_info": {"password": "p", "list": [KEY]},
    }
    path = tmp_path / "s_checkpoint_20260101_000000_000001.json"
    path.write_text(json.dumps(plain))
    loaded = StateManager.load("s", directory=tmp_path)
    assert loaded.state_data == {"password": "p", "list": [KEY]}


@pytest.mark.parametrize("secrets", ["text", {1: "x"}, {"a": 1}, [1]])
def test_bad_secrets_are_refused_without_telling_them(secrets: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="secrets"):
        StateManager("s", directory=tmp_path, secrets=secrets)


def test_a_text_that_changes_is_looked_at_again(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    for text in ("harmless words, long enough", "y" * 50, KEY, "z" * 50):
        manager.set_state("text", text)
        report = manager.checkpoint().report
        assert len(report) == (text == KEY)
