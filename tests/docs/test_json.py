"""docs/reference/json.md names every field that the commands and the server write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.server import shapes
from holdfast.state import StateManager
from holdfast.store import open_store
from holdfast.store.slots import new_key_file

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "json.md").read_text("utf-8")
# Objects whose keys are data.
OPEN = {"tags"}


def fields(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        for name, value in document.items():
            yield name
            if name not in OPEN:
                yield from fields(value)
    elif isinstance(document, list):
        for each in document:
            yield from fields(each)


def section(name: str) -> str:
    found = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"docs/reference/json.md has no section {name}"
    return found[1]


def is_named(field: str) -> bool:
    return f"`{field}`" in PAGE or f'"{field}"' in PAGE


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    made = []
    with open_store() as store:
        for number in range(3):
            with store.draft("state/demo", stage="x", tags={"a": "b"}) as draft:
                draft.put("value", {"number": number}, split="structure")
                made.append(draft.commit().id)
        store.fork(made[0], "copy")
    StateManager("kept-in-a-file").checkpoint()
    return made


COMMANDS = [
    "list",
    "list --files",
    "subjects",
    "stats",
    "init",
    "show state/demo",
    "show state/kept-in-a-file",
    "diff state/kept-in-a-file state/kept-in-a-file",
    "fork state/kept-in-a-file another-file",
    "log state/demo",
    "log state/copy",
    "diff state/demo~1 state/demo",
    "verify --deep",
    "restore state/demo~1",
    "rollback state/demo",
    "fork state/demo another",
    "undo state/demo",
    "tag state/demo x=y",
    "export state/demo out.holdfast",
    "import carried.holdfast",
    "import carried.holdfast --dry-run",
    "copy {store} copied",
    "key slots --store vault",
    "key add --store vault --new-key-file other.key",
    "pin state/demo",
    "unpin state/demo",
    "prune --keep-last 1 --dry-run",
    "delete state/demo --dry-run",
    "config",
    "key show",
    "key export exported.key",
    "container list",
    "container install --engine podman --root new --dry-run",
    "doctor",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_field_is_named(
    ids: list[str],
    command: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store() as store:
        store.export("state/demo", "carried.holdfast", ancestors=True)
        command = command.format(store=store.url)
    if "vault" in command:
        new_key_file(tmp_path / "vault.key")
        monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEY_FILE", str(tmp_path / "vault.key"))
        open_store("vault", encrypt=True).close()
    main([*command.split(), "--json"])
    document = json.loads(capsys.readouterr().out)
    missing = {field for field in fields(document) if not is_named(field)}
    assert not missing


def test_the_fields_of_a_checkpoint_are_in_its_section(ids: list[str]) -> None:
    with open_store() as store:
        shape = shapes.checkpoint(store.resolve(ids[0]))
        summary = shapes.subject(store.subjects()[0])
    for field in shape:
        assert f"`{field}`" in section("checkpoint")
    for field in summary:
        assert f"`{field}`" in section("subjects")
