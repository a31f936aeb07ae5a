"""Checkpoints of one Python version in the others: source and data, and never a crash."""

from __future__ import annotations

import sys
from itertools import permutations
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.store import Store, open_store

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "pythons"
OWN = "{}.{}".format(*sys.version_info)
VERSIONS = ("3.11", "3.12", "3.13")  # those that Holdfast runs on
PYTHONS = {OWN: Path(sys.executable)} | {
    ready.parent.name: ready.parent / "bin" / "python" for ready in sorted(CACHE.glob("3.*/ready"))
}

CELL = """
import math, dataclasses, enum, collections, functools, re, datetime
rate = 2
class C:
    k = []
    class Inner:
        n = 1
    def __init__(self, x): self.x = x
    def m(self): return [self.x * rate for _ in range(2)]
class Sub(C):
    def m(self): return super().m() + [math.floor(2.5)]
C.k.append(1); C.later = lambda self: self.x; C.Inner.n = 2
@dataclasses.dataclass
class D:
    a: int
    b: list = dataclasses.field(default_factory=list)
class E(enum.Enum):
    R = 1
c, s, d, e, i = C(3), Sub(4), D(1, [2]), E.R, C.Inner()
shared = [1]; both = {'s': shared, 'c': c}
def f(x, k=shared): return [x + i for i in k] + [rate]
def outer():
    n = 0
    def up():
        nonlocal n
        n += 1
        return n
    return up, (lambda: n)
up, now = outer(); up()
lam = lambda x: {y: x for y in range(2)}
part = functools.partial(f, 1)
P = collections.namedtuple('P', 'x y', defaults=[5]); p = P(1)
big = {n: [n, shared] for n in range(5000)}
err = ValueError('no'); pat = re.compile('a'); when = datetime.datetime(2026, 1, 1)
Dyn = type('Dyn', (), {'m': lambda self: 5}); dyn = Dyn()
gen = (n for n in [1, 2])
def deco(g):
    @functools.wraps(g)
    def inner(*a):
        inner.calls += 1
        return g(*a)
    inner.calls = 0
    return inner
@deco
def decorated(x): return x
decorated(1)
exec("def code(x): return x + 1")
holder = [code, 'kept']
"""
CHECK = """
[c.m(), s.m(), C.k, c.later(), i.n, type(i) is C.Inner, d == D(1, [2]), e is E.R,
 both['s'] is shared, both['c'] is c, f.__defaults__[0] is shared, f(1), part(), lam(3),
 p == P(1, 5), type(p) is P, len(big), big[4999][1] is shared, err.args,
 pat.match('a').group(), when.year, dyn.m(), type(dyn) is Dyn]
"""
EXPECTED = [
    [6, 6], [8, 8, 2], [1], 3, 2, True, True, True, True, True, True, [2, 2], [2, 2],
    {0: 3, 1: 3}, True, True, 5000, True, ("no",), "a", 2026, 5, True,
]  # fmt: skip
# To look at these changes them, so a checkpoint made afterwards has them as they are then.
COUNT = "[up(), now(), list(gen), decorated(2), decorated.calls]"
COUNTED = [2, 2, [1, 2], 2, 2]
COUNTED_AGAIN = [3, 3, [], 2, 3]


def python_of(version: str) -> str:
    """Where it is; what needs a version that this machine has not is skipped, and says so."""
    if version not in PYTHONS:
        pytest.skip(
            f"Python {version} is not here, only {', '.join(sorted(PYTHONS))}: "
            f"install it as `python{version}`, by pyenv or by uv, then `make setup-test`"
        )
    return str(PYTHONS[version])


@pytest.fixture(scope="module")
def store() -> Store:
    """A checkpoint made by each version."""
    store = open_store("memory://")
    for version, python in PYTHONS.items():
        with sync.Session(f"of-{version}", store=store, python=str(python)) as session:
            session.execute(CELL, check=True)
            checkpoint = session.checkpoint()
            placeholders = [i.name for i in checkpoint.report.items if i.outcome == "placeholder"]
            assert placeholders == []
            assert store.value(checkpoint.id, "environment")["python"].startswith(version)
    return store


@pytest.mark.parametrize(("made", "opened"), list(permutations(VERSIONS, 2)))
def test_a_checkpoint_of_another_version(store: Store, made: str, opened: str) -> None:
    first, second = python_of(made), python_of(opened)
    with sync.Session.resume(f"of-{made}", store=store, python=second) as session:
        assert session.execute(CHECK, check=True).value == EXPECTED
        assert session.execute(COUNT, check=True).value == COUNTED
        assert session.report is not None
        # What has no source is bytecode, and stays a placeholder there.
        lost = {i.name: i.reason for i in session.report.items if i.outcome == "placeholder"}
        assert lost.keys() == {"code", "holder"}
        assert all("bytecode of Python" in reason for reason in lost.values())
        # What was brought back is frozen by this version, and opened by the first one again.
        session.execute("del code, holder", check=True)
        back = session.fork(f"{made}-by-{opened}")
        back.shutdown()
    with sync.Session.resume(f"{made}-by-{opened}", store=store, python=first) as session:
        assert session.execute(CHECK, check=True).value == EXPECTED
        assert session.execute(COUNT, check=True).value == COUNTED_AGAIN
