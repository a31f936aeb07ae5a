"""The work of the session benchmark as cells: set-up, steps with a checkpoint after each, a check.

The check is an expression that is true only if everything came back as it was.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """One kind of session."""

    name: str
    what: str
    setup: tuple[str, ...]
    steps: tuple[str, ...]
    check: str
    touch: str  # an expression that a restored session answers first
    libraries: str = ""  # that a process needs before it can answer
    whole: int = 4096  # bytes in all
    changed: int = 4096  # bytes that a step changes, and of the pages that they are in
    dirty: int = 4096
    filled: int = 0  # bytes that a restore cannot map, because deltas lie on them
    texts: int = 0  # that a restore makes
    ours_only: bool = False  # peers write and read all of it each time, which is known from W2

    @property
    def room(self) -> int:
        """Bytes of memory that a tool may need: the session, a file of it, and itself."""
        return 2 * self.whole + (1 << 29)


def ordinary() -> Work:
    values = ("{0}", "'s{0}'", "[{0}, {0} + 1, 'x']", "{{'a': {0}, 'b': [{0}]}}", "({0}, {0}.5)")
    variables = "\n".join(f"v{i} = {values[i % 5].format(i)}" for i in range(200))
    functions = "import math\n" + "\n".join(
        f"def f{i}(x, k={i}):\n    'doc {i}'\n    return x * k + v0 + math.floor(2.5)"
        + (f" + f{i - 1}(x)" if i else "")
        for i in range(20)
    )
    classes = "\n".join(
        f"class C{i}{f'(C{i - 1})' if i else ''}:\n    tag = {i}\n"
        f"    def __init__(self, y=1): self.y = y\n    def m(self): return self.y, {i}\n"
        f"    def up(self): return {'super().m()' if i else 'None'}"
        for i in range(5)
    )
    objects = "\n".join(f"o{i} = C{i}({i})" for i in range(5))
    shared = "shared = [1, 2, 3]\nfirst = {'s': shared}\nsecond = [shared]"
    check = (
        "v0 == 1 and v45 == 46 and len([n for n in globals() if n[0] == 'v' and n[1:].isdigit()])"
        " == 200 and f19(2) == sum(2 * k + v0 + 2 for k in range(20))"
        " and f0.__globals__ is globals() and all(type(globals()[f'o{i}']) is globals()[f'C{i}']"
        " for i in range(5)) and o4.up() == (4, 3) and first['s'] is shared is second[0]"
        " and __import__('inspect').getsource(f3).startswith('def f3')"
    )
    steps = tuple(f"v{i * 5} = v{i * 5} + 1" for i in range(10))
    return Work(
        "W1", "200 variables, 20 functions, 5 classes",
        (variables, functions, classes, objects, shared), steps, check, "v0",
    )  # fmt: skip


def arrays(scattered: bool) -> Work:
    make = "\n".join(
        f"a{i} = np.random.default_rng({i}).standard_normal(6_250_000)" for i in range(20)
    )
    place = "[{0}::100]" if scattered else "[{0} * 62500:({0} + 1) * 62500]"
    here = place.format("i")
    steps = tuple(f"a{i}{place.format(i)} += 1.0" for i in range(20))
    check = (
        "(lambda same: all(same(i) for i in range(20)) and bool(a0.flags.writeable))(lambda i:"
        f" (lambda e: (e.__setitem__(np.s_{here}, e{here} + 1),"
        " np.array_equal(e, globals()[f'a{i}']))[1])"
        "(np.random.default_rng(i).standard_normal(6_250_000)))"
    )  # fmt: skip
    return Work(
        "W2s" if scattered else "W2",
        "20 arrays of 50 MB, 1% of one changed" + (", every page" if scattered else ", in one run"),
        ("import numpy as np", make), steps, check, "float(a7[1234567])",
        "numpy", 1_000_000_000, 500_000, 50_000_000 if scattered else 500_000,
        filled=1_000_000_000 if scattered else 0,
    )  # fmt: skip


def large() -> Work:
    make = "\n".join(f"a{i} = np.arange({i} << 40, ({i} << 40) + (32 << 20))" for i in range(16))
    steps = tuple(f"a{i}[:62500] += 1" for i in range(3))
    check = (
        "all(bool((a[1:] - a[:-1] == 1)[62500:].all()) for a in (a0, a9, a15))"
        " and int(a2[0]) == (2 << 40) + 1 and int(a3[0]) == 3 << 40"
    )
    return Work(
        "4GB", "16 arrays of 256 MiB, 0.5 MB changed", ("import numpy as np", make), steps, check,
        "int(a7[12_345_678])", "numpy", 4 << 30, 500_000, 500_000, ours_only=True,
    )  # fmt: skip


def frames() -> Work:
    make = (
        "def make(k, n=600_000):\n"
        "    r = np.random.default_rng(k)\n"
        "    d = pd.DataFrame({'id': np.arange(n), 'x': r.standard_normal(n),\n"
        "                      'y': r.standard_normal(n), 'z': r.integers(0, 1000, n)})\n"
        "    for column, form in (('name', 'user_{k}_{i}'), ('city', 'city{m}_{i}')):\n"
        "        texts = [form.format(k=k, i=i, m=i % 5000) for i in range(n)]\n"
        "        d[column] = pd.Series(np.array(texts, dtype=object), dtype=object)\n"
        "    return d"
    )
    check = (
        "all(bool((globals()[f'df{i % 5}'][f'new{i}'] == globals()[f'df{i % 5}']['x'] * (i + 2))"
        ".all()) and globals()[f'df{i % 5}']['name'].dtype == object"
        " and globals()[f'df{i % 5}']['name'].iloc[77] == f'user_{i % 5}_77'"
        " and globals()[f'df{i % 5}']['city'].iloc[-1] == 'city4999_599999' for i in range(10))"
    )
    several = "\n".join(f"df{k} = make({k})" for k in range(5))
    setup = ("import numpy as np, pandas as pd", make, several)
    steps = tuple(f"df{i % 5}['new{i}'] = df{i % 5}['x'] * {i + 2}" for i in range(10))
    return Work(
        "W3", "5 frames of 100 MB with strings, a column added", setup, steps, check,
        "float(df3['x'].iloc[1234])", "numpy, pandas", 500_000_000, 4_800_000, 4_800_000,
        texts=6_000_000,
    )  # fmt: skip


def objects() -> Work:
    make = (
        "big = {i: {'id': i, 'tags': [i, i + 1, 't%d' % i], 'meta': {'a': i * 2}}"
        " for i in range(200_000)}"
    )
    steps = tuple(f"big[{i * 1000}]['meta']['a'] = -{i + 1}" for i in range(5))
    check = "all(big[i * 1000]['meta']['a'] == -(i + 1) for i in range(5)) and len(big) == 200_000"
    return Work(
        "W4", "a dict of 1M small objects, one leaf changed", (make,), steps, check,
        "big[77]['id']", whole=10_000_000,
    )  # fmt: skip


def all_work() -> dict[str, Work]:
    found = (ordinary(), arrays(False), arrays(True), large(), frames(), objects())
    return {work.name: work for work in found}
