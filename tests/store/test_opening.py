"""Opening: from an address to a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.model.errors import BadInput, NotFound, Unsupported
from holdfast.store import open_store


def test_the_default_is_in_the_home(holdfast_home: Path) -> None:
    assert open_store().url == str(holdfast_home / "store")


def test_the_environment_may_say_where(tmp_path: Path, holdfast_home: Path) -> None:
    environ = {"HOLDFAST_STORE": str(tmp_path / "there"), "HOLDFAST_HOME": str(holdfast_home)}
    assert open_store(environ=environ).url == str(tmp_path / "there")


def test_addresses_of_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "a b%"
    with open_store(place) as store, store.draft("state/x") as draft:
        made = draft.commit()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for address in (
        str(place),
        "a b%",
        "~/a b%",
        f"file://{tmp_path}/a%20b%25",
        f"file://localhost{tmp_path}/a%20b%25",
    ):
        with open_store(address, create=False) as again:
            assert again.list() == [made]


def test_a_store_in_memory_is_its_own() -> None:
    one, other = open_store("memory://"), open_store("memory://")
    with one.draft("state/x") as draft:
        draft.put("part", b"kept in memory")
        made = draft.commit()
    assert one.read(made, "part") == b"kept in memory"
    assert other.list() == []
    assert one.verify(deep=True).ok


@pytest.mark.parametrize("address", ["ftp://host/path", "gopher://x", "postgres://db", "S4://b"])
def test_an_unknown_kind_of_store_is_unsupported(address: str) -> None:
    with pytest.raises(Unsupported) as caught:
        open_store(address)
    assert "memory://" in (caught.value.hint or "")


def test_addresses_that_mean_nothing() -> None:
    with pytest.raises(BadInput, match="empty"):
        open_store("")
    with pytest.raises(BadInput, match="another machine"):
        open_store("file://elsewhere/path")


@pytest.mark.parametrize("address", ["s3:/bucket", "gs:/b/p", "file:/tmp/x", "memory:/"])
def test_a_url_with_one_slash_makes_no_folder(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="not a store address") as caught:
        open_store(address)
    assert "a URL needs //" in (caught.value.hint or "")
    assert not list(tmp_path.iterdir())
    assert open_store(f"./{address}").url == str(tmp_path / address)  # whoever means it says so


def test_what_is_not_there_is_only_made_when_wanted(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no store at") as caught:
        open_store(tmp_path / "none", create=False)
    assert caught.value.hint
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("address", ["http://[bad", "~nobody-of-that-name/x", "a\0b"])
def test_an_impossible_address_is_told_in_words(address: str) -> None:
    with pytest.raises(BadInput, match="not a store address"):
        open_store(address)
