"""Whatever plain data a session holds, a restore gives it back, with what it shares."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import sync

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
# A list of at most eight nodes; each holds numbers and references to other nodes (and itself).
graphs = st.lists(st.lists(st.integers(0, 7), max_size=4), min_size=1, max_size=8)


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


def test_graphs_come_back_isomorphic() -> None:
    with sync.Session(store="memory://") as session:
        session.execute(
            "class Node:\n    def __init__(self): self.links = []\n"
            "def build(edges):\n"
            "    nodes = [Node() if i % 2 else {'links': []} for i in range(len(edges))]\n"
            "    def links(n): return n.links if isinstance(n, Node) else n['links']\n"
            "    for n, targets in zip(nodes, edges):\n"
            "        links(n).extend(nodes[t % len(nodes)] for t in targets)\n"
            "    return nodes\n"
            "def shape(*nodes):\n"
            "    seen, order = {}, []\n"
            "    def walk(n):\n"
            "        if id(n) in seen: return seen[id(n)]\n"
            "        seen[id(n)] = len(seen)\n"
            "        at = len(order); order.append(None)\n"
            "        own = n.links if isinstance(n, Node) else n['links']\n"
            "        order[at] = [type(n).__name__, [walk(t) for t in own]]\n"
            "        return seen[id(n)]\n"
            "    return [[walk(n) for n in nodes], order]\n"
        )

        @settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
        @given(graphs)
        def check(edges: list[list[int]]) -> None:
            names = ", ".join(f"n{i}" for i in range(len(edges)))
            result = session.execute(f"{names}, = build({edges})\nbefore = shape({names})\nbefore")
            assert result.error is None, result.error.traceback
            session.restore(session.checkpoint(save_to_disk=False))
            assert session.execute(f"shape({names}) == before").value is True

        check()


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
