"""Which variables a diff names, also when what changed is in a record that several share."""

from __future__ import annotations

from holdfast import sync
from holdfast.session import SessionCheckpoint
from holdfast.session.variables import compare
from holdfast.store import open_store


def test_changes_in_shared_objects_segments_and_memory() -> None:
    store = open_store("memory://")
    with sync.Session("diffed", store=store) as session:
        session.execute(
            "import numpy as np\n"
            "shared = [1]\na, b = [shared], {'s': shared}\nalone = [1]\n"
            "big = {f'k{i}': [i] for i in range(9000)}\nholder = [big]\n"
            "array = np.zeros(300_000)\nview = array[10:20]\nother = np.zeros(300_000)\n"
            "text = 'x' * 100_000\ndef f(): return 1",
            check=True,
        )
        first = session.checkpoint()
        same = session.checkpoint()
        session.execute("shared.append(2)", check=True)
        second = session.checkpoint()
        session.execute("big['k5000'].append(1)", check=True)
        third = session.checkpoint()
        session.execute("array[5] = 1.0", check=True)
        fourth = session.checkpoint()
        session.restore(fourth)
        fifth = session.checkpoint()

    def names(before: SessionCheckpoint, after: SessionCheckpoint) -> set[str]:
        found = compare(store, store.diff(before.id, after.id))
        assert found is not None
        return {each.name for each in found}

    assert names(first, same) == set()
    assert names(same, second) == {"shared", "a", "b"}
    assert names(second, third) == {"big", "holder"}
    assert names(third, fourth) == {"array", "view"}
    assert names(fourth, fifth) == set()  # labels outlive a restore


def test_a_diff_can_be_printed() -> None:
    with sync.Session("told", store=open_store("memory://")) as session:
        session.execute("kept = 1\nnumbers = [1]\ngone = 'text'", check=True)
        first = session.checkpoint()
        session.execute("numbers.append(2)\ndel gone\nnew = iter([])", check=True)
        second = session.checkpoint()
        shown = str(session.diff())
        nothing = str(session.diff(second, second))
    heading, *lines = shown.splitlines()
    assert heading == f"session/told: {first.short} -> {second.short}"
    assert [line.split(":")[0] for line in lines] == [
        "  numbers changed", "  gone removed", "  new added",
    ]  # fmt: skip
    assert "exact, " in lines[0]
    assert "list 2 items, " in lines[0]  # and not only how many bytes
    assert "str 4 characters, " in lines[1]
    assert " -> " in lines[0]
    assert nothing.splitlines()[1:] == ["  the same content"]


def test_a_diff_of_the_store_can_be_printed() -> None:
    store = open_store("memory://")
    made = []
    for loss, data in ((0.5, b"a"), (0.25, b"ab")):
        with store.draft("state/run") as draft:
            draft.put("metrics", {"loss": loss}, split="structure")
            draft.put("data", data)
            made.append(draft.commit())
    assert str(store.diff(made[0].id, made[1].id)).splitlines()[1:] == [
        "  data changed: 1 B -> 2 B, 2 B of it new",
        "  metrics changed: 15 B, 15 B of it new",
        "  metrics: loss: 0.5 -> 0.25",
    ]


def test_unreadable_records_are_not_called_same() -> None:
    """Another writer's records cannot be compared, so what differs there counts as changed."""
    store = open_store("memory://")
    items = [{"name": "x", "outcome": "exact", "reason": "", "tier": "cloudpickle"}]
    made = []
    for data in (b"\xff" * 9, b"\xff" * 9, b"\xfe" * 9):
        with store.draft("session/other") as draft:
            draft.put("report", {"items": items}, split="structure")
            draft.put("namespace/small", data, split="whole")
            made.append(draft.commit())
    first, same, other = made
    assert compare(store, store.diff(first.id, same.id)) == []
    found = compare(store, store.diff(first.id, other.id))
    assert [str(each) for each in found or ()] == ["x changed: exact"]
