"""What is taken over from earlier captures is what a new one would have made."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.session import layout
from holdfast.session.worker import earlier, groups, taking
from holdfast.session.worker.blocks import Blocks
from holdfast.session.worker.capture import Capture
from holdfast.session.worker.captured import Captured
from holdfast.session.worker.cells import CellLog
from holdfast.session.worker.codes import CodeIndex
from holdfast.session.worker.definitions import Definitions
from holdfast.session.worker.earlier import Earlier
from holdfast.session.worker.groups import SIZE
from holdfast.session.worker.kinds import arrays
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.plain import fixed


@dataclass
class Pair:
    """A namespace that is captured twice each time: with what is known, and anew."""

    namespace: dict[str, Any] = field(default_factory=dict)
    earlier: Earlier = field(default_factory=Earlier)
    labels: Labels = field(default_factory=Labels)  # an object's is the same in both
    blocks: Blocks = field(default_factory=Blocks)

    def capture(self, earlier: Earlier | None, blocks: Blocks | None = None) -> Captured:
        cells = CellLog()
        definitions = Definitions(self.namespace)
        capture = Capture(
            self.namespace,
            cells,
            CodeIndex(cells),
            definitions,
            labels=self.labels,
            earlier=earlier,
            blocks=blocks,
        )
        return capture.run(layout.Environment())

    def check(self) -> Captured:
        told = self.capture(self.earlier, self.blocks)
        anew = self.capture(None)
        assert told.parts == anew.parts
        assert told.memory.keys() == anew.memory.keys()
        return told


LARGE = np.arange(300_000.0)
TEXTS = np.array([f"a text of some length, number {i}" for i in range(9000)], dtype=object)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.sampled_from(["password123", "sk-" + "a" * 30, "x" * 40_000, LARGE, LARGE[:10], TEXTS])
    | st.integers(0, 2).map(lambda i: np.roll(TEXTS, i)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.tuples(inner)
        | st.dictionaries(st.sampled_from(["x", "y", "token"]), inner, max_size=2)
        | st.just({1}).map(set)
        | st.just(2j)
    ),
    max_leaves=5,
)
names = st.sampled_from(["a", "b", "c", "password", "api_key", "__name__", "ö", "long_name"])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_capture_that_knows_earlier_ones_is_one_that_does_not(data: st.DataObject) -> None:
    pair = Pair()
    for _ in range(data.draw(st.integers(2, 5))):
        for _ in range(data.draw(st.integers(0, 4))):
            name = data.draw(names)
            kind = data.draw(
                st.sampled_from(["bind", "alias", "delete", "append", "share", "hold", "deep"])
            )
            value = pair.namespace.get(name)
            if kind == "bind":
                pair.namespace[name] = data.draw(values)
            elif kind == "alias" and pair.namespace:
                pair.namespace[name] = pair.namespace[data.draw(st.sampled_from([*pair.namespace]))]
            elif kind == "delete":
                pair.namespace.pop(name, None)
            elif kind == "share" and isinstance(value, list):
                value.append(pair.namespace[data.draw(st.sampled_from([*pair.namespace]))])
            elif kind == "hold" and pair.namespace:
                held = pair.namespace[data.draw(st.sampled_from([*pair.namespace]))]
                pair.namespace[name] = SimpleNamespace(held=held)
            elif kind == "deep" and isinstance(value, (list, tuple)):
                for inner in [each for each in value if isinstance(each, (list, dict))][:1]:
                    inner.append(1) if isinstance(inner, list) else inner.update(z=[2])
            elif isinstance(value, list):
                value.append(data.draw(values))
            elif isinstance(value, np.ndarray) and value.dtype == object and value is not TEXTS:
                value[data.draw(st.integers(0, 70))] = data.draw(st.sampled_from(["x", 1, None]))
        pair.check()


def test_an_array_may_change_its_shape_in_place() -> None:
    array = np.arange(400_000).reshape(800, 500)
    pair = Pair({"a": array, "b": array.copy()})
    first = pair.check().parts
    array.shape = (500, 800)
    second = pair.check().parts
    array.dtype = np.dtype("f8")
    third = pair.check().parts
    array.dtype = np.dtype("i8")
    array.shape = (800, 500)
    assert first == pair.check().parts
    assert len({parts["namespace/small"] for parts in (first, second, third)}) == 3


def test_a_layout_that_another_thread_changes_is_not_remembered_as_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair({"array": np.zeros(1 << 17)})
    array, pickled = pair.namespace["array"], taking.pickle_record

    def meanwhile(*given: Any) -> Any:
        array.shape = 1 << 7, 1 << 10
        return pickled(*given)

    with monkeypatch.context() as patched:
        patched.setattr(taking, "pickle_record", meanwhile)
        pair.capture(pair.earlier, pair.blocks)
    array.shape = 1 << 17
    pair.check()


def test_two_names_of_an_array_stay_one_array() -> None:
    array = np.zeros(200_000)
    pair = Pair({"a": array})
    pair.check()
    pair.namespace["b"] = array
    shared = pair.check()
    pair.namespace["b"] = array.copy()
    apart = pair.check()
    assert b"object:" in shared.parts["namespace/small"]
    assert b"object:" not in apart.parts["namespace/small"]
    assert len(apart.memory) == 2


@pytest.mark.parametrize(
    "other",
    [
        np.zeros(10),
        np.zeros(400_000)[::2],
        np.zeros(400_000)[1:],
        np.zeros(200_000, dtype=">f8"),
        np.zeros(200_000, dtype="M8[s]"),
        np.zeros(100_000, dtype=[("x", "f8"), ("y", "f8")]),
        np.zeros(200_000, dtype=object),
        np.zeros(200_000).view(np.recarray),
        np.ma.zeros(200_000),
        np.zeros(200_000, dtype=np.dtype("f8", metadata={"unit": "m"})),
        [1],
    ],
    ids=lambda each: f"{type(each).__name__} {getattr(each, 'dtype', '')}",
)
def test_of_other_arrays_more_is_to_be_said(other: object) -> None:
    assert arrays.form(other) is None
    Pair({"a": other}).check()


def test_what_cannot_change() -> None:
    assert all(map(fixed, (1, "x", b"x", None, True, 1.5, 2j, (), (1, ("x", (None,))))))
    mutable = ([], {}, set(), ([],), (1, ({},)), frozenset(), object(), type)
    assert not any(map(fixed, mutable))
    large = ("x" * 20_000, b"x" * 20_000, (1, "x" * 20_000), (1,) * 60)
    assert not any(map(fixed, large))  # nothing large is kept alive, or pickled twice

    class Text(str):
        __slots__ = ()

    assert not fixed(Text("x"))
    assert not fixed((Text("x"),))


def test_a_secret_is_no_less_one_the_second_time() -> None:
    pair = Pair({"password": "hunter2hunter2", "plain": "text", "key": "sk-" + "a" * 30})
    for _ in range(2):
        data = pickle.dumps(pair.check().parts)
        assert b"hunter2" not in data
        assert b"sk-aaa" not in data


def test_records_of_lists_and_dicts_that_are_as_they_were_are_not_made_again() -> None:
    """They are compared, many at once; the bytes of their records are the very same."""
    pair = Pair({f"v{i}": {"a": [i]} for i in range(100)} | {"w": [], "t": ([1],)})
    pair.check()
    before = dict(pair.earlier._settled)
    assert len(before) == 102
    pair.check()
    assert all(pair.earlier._settled[name] is each for name, each in before.items())
    pair.namespace["v50"]["a"].append(1)
    pair.check()
    again = [name for name, each in before.items() if pair.earlier._settled[name] is not each]
    assert "v50" in again
    assert len(again) <= SIZE


class Looks:
    """How often captures look at values by themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plain: list[str] = []  # names of plain values that were pickled
        self.compared = 0  # groups of lists and dicts that were pickled together
        self.others = 0  # anything, by the pickler that knows all kinds

        def settled(name: str, *rest: Any) -> Any:
            self.plain.append(name)
            return made(name, *rest)

        def look(*given: Any) -> Any:
            self.compared += 1
            return compared(*given)

        def record(*given: Any) -> Any:
            self.others += 1
            return pickled(*given)

        made, compared, pickled = earlier._settled, groups.look, taking.pickle_record
        monkeypatch.setattr(earlier, "_settled", settled)
        monkeypatch.setattr(groups, "look", look)
        monkeypatch.setattr(taking, "pickle_record", record)

    def take(self) -> tuple[list[str], int, int]:
        """Since the last time."""
        found = self.plain, self.compared, self.others
        self.plain, self.compared, self.others = [], 0, 0
        return found


