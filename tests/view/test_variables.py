"""Which variables a diff names, also when what changed is in a record that several share."""

from __future__ import annotations

from holdfast import sync
from holdfast.session import SessionCheckpoint
from holdfast.store import open_store
from holdfast.view.variables import compare


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
