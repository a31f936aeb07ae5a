"""What is inside a checkpoint, looked at without restoring it."""

from __future__ import annotations

import json
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from holdfast import StateManager, sync
from holdfast.model.errors import Denied
from holdfast.server import contents as shape
from holdfast.store import Store, open_store
from holdfast.view.contents import Contents, Variable, look

CELL = """
import numpy as np
class Point:
    def __init__(self):
        self.x, self.y = 1, [2, 3]
def double(n):
    return 2 * n
number, text = 5, "<script>alert(1)</script>"
nested = {"a": 1, "b": [1, 2, {"c": 3}]}
point = Point()
shared = [1, 2]
holder = {"inside": shared}
small = np.arange(12).reshape(3, 4)
large = np.zeros(300_000)
large[:1000] = 4.0
part = large[990:1010]
scalar = np.float32(2.5)
long = list(range(10_000))
endless = []
endless.append(endless)
holes = np.array([1.0, float("nan"), 3.0])
password = "hunter2hunter2"
"""


@pytest.fixture(scope="module")
def store() -> Store:
    return open_store("memory://")


@pytest.fixture(scope="module")
def session(store: Store) -> dict[str, Variable]:
    with sync.Session("looked-at", store=store) as session:
        session.execute(CELL, check=True)
        made = session.checkpoint()
    found = look(store, store.show(made.id))
    assert found.variables is not None
    assert found.versions["numpy"]
    assert found.versions["python"]
    json.dumps(shape.contents(found), allow_nan=False)
    return {each.name: each for each in found.variables}


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("number", "int", "5"),
        ("text", "str", "'<script>alert(1)</script>'"),
        ("nested", "dict", "{'a': 1, 'b': [1, 2, {'c': 3}]}"),
        ("point", "Point", "Point(x=1, y=[2, 3])"),
        ("holder", "dict", "{'inside': [1, 2]}"),
        ("small", "numpy.ndarray", "3 x 4 int64"),
        ("scalar", "numpy scalar", "2.5 (float32)"),
        ("endless", "list", "[[[[[…]]]]]"),
        ("Point", "class", "class Point:"),
        ("double", "function", "def double(n):"),
        ("np", "module", "import numpy as np"),
    ],
)
def test_a_variable_in_words(session: dict[str, Variable], name: str, kind: str, text: str) -> None:
    assert (session[name].preview.type_name, session[name].preview.text) == (kind, text)


def test_definitions_have_their_source(session: dict[str, Variable]) -> None:
    assert session["double"].source == "def double(n):\n    return 2 * n"


def test_arrays_have_figures_wherever_their_memory_is(session: dict[str, Variable]) -> None:
    small = session["small"].preview.array
    assert small is not None
    assert (small.minimum, small.maximum, small.mean) == (0.0, 11.0, 5.5)
    assert len(small.series) == 12
    large = session["large"].preview.array
    assert large is not None
    assert (large.looked_at, large.maximum) == (300_000, 4.0)
    assert len(large.series) == 60
    assert sum(large.histogram) == 300_000
    part = session["part"].preview.array
    assert part is not None
    assert part.series == (4.0,) * 10 + (0.0,) * 10
    holes = session["holes"].preview.array
    assert holes is not None
    assert (holes.missing, holes.mean) == (1, 2.0)


def test_a_long_list_is_begun(session: dict[str, Variable]) -> None:
    text = session["long"].preview.text
    assert text.startswith("[0, 1, 2")
    assert "more" in text


def test_secrets_are_not_there_to_be_shown(session: dict[str, Variable]) -> None:
    assert "hunter2" not in session["password"].preview.text
    assert "secret" in session["password"].preview.text


def test_a_state_is_its_value(store: Store) -> None:
    manager = StateManager("looked-at", store=store)
    manager.set_state("progress", 0.5)
    manager.set_state("odd", [float("inf"), b"bytes"])
    manager.checkpoint("half")
    found = look(store, store.show("state/looked-at"))
    assert isinstance(found.state, dict)
    assert found.state["progress"] == 0.5
    told = shape.contents(found)
    json.dumps(told, allow_nan=False)
    assert told["has_state"] is True


def tar(**files: bytes) -> bytes:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"root/{name}")
            info.size, info.mtime = len(content), 5
            archive.addfile(info, BytesIO(content))
    return out.getvalue()


def looked(store: Store, content: bytes) -> Contents:
    with store.draft("sandbox/looked-at") as draft:
        draft.put("files/upper", content, split="content")
        return look(store, store.show(draft.commit()))


def test_files_of_a_layer(store: Store) -> None:
    found = looked(store, tar(a=b"x" * 10, b=b""))
    assert found.files is not None
    assert [(each.path, each.kind, each.size) for each in found.files] == [
        ("root/a", "file", 10),
        ("root/b", "file", 0),
    ]
    assert not found.more_files
    assert looked(store, b"no tar at all" * 100).files is None


def test_what_strangers_signed_is_not_looked_into(tmp_path: Path) -> None:
    from holdfast.store.keys import Key

    elsewhere = {"HOLDFAST_HOME": str(tmp_path / "a"), "HOLDFAST_KEY": Key.generate().to_text()}
    with open_store(str(tmp_path / "theirs"), environ=elsewhere) as theirs:
        with theirs.draft("state/x") as draft:
            draft.put("state", {"state_info": {"a": 1}}, split="structure")
            made = draft.commit()
        theirs.export(made, tmp_path / "file")
    with open_store("memory://") as ours:
        found = ours.import_(tmp_path / "file")
        with pytest.raises(Denied):
            look(ours, ours.show(found))
        assert look(ours, ours.show(found), trust=True).has_state


def test_a_value_is_cut_to_what_one_can_read() -> None:
    told = shape.bounded({"long": "x" * 10_000, "many": list(range(100_000))})
    assert isinstance(told, dict)
    assert len(told["long"]) == shape.LONGEST + 1
    assert told["many"][-1]["$more"] > 90_000
    assert shape.bounded(float("nan")) == {"$number": "nan"}