def test_what_code_could_not_have_changed_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of values that cannot change, and of large arrays, nothing is pickled a second time; lists
    and dicts, which any code may reach, are compared in groups. All else is looked at each time."""
    plain = {f"n{i}": (i, f"text {i}") for i in range(300)}
    kept = {f"k{i}": [i, {"x": i}] for i in range(96)}
    large = {f"a{i}": np.full(200_000, float(i)) for i in range(20)}
    pair = Pair(plain | kept | large | {"other": SimpleNamespace(x=1)})
    looks = Looks(monkeypatch)
    pair.capture(pair.earlier)
    assert looks.take() == ([*plain, *kept], len(kept) // SIZE, len(large) + 1)
    for _ in range(3):
        pair.capture(pair.earlier)
        assert looks.take() == ([], len(kept) // SIZE, 1)  # the one that is of another kind
    pair.namespace["n7"] = 7.5
    pair.namespace["a3"][5] = -1  # which is for the kernel to tell
    pair.namespace["a4"] = pair.namespace["a4"].reshape(400, 500).copy()
    pair.capture(pair.earlier)
    assert looks.take() == (["n7"], len(kept) // SIZE, 2)
    pair.namespace["k50"].append(1)
    pair.capture(pair.earlier)
    again, compared, others = looks.take()
    assert "k50" in again
    assert len(again) == SIZE
    assert (compared, others) == (len(kept) // SIZE + 1, 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda names: names["a"].append(names["b"]),
        lambda names: names["a"][1].update(k=1),
        lambda names: names["a"].reverse(),
        lambda names: names.update(a=[*names["a"]]),
        lambda names: names["a"].__setitem__(1, dict(names["a"][1])),
        lambda names: names.update(other=SimpleNamespace(x=names["a"][1])),
        lambda names: names.update(other=[names["b"]]),
        lambda names: names["a"].append({1}),
        lambda names: names["a"].append(LARGE),
        lambda names: names["a"].append(names["a"]),
        lambda names: names.update(other=lambda: names["a"]),
        lambda names: names["a"].__setitem__(0, True),  # equal to what was there
        lambda names: names["a"].append("sk-" + "a" * 30),
    ],
)
def test_what_changed_is_noticed(change: Callable[[dict[str, Any]], None]) -> None:
    pair = Pair({"a": [1, {"k": "v"}, (2, [3])], "b": {"x": [1.5]}, "c": [4]})
    pair.check()
    change(pair.namespace)
    pair.check()
    pair.check()


@pytest.mark.parametrize(
    "change",
    [lambda a: a.append(2), lambda a: a.__setitem__(0, [5]), lambda a: a.append(object())],
    ids=["its bytes", "only what is shared", "to what is not plain"],
)
def test_what_changes_between_two_looks_at_it_is_noticed_the_next_time(
    change: Callable[[list[Any]], None],
) -> None:
    """As another thread may do it: after the record was made, and before it is remembered."""

    class Meanwhile(dict[int, str]):
        def __contains__(self, identity: object) -> bool:
            if identity == id(other) and found == [[5]]:
                change(found)
            return False

    found: list[Any] = [[5]]
    other = [1]
    earlier = Earlier()
    earlier.settle({"found": found, "other": other}, None, Meanwhile())
    again = earlier.settle({"found": found, "other": other}, None)
    anew = Earlier().settle({"found": found, "other": other}, None)
    assert [(n, e.record, set(e.inside)) for n, e in again.items()] == [
        (n, e.record, set(e.inside)) for n, e in anew.items()
    ]


def test_no_code_of_the_user_runs_when_it_is_compared() -> None:
    pair = Pair({"a": [1], "b": [2]})
    pair.check()
    ran: list[str] = []

    class Loud:
        def __reduce_ex__(self, protocol: int) -> tuple[type, tuple[()]]:
            ran.append("reduce")
            return list, ()

    loud = Loud()
    pair.namespace["a"] = value = [loud]
    assert not any(group.same(pair.namespace) for group in pair.earlier._groups)
    pair.namespace["a"], value[:] = pair.earlier._settled["a"].value, []
    pair.namespace["a"].append(loud)
    assert not any(group.same(pair.namespace) for group in pair.earlier._groups)
    assert not ran


def test_a_set_is_not_kept_alive() -> None:
    pair = Pair({"a": {1, 2}, "b": [{3}]})
    pair.check()
    gone = [weakref.ref(pair.namespace["a"]), weakref.ref(pair.namespace["b"][0])]
    pair.namespace.clear()
    assert [each() for each in gone] == [None, None]


def test_a_limit_counts_for_what_is_known() -> None:
    earlier = Earlier()
    assert set(earlier.settle({"a": "x" * 1000, "b": 1}, None)) == {"a", "b"}
    assert set(earlier.settle({"a": "x" * 1000, "b": 1}, 100)) == {"b"}


def test_the_record_of_an_array_is_the_one_that_it_would_have_among_others() -> None:
    array = np.arange(400_000.0)
    pair = Pair({"a": array, "b": np.arange(300_000), "c": 1})
    alone = pair.check()
    pair.namespace["holder"] = [array]  # which makes both look at it more closely
    shared = pair.check()
    del pair.namespace["holder"]
    again = pair.check()
    assert again.parts == alone.parts
    assert [*again.memory] == [*alone.memory]
    report = layout.decode(shared.parts["report"], layout.ReportPart)
    before = layout.decode(alone.parts["report"], layout.ReportPart)
    assert {item.name: (item.type_name, item.summary) for item in before.items}.items() <= {
        item.name: (item.type_name, item.summary) for item in report.items
    }.items()


def test_no_array_is_kept_alive() -> None:
    pair = Pair({"a": np.arange(400_000.0)})
    seen = weakref.ref(pair.namespace["a"])
    pair.check()
    del pair.namespace["a"]
    gc.collect()  # a capture itself goes round in circles
    assert seen() is None
