"""Whatever plain data a session holds, a restore gives it back, with what it shares."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import sync
from holdfast.session import Session

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        | st.sets(st.integers() | st.text(), max_size=4)
    ),
    max_leaves=15,
)


SAME = """
def same(a, b):
    if type(a) is not type(b): return False
    if isinstance(a, (list, tuple)): return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict): return same(list(a.items()), list(b.items()))
    return a == b if not isinstance(a, (float, complex)) else repr(a) == repr(b)
"""


def test_plain_data_comes_back_equal() -> None:
    with sync.Session(store="memory://") as session:

        @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(values, min_size=1, max_size=5))
        def check(found: list[object]) -> None:
            names = [f"v{i}" for i in range(len(found))]
            texts = [_source(value) for value in found]
            cell = "\n".join(f"{name} = {text}" for name, text in zip(names, texts, strict=True))
            result = session.execute(cell)
            assert result.error is None, result.error.traceback
            cp = session.checkpoint(save_to_disk=False)
            assert all(item.outcome == "exact" for item in cp.report.items)
            session.execute("globals().clear()")
            session.restore(cp)
            names_and_texts = f"[{', '.join(names)}], [{', '.join(texts)}]"
            same = session.execute(f"{SAME}\nanswer = same({names_and_texts})\ndel same\nanswer")
            assert same.error is None, same.error.traceback
            assert same.value is True

        check()


BUILD = """
import collections, functools
class Node:
    def __init__(self): self.links = []
class Slotted:
    __slots__ = ('links', '__weakref__')
    def __init__(self): self.links = []
class Named(list): pass
KINDS = [Node, Slotted, Named, list, dict, collections.OrderedDict, collections.deque]
def new(kind):
    return KINDS[kind % len(KINDS)]()
def add(node, others):
    if isinstance(node, (Node, Slotted)): node.links.extend(others)
    elif isinstance(node, dict): node.update((f'k{i}', o) for i, o in enumerate(others))
    else: node.extend(others)
def wrapped(node, how):
    if how == 1: return (node, 'x')
    if how == 2: return functools.partial(print, node)
    if how == 3: return lambda: node
    if how == 4: return [(node,)]
    return node
def inside(thing):
    if isinstance(thing, (Node, Slotted)): return [thing.links]
    if isinstance(thing, dict): return list(thing.values())
    if isinstance(thing, functools.partial): return list(thing.args)
    if isinstance(thing, type(inside)): return [c.cell_contents for c in thing.__closure__ or ()]
    if isinstance(thing, (list, tuple, collections.deque)): return list(thing)
    return []
def build(edges):
    nodes = [new(kind) for kind, _ in edges]
    for node, (_, targets) in zip(nodes, edges):
        add(node, [wrapped(nodes[t % len(nodes)], how) for t, how in targets])
    return nodes
def shape(*roots):
    seen, order, keep = {}, [], []
    waiting = list(roots)
    numbers = []
    def number(thing):
        if not isinstance(thing, (str, int)) and id(thing) not in seen:
            seen[id(thing)] = len(seen); keep.append(thing); waiting.append(thing)
        return seen.get(id(thing), thing)
    first = [number(r) for r in roots]
    while waiting:
        thing = waiting.pop(0)
        order.append([seen[id(thing)], type(thing).__name__, [number(t) for t in inside(thing)]])
    return [first, order]
"""
# Nodes of seven kinds; each refers to others (and itself), plainly or wrapped in four ways.
graphs = st.lists(
    st.tuples(
        st.integers(0, 6), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 4)), max_size=4)
    ),
    min_size=1,
    max_size=8,
)


def test_graphs_come_back_isomorphic(tmp_path: Path) -> None:
    """Into the same worker from memory, and one in ten into a new process from a directory."""
    store = str(tmp_path / "store")
    tried, resumed = itertools.count(), itertools.count()
    session = sync.Session("graphs", store=store).start()
    session.execute(BUILD, check=True)

    @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
    @given(graphs)
    def check(edges: list[tuple[int, list[tuple[int, int]]]]) -> None:
        nonlocal session
        names = ", ".join(f"n{i}" for i in range(len(edges)))
        session.execute("for n in [n for n in globals() if n[0] == 'n' and n[1:].isdigit()]:"
                        " del globals()[n]", check=True)  # fmt: skip
        code = f"{names}, = build({edges})\nbefore = shape({names})"
        session.execute(code, check=True)
        if next(tried) % 10 == 5:
            next(resumed)
            session.checkpoint()
            session.shutdown()
            session = sync.Session.resume("graphs", store=store)
            report = session.report
        else:
            report = session.restore(session.checkpoint(save_to_disk=False))
        assert report is not None
        assert {i.outcome for i in report.items if i.name[1:].isdigit()} == {"exact"}
        assert session.execute(f"shape({names}) == before", check=True).value is True

    try:
        check()
    finally:
        session.shutdown()
    assert next(resumed) >= 3


def _source(value: object) -> str:
    """Python text for a value; `repr` lacks words for some floats."""
    if isinstance(value, float):
        return f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({_source(value.real)}, {_source(value.imag)})"
    if isinstance(value, list):
        return "[" + "".join(_source(item) + ", " for item in value) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(_source(item) + ", " for item in value) + ")"
    if isinstance(value, dict):
        return "{" + "".join(f"{k!r}: {_source(v)}, " for k, v in value.items()) + "}"
    return repr(value)


async def test_arrays_keep_hold_of_the_memory_they_show(session: Session) -> None:
    await session.execute(
        "import numpy as np\nraw = bytearray(b'abc' * 100)\nshown = np.frombuffer(raw, 'u1')\n"
        "part = shown[3:9:2]\nfixed = np.frombuffer(b'fixed' * 9, 'u1')",
        check=True,
    )
    for _ in range(2):
        checkpoint = await session.checkpoint()
        await session.restore(checkpoint)
        result = await session.execute("raw.extend(b'more')")
        assert result.error is not None
        assert result.error.type == "BufferError"
        code = "shown[3] = 1\n[raw[3], part.tolist(), fixed[:5].tobytes(), fixed.flags.writeable]"
        found = (await session.execute(code, check=True)).value
        assert found == [1, [1, 99, 98], b"fixed", False]
