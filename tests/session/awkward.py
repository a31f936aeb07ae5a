"""Kinds of awkward objects, and what a checkpoint makes of each: the table of the guide."""
# ruff: noqa: E501  # a table

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["exact", "rebuilt", "placeholder"]


# So much memory that a capture is made in a copy of the process, from the first on.
LARGE = """
import ctypes as _ctypes
_libc = _ctypes.CDLL(None)
_libc.malloc.restype = _ctypes.c_void_p
_libc.memset(_ctypes.c_void_p(_libc.malloc(150 << 20)), 1, 150 << 20)
del _ctypes, _libc
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: code that makes it, code that must be true after a restore in a new process."""

    name: str
    code: str
    check: str
    outcome: Outcome = "exact"
    what: str = "as it was"
    names: tuple[str, ...] = ()  # whose outcome it is; by default `k`

    def own(self, number: int) -> tuple[str, str, tuple[str, ...]]:
        """The code and the check with names of their own: every `k` stands for `k<number>`."""
        mine = f"k{number}"
        names = self.names or ("k",)
        return (
            _renamed(self.code, mine),
            _renamed(self.check, mine),
            tuple(_renamed(name, mine) for name in names),
        )


def _renamed(text: str, mine: str) -> str:
    return text.replace("§", mine)


def kind(name: str, code: str, check: str, outcome: Outcome = "exact", what: str = "as it was",
         names: tuple[str, ...] = ("§",)) -> Kind:  # fmt: skip
    return Kind(name, code, check, outcome, what, names)


KINDS = (
    kind("shared references", "§ = [1]\n§b = {'a': §, 'b': (§,)}",
         "§b['a'] is § and §b['b'][0] is §", names=("§", "§b")),
    kind("cycles", "§ = {'me': None}\n§['me'] = [§]\n§b = (§['me'],)\n§['me'].append(§b)",
         "§['me'][0] is § and §b[0] is §['me'] and §['me'][1] is §b", names=("§", "§b")),
    kind("views of arrays", "import numpy as np\n§ = np.arange(20.0).reshape(4, 5)\n"
         "§r, §c = §[1], §[::-1, 2]",
         "(§.__setitem__((1, 2), 99.0), bool(§r[2] == 99 and §c[2] == 99 and §r.base is §.base))[1]",
         names=("§", "§r", "§c")),
    kind("large arrays and views of them", "§ = np.zeros((600, 600))\n§v = §[10:20].T",
         "(§.__setitem__((15, 7), 5.0), bool(§v[7, 5] == 5) and §.flags.owndata)[1]", names=("§", "§v")),
    kind("arrays of every kind", "§ = [np.arange(500.0), np.arange(500)[::-1], np.zeros((30, 40), order='F'),"
         " np.array(['2020-01-01'] * 300, 'M8[D]'), np.zeros(200, [('x', 'f8'), ('y', 'i4')]), np.array('x'),"
         " np.array(['text'] * 400), np.array([[1], {}, 2], object), np.zeros((0, 3))]",
         "[a.shape for a in §] == [(500,), (500,), (30, 40), (300,), (200,), (), (400,), (3,), (0, 3)] and"
         " all(a.flags.owndata and a.flags.writeable for a in [§[0], *§[2:]]) and §[2].flags.f_contiguous and"
         " int(§[1][0]) == 499 and §[3][0] == np.datetime64('2020-01-01') and §[6][399] == 'text'"),
    kind("arrays that are read-only", "§ = np.arange(5)\n§v = §[1:]\n§.flags.writeable = False\n"
         "§b = np.zeros(200_000)\n§b.flags.writeable = False\n§o = np.array([[1], {}], object)\n"
         "§o.flags.writeable = False",
         "not any(a.flags.writeable for a in (§, §b, §o)) and §v.flags.writeable and"
         " (§v.__setitem__(0, 99), bool(§[1] == 99))[1] and §o[0] == [1]", names=("§", "§v", "§b", "§o")),
    kind("views by stride tricks, rows of records", "§ = np.arange(6.0)\n"
         "§s = np.lib.stride_tricks.as_strided(§, (3, 6), (0, 8))\n"
         "§w = np.lib.stride_tricks.sliding_window_view(§, 3)\n§b = np.broadcast_to(§[:2], (4, 2))\n"
         "§t = np.zeros(3, [('a', 'i4'), ('b', 'f8')])\n§r = §t[1]",
         "(§.__setitem__(0, 9.0), bool(§s[2, 0] == 9 and §w[0, 0] == 9 and §b[3, 0] == 9) and"
         " §b.strides == (0, 8))[1] and (§r.__setitem__('a', 7), bool(§t['a'][1] == 7))[1]",
         names=("§", "§s", "§w", "§b", "§t", "§r")),
    kind("subclasses of arrays, masked arrays", "class §S(np.ndarray): pass\n§ = np.arange(4.0)\n"
         "§s = §.view(§S)\n§s.info = ['mine']\n§p = §s[1:]\n"
         "§m = np.ma.masked_array(§, mask=[1, 0, 0, 0], copy=False, fill_value=-1, hard_mask=True)\n"
         "§t = np.zeros(3, [('a', 'i4')])\n§r = §t.view(np.recarray)",
         "(§.__setitem__(1, 9.0), bool(§s[1] == 9 and §p[0] == 9 and §m[1] == 9))[1] and type(§p) is §S"
         " and §s.info == ['mine'] and §m.hardmask and §m.fill_value == -1 and §m.mask[0] and"
         " (§t['a'].__setitem__(0, 5), bool(§r.a[0] == 5))[1]", names=("§", "§s", "§p", "§m", "§t", "§r")),
    kind("mapped files", "§p = folder + '/mapped'\n§ = np.memmap(§p, 'f8', 'w+', shape=(300,))\n"
         "§v = §[5:]", "(§v.__setitem__(0, 7.0), §.flush(), float(np.fromfile(§p)[5]) == 7.0 == float(§[5])"
         " and type(§) is np.memmap)[2]", "rebuilt", "mapped again, while the file is the same",
         ("§", "§v")),
    kind("functions", "rate = 2\ndef §(x, k=[3], *, z: int = 4):\n    'doc'\n"
         "    return x * k[0] * rate\n§.calls = 5",
         "§(2) == 12 and §.calls == 5 and §.__globals__ is globals() and §.__doc__ == 'doc'",
         "rebuilt", "from its source, with defaults and attributes; its globals are the session's"),
    kind("lambdas that use globals", "§ = lambda x: x * rate", "§(3) == 6", "rebuilt",
         "from its source"),
    kind("recursive lambdas", "§ = lambda n: 1 if n < 2 else n * §(n - 1)", "§(5) == 120",
         "rebuilt", "from its source"),
    kind("closures that share a cell", "def §make():\n    n = 0\n    def up():\n"
         "        nonlocal n\n        n += 1\n        return n\n    return up, lambda: n\n"
         "§, §now = §make()\n§()", "(§(), §now() == 2)[1]", names=("§", "§now")),
    kind("partials", "import functools\n§ = functools.partial(int, base=2)", "§('101') == 5"),
    kind("functions with lru_cache", "§ran = []\n@functools.lru_cache(7, typed=True)\n"
         "def §(n, *, twice=False):\n    §ran.append(n)\n    return n * (4 if twice else rate)\n"
         "§(4); §(4.0); §(5, twice=True)",
         "(§(4), §(4.0), §(5, twice=True), §(6)) == (8, 8.0, 20, 12) and §ran == [4, 4.0, 5, 6] and"
         " §.cache_info()[:3] == (3, 4, 7)",
         "rebuilt", "with what is in its cache; the counts of hits and misses begin anew"),
    kind("bound methods", "class §C:\n    def __init__(self): self.n = 1\n"
         "    def m(self): return self.n\n§o = §C()\n§ = §o.m\n§b = [].append",
         "(setattr(§o, 'n', 7), §() == 7 and §.__self__ is §o and §b.__self__ == [])[1]",
         names=("§", "§o", "§b")),
    kind("enums", "import enum\nclass §E(enum.Enum):\n    RED = 1\n§ = [§E.RED]",
         "§[0] is §E.RED"),
    kind("members of sets that they hold themselves", "class §H:\n    def __init__(self, n):\n"
         "        self.n, self.peers = n, set()\n    def __hash__(self): return hash(self.n)\n"
         "    def __eq__(self, other): return self.n == other.n\n§, §b = §H(1), §H(2)\n"
         "§.peers |= {§, §b}\n§b.peers.add(§)\n§d = {§: {§b: §}}",
         "§ in §.peers and §b in §.peers and len(§.peers) == 2 and §d[§][§b] is § and"
         " next(iter(§b.peers)) is §", names=("§", "§b", "§d")),
    kind("classes that register themselves", "§all = []\nclass §M(type):\n"
         "    def __init__(c, *a):\n        super().__init__(*a)\n        §all.append(c)\n"
         "class §A(metaclass=§M): pass\nclass §B(§A): pass\n§subs = {}\nclass §R:\n"
         "    def __init_subclass__(c): §subs[c.__name__] = c\nclass §S(§R): pass\n§ = [§B(), §S()]",
         "§all == [§A, §B] and [*§subs.values()] == [§S] and type(§[0]) is §B and type(§[1]) is §S",
         names=("§", "§all", "§subs")),
    kind("enums whose members carry something", "class §E(enum.Enum):\n    A = (1,)\n    B = (2,)\n"
         "    def __init__(self, n): self.log = [n]\n§E.A.log.append(5)\n§E.B.seen = True\n§E.all = [7]\n"
         "§F = enum.Enum('§F', 'x y')\n§F.x.log = [1]\n§ = [§E.A, §F.x]",
         "§[0] is §E.A and §E.A.log == [1, 5] and §E.B.log == [2] and §E.B.seen and §E.all == [7] and"
         " §[1] is §F.x and §F.x.log == [1]", names=("§", "§F")),
    kind("caches of methods", "§ran = []\nclass §C:\n    @functools.lru_cache(None)\n"
         "    def f(self, x):\n        §ran.append(x)\n        return x\n    @staticmethod\n"
         "    @functools.cache\n    def g(x):\n        §ran.append(x)\n        return x\n"
         "§ = §C()\n§.f(1); §C.g(2)", "(§.f(1), §C.g(2)) == (1, 2) and §ran == [1, 2]"),
    kind("hints: NewType, ParamSpec, TypedDict", "import typing\n§U = typing.NewType('§U', int)\n"
         "§P = typing.ParamSpec('§P')\n§T = typing.TypeVarTuple('§T')\n"
         "§D = typing.TypedDict('§D', {'x': int}, total=False)\n§ = [§U, §P, §T, §D]",
         "§[0] is §U and §[1] is §P and §[2] is §T and §[3] is §D and §U(3) == 3 and"
         " §U.__supertype__ is int and §P.__name__ == '§P' and §D.__annotations__ == {'x': int} and"
         " not §D.__total__", names=("§", "§U", "§P", "§T", "§D")),
    kind("one of a kind, by its own name", "class §S:\n    def __reduce__(self): return '§missing'\n"
         "§missing = §S()\ndef §f(x=§missing): return x is §missing\n§ = [§missing]",
         "§f() and §[0] is §missing and type(§missing) is §S", names=("§", "§missing")),
    kind("dataclasses", "import dataclasses\n@dataclasses.dataclass(slots=True, frozen=True)\n"
         "class §D:\n    a: int\n    b: list = dataclasses.field(default_factory=list)\n§ = §D(1)",
         "§ == §D(1) and type(§) is §D and dataclasses.replace(§, a=2).a == 2"),
    kind("named tuples", "import collections, typing\n§P = collections.namedtuple('P', 'x y')\n"
         "class §T(typing.NamedTuple):\n    z: int = 3\n§ = [§P(1, 2), §T()]",
         "§[0].y == 2 and type(§[0]) is §P and §[1].z == 3 and type(§[1]) is §T"),
    kind("metaclasses", "class §M(type):\n    def __new__(m, n, b, d):\n        d['tag'] = n\n"
         "        return super().__new__(m, n, b, d)\nclass §C(metaclass=§M): pass\n§ = §C()",
         "type(type(§)) is §M and §.tag.endswith('C')"),
    kind("abstract and generic classes", "import abc\nT = typing.TypeVar('T')\nclass §A(abc.ABC):\n"
         "    @abc.abstractmethod\n    def m(self): ...\nclass §G(§A, typing.Generic[T]):\n"
         "    def m(self): return 1\n§A.register(int)\n§ = [§G[int](), §G[str]]",
         "§[0].m() == 1 and isinstance(§[0], §A) and §[1].__args__ == (str,) and issubclass(int, §A)"
         " and bool(§A.__abstractmethods__)", names=("§",)),
    kind("slots", "class §S:\n    __slots__ = ('a', 'b')\n§ = §S()\n§.a = [1]",
         "§.a == [1] and not hasattr(§, 'b')"),
    kind("properties", "class §C:\n    @property\n    def p(self): return self._p\n"
         "    @p.setter\n    def p(self, v): self._p = v * 2\n§ = §C()\n§.p = 4",
         "(§.p == 8, setattr(§, 'p', 1), §.p == 2)[2]"),
    kind("descriptors with a state", "class §D:\n    def __init__(self): self.seen = []\n"
         "    def __get__(self, o, c): return self\n    def __set__(self, o, v): self.seen.append(v)\n"
         "class §C:\n    d = §D()\n§ = §C()\n§.d = 5", "§.d.seen == [5] and §C.d is §.d"),
    kind("cached properties, single dispatch, partial methods", "class §C:\n"
         "    @functools.cached_property\n    def slow(self): return [1]\n"
         "    @functools.singledispatchmethod\n    def f(self, x): return 'any'\n"
         "    @f.register\n    def _(self, x: int): return 'int'\n"
         "    g = functools.partialmethod(f, 3)\n@functools.singledispatch\ndef §d(x): return 'any'\n"
         "@§d.register\ndef _(x: str): return 'text'\n§ = §C()\n§.slow.append(2)",
         "§.slow == [1, 2] and §.f('x') == 'any' and §.f(1) == 'int' and §.g() == 'int'"
         " and §d('x') == 'text' and §d(1) == 'any'", names=("§",)),
    kind("decorators with a state", "def §count(f):\n    @functools.wraps(f)\n"
         "    def inner(*a):\n        inner.calls += 1\n        return f(*a)\n"
         "    inner.calls = 0\n    return inner\n@§count\ndef §(x): return x + 1\n§(1); §(1)",
         "§(1) == 2 and §.calls == 3 and §.__wrapped__(1) == 2"),
    kind("methods outside of their class", "§all = {}\ndef §reg(f):\n    §all[f.__name__] = f\n    return f\n"
         "class §C:\n    @§reg\n    def m(self): return [__class__]\n    @staticmethod\n    def s(): return 5\n"
         "    class I:\n        def n(self): return 6\n§o = §C()\n§f = §C.m\n"
         "§ = [§o.m, §C.s, §C.I.n, __import__('weakref').WeakMethod(§o.m)]",
         "§[0] == §o.m and §f is §C.m is §all['m'] and §[1] is §C.s and §[2] is §C.I.n and"
         " §[3]()() == [§C]", names=("§", "§f", "§all")),
    kind("properties that also have a name", "class §A:\n    @property\n    def p(self): return 1\n"
         "    @staticmethod\n    def s(): return 2\n    @functools.cached_property\n    def c(self): return 3\n"
         "    class I:\n        @property\n        def q(self): return 4\n§A.p.fget.seen = [5]\n"
         "§own = property(lambda self: self.n)\ndef §get(self): return 6\n"
         "class §B:\n    n, own, of = 7, §own, property(§get)\n§p, §of, §f = §A.p, §B.of, §A.p.fget\n"
         "§ = [§A.p, vars(§A)['s'], vars(§A)['c'], §A.I.q]",
         "§p is §A.p is §[0] and §f is §p.fget and §f.seen == [5] and §[1] is vars(§A)['s'] and"
         " §[2] is vars(§A)['c'] and §[3] is §A.I.q and §B.own is §own and §B.of is §of and §of.fget is §get and"
         " [§A().p, §A.s(), §A().c, §A.I().q, §B().own, §B().of] == [1, 2, 3, 4, 7, 6]",
         names=("§", "§p", "§of", "§own", "§f")),
    kind("decorators of methods with a state", "def §count(f):\n    n, log = 0, []\n    @functools.wraps(f)\n"
         "    def inner(*a):\n        nonlocal n\n        n += 1\n        log.append(n)\n"
         "        return log\n    return inner\nclass §C:\n    @§count\n    def m(self): pass\n"
         "    @staticmethod\n    @§count\n    def s(): pass\n    @property\n    def p(self): return 1\n"
         "§ = §C()\n§.m(); §.m(); §.s()\n§C.p.fget.calls = [3]",
         "§.m() == [1, 2, 3] and §.s() == [1, 2] and §C.p.fget.calls == [3]"),
    kind("classes that were changed", "class §A: x = 1\nclass §B: x = 2\nclass §C(§A):\n    'doc'\n"
         "    a: int = 1\n    @functools.singledispatchmethod\n    def f(self, x): return 'any'\n"
         "§C.__bases__ = (§B,)\n§C.__annotations__['b'] = str\n§C.__doc__, §C.__name__ = 'other', 'Q'\n"
         "§C.f.register(int, lambda self, x: 'int')\nvars(§C)['f'].register(str, lambda self, x: 'str')\n"
         "§ = §C()",
         "§.x == 2 and §C.__annotations__ == {'a': int, 'b': str} and §C.__doc__ == 'other' and"
         " §C.__name__ == 'Q' and §.f('') == 'str' and §.f(1.0) == 'any' and type(§) is §C"),
    kind("descriptors that are told their names", "§told = []\nclass §D:\n"
         "    def __set_name__(self, owner, name):\n        self.name = name\n        §told.append(name)\n"
         "class §C:\n    d = §D()\n§ = §C()", "vars(§C)['d'].name == 'd' and §told == ['d']",
         names=("§", "§told")),
    kind("classes inside classes", "class §O:\n    class I:\n        k = []\n§ = §O.I()\n"
         "§O.I.k.append(1)\n§O.I.later = 2",
         "type(§) is §O.I and §.k == [1] and §.later == 2"),
    kind("classes made in functions", "def §make(n):\n    class L:\n        def m(self): return n\n"
         "    return L\n§L = §make(4)\n§ = §L()", "§.m() == 4 and type(§) is §L",
         names=("§", "§L")),
    kind("classes made by type()", "§Y = type('Y', (), {'m': lambda self: rate})\n§ = §Y()",
         "§.m() == 2 and type(§) is §Y", names=("§", "§Y")),
    kind("old instances of a class that was defined again", "class §C: v = 1\n§ = §C()\n"
         "class §C: v = 2\n§n = §C()", "§.v == 1 and §n.v == 2 and type(§n) is §C"),
    kind("modules made at run time", "import types\n§ = types.ModuleType('made')\n"
         "exec('level = 1\\ndef up():\\n    global level\\n    level += 1', §.__dict__)\n"
         "§f = §.up\n§f()", "(§f(), §.level == 3 and §.up is §f)[1]", names=("§", "§f")),
    kind("namespaces of exec", "§ = {}\nexec('n = 1\\ndef f():\\n    return n', §)\n§f = §['f']",
         "(§.__setitem__('n', 9), §f() == 9 and §['f'] is §f)[1]", names=("§", "§f")),
    kind("module aliases", "import os.path as §, xml.dom.minidom as §x",
         "§.join('a', 'b') == 'a/b' and §x.__name__ == 'xml.dom.minidom'", "rebuilt", "imported again",
         ("§", "§x")),
    kind("modules with changes", "import string as §\n§.capwords = lambda *a: 'mine'\n§.extra = [1]",
         "§.capwords('x') == 'mine' and §.extra == [1]", "rebuilt",
         "imported again, and changed again; the reason names what changed"),
    kind("classes of libraries with changes", "import argparse, json\n"
         "argparse.ArgumentParser.§ = lambda self: rate\njson.encoder.§ = [1]\n§ = 'these'",
         "argparse.ArgumentParser().§() == 2 and json.encoder.§ == [1]"),
    kind("modules changed in functions, through vars(), by exec", "def §f():\n    import textwrap\n"
         "    from calendar import Calendar\n    textwrap.§ = Calendar.§ = 5\n§f()\nimport colorsys\n"
         "vars(colorsys)['§'] = [6]\nexec('import quopri; quopri.§ = 7')\n§ = 'these'",
         "[__import__('textwrap').§, __import__('calendar').Calendar.§, colorsys.§, __import__('quopri').§]"
         " == [5, 5, [6], 7]"),
    kind("accessors of pandas, decorators that add to classes", "import pandas\n"
         "@pandas.api.extensions.register_dataframe_accessor('§')\nclass §A:\n"
         "    def __init__(self, frame): self.frame = frame\n    def n(self): return len(self.frame)\n"
         "_ = pandas.api.extensions.register_series_accessor('§')(§A)\ndef §add(cls):\n"
         "    return lambda f: setattr(cls, f.__name__, f)\n@§add(pandas.Series)\n"
         "def §twice(self): return self * rate\n§k = 'these'",
         "pandas.DataFrame({'a': [1]}).§.n() == 1 and pandas.Series([1, 2]).§.n() == 2 and"
         " int(pandas.Series([4]).§twice()[0]) == 8", names=("§k",)),
    kind("classes registered with a library's abstract class", "import collections.abc\nclass §C: pass\n"
         "_ = collections.abc.Mapping.register(§C)\n§ = §C()", "isinstance(§, collections.abc.Mapping)"),
    kind("generators that have not begun", "def §g(a, *, b=2):\n    yield a\n    yield b\n"
         "§ = §g(1)\n§x = (i * 2 for i in [1, 2])", "list(§) == [1, 2] and list(§x) == [2, 4]",
         names=("§", "§x")),
    kind("generators that have ended", "def §g():\n    yield 1\n§ = §g()\nlist(§)", "list(§) == []"),
    kind("generators under way", "§out = []\ndef §g(rows):\n    try:\n        for n, row in enumerate(rows):\n"
         "            got = yield row * n\n            §out.append(got)\n    finally:\n        §out.append('end')\n"
         "§ = §g([1, 2, 3])\nnext(§)\n§.send('a')\n§x = (row * rate for row in [1, 2, 3])\nnext(§x)",
         "(§.send('b'), list(§), §out, list(§x)) == (6, [], ['a', 'b', None, 'end'], [4, 6])",
         what="from its source, at the `yield` where it waits", names=("§", "§x")),
    kind("generators that handle an error", "def §g():\n    try:\n        1 / 0\n"
         "    except ZeroDivisionError:\n        yield 1\n§ = §g()\nnext(§)",
         "'under way' in repr(§)", "placeholder", "the error is on the stack of a running frame"),
    kind("iterators", "§l = [1, 2, 3]\n§ = [iter(§l), iter('ab'), enumerate('xy'), zip([1], [2]),"
         " map(int, ['3']), reversed(§l), range(5).__iter__()]\nnext(§[0])\nnext(§[2])",
         "(§l.append(4), list(§[0]) == [2, 3, 4] and list(§[1]) == ['a', 'b'] and"
         " list(§[2]) == [(1, 'y')] and list(§[3]) == [(1, 2)] and list(§[4]) == [3])[1]",
         names=("§", "§l")),
    kind("iterators over dicts and sets", "§ = [iter({'a': 1, 'b': 2}), iter({7}), iter({'c': 3}.items())]\n"
         "next(§[0])", "[list(each) for each in §] == [['b'], [7], [('c', 3)]]", "exact",
         "with what was left; no longer tied to the dict"),
    kind("itertools", "import itertools\n§ = [itertools.count(5), itertools.cycle('ab'),"
         " itertools.chain([1], [2]), itertools.islice([1, 2, 3], 1, None)]\nnext(§[1])",
         "next(§[0]) == 5 and next(§[1]) == 'b' and list(§[2]) == [1, 2] and list(§[3]) == [2, 3]"),
    kind("itertools.pairwise", "§ = [itertools.pairwise([1, 2, 3]), itertools.pairwise('ab')]\nnext(§[0])",
         "[list(each) for each in §] == [[(2, 3)], [('a', 'b')]]"),
    kind("keys, values and items of dicts, proxies", "§d, §big = {'a': 1}, dict.fromkeys(range(5000))\n"
         "class §C: a = 1\n§ = [§d.keys(), §d.items(), types.MappingProxyType(§d), vars(§C), §big.keys(),"
         " globals().values()]",
         "(§d.update(b=2), setattr(§C, 'b', 3), §big.update(x=0), 'b' in §[0] and ('b', 2) in §[1] and"
         " §[2]['b'] == 2 and §[3]['b'] == 3 and 'x' in §[4] and any(v is § for v in §[5]))[3]",
         names=("§", "§d", "§big")),
    kind("dicts and lists with ways of their own", "class §D(dict):\n    n = 0\n"
         "    def __setitem__(self, key, value):\n        self.n += 1\n"
         "        super().__setitem__(key, value * 2)\nclass §L(list):\n    __slots__ = ('log',)\n"
         "    def append(self, x): super().append(x * 2)\n§, §l = §D(), §L()\n§['a'] = 1\n§l.append(1)\n"
         "§l.log = [1]", "§ == {'a': 2} and §.n == 1 and type(§) is §D and §l == [2] and §l.log == [1]",
         names=("§", "§l")),
    kind("coroutines that have not begun", "async def §f(x): return x * rate\n§ = §f(4)",
         "await § == 8"),
    kind("asynchronous generators that have not begun", "async def §f(n):\n    yield n\n    yield n * rate\n"
         "§ = §f(4)", "[x async for x in §] == [4, 8]"),
    kind("coroutines under way", "import types as _t\n@_t.coroutine\ndef §p(): yield\n"
         "async def §f(): await §p()\n§ = §f()\n§.send(None)", "'under way' in repr(§)",
         "placeholder", "CPython cannot copy a running frame"),
    kind("files that are read", "§p = folder + '/read'\nopen(§p, 'w').write('one\\ntwo\\nthree')\n"
         "§ = open(§p)\n§.readline()\n§b = open(§p, 'rb')\n_ = §b.seek(8)",
         "§.readline() == 'two\\n' and §b.read() == b'three' and §.name == §p", "rebuilt",
         "opened again at its position, while the file is the same; text with `newline=None`"),
    kind("files that are written", "§p = folder + '/written'\n§ = open(§p, 'w')\n_ = §.write('abc')",
         "(§.write('def'), §.flush(), open(§p).read() == 'abcdef')[2]", "rebuilt",
         "opened again at its position, never emptied, while the file is the same"),
    kind("text files in the middle of a loop", "§p = folder + '/loop'\n"
         "_ = open(§p, 'w').write('\\n'.join('é%d' % i for i in range(9000)))\n§ = open(§p)\n"
         "for §line in §:\n    if §line == 'é7000\\n': break",
         "next(§) == 'é7001\\n' and len(§.readlines()) == 1998", "rebuilt",
         "opened again at its position, if the encoding is UTF-8, ASCII or Latin"),
    kind("files that are gone", "import os\n§p = folder + '/gone'\n§ = open(§p, 'w+')\n"
         "_ = §.write('abc')\nos.remove(§p)",
         "(§.write('d'), §.seek(0), §.read() == 'abcd' and not os.path.exists(§p))[2]", "rebuilt",
         "with its content (up to 64 MiB) and its position, in a file without a name"),
    kind("temporary files", "import tempfile\n§ = tempfile.TemporaryFile()\n"
         "_ = §.write(b'abcdef'), §.seek(2)", "§.read() == b'cdef'", "rebuilt",
         "with their content (up to 64 MiB) and position"),
    kind("pipes", "§r, §w = os.pipe()\n§ = os.fdopen(§r)\n§w = os.fdopen(§w, 'wb')\n"
         "_ = §w.write(b'one\\ntwo\\nthr'), §w.flush(), §.readline(), §w.write(b'ee')",
         "(§w.write(b'!'), §w.close(), §.read() == 'two\\nthree!' and §.read() == '')[2]", "rebuilt",
         "both ends anew, with what was not read (up to 1 MiB) or not written yet", ("§", "§w")),
    kind("sockets that are not in use", "import socket\n§ = [socket.socket(), socket.socket(socket.AF_INET6,"
         " socket.SOCK_DGRAM)]\n§[0].setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)\n"
         "§[0].settimeout(3)\n§[1].close()",
         "§[0].gettimeout() == 3 and §[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1"
         " and §[0].fileno() > 2 and §[1].fileno() == -1"),
    kind("pairs of sockets", "§, §b = socket.socketpair()\n_ = §.send(b'ab'), §.send(b'c'), §b.send(b'd')\n"
         "§.settimeout(5)\n§b.shutdown(socket.SHUT_WR)",
         "§b.recv(9) == b'abc' and §.recv(9) == b'd' and §.recv(9) == b'' and §.gettimeout() == 5 and"
         " (§.send(b'e'), §b.recv(9) == b'e')[1]", "rebuilt",
         "both ends anew, with what was not read (up to 1 MiB), if the kernel tells that they are a pair",
         ("§", "§b")),
    kind("sockets that are bound or connected", "§b = socket.create_server(('127.0.0.1', 0))\n"
         "§ = socket.create_connection(§b.getsockname())",
         "'connected to' in repr(§) and 'bound to' in repr(§b)",
         "placeholder", "somebody else is at the other end, or has the address by then", ("§", "§b")),
    kind("the session's own streams", "import sys\n§ = [sys.stdout, sys.stderr]",
         "§[0] is sys.stdout and §[1] is sys.stderr"),
    kind("locks that nobody holds", "import threading\n§ = [threading.Lock(), threading.RLock(),"
         " threading.Condition(), threading.Semaphore(2)]",
         "§[0].acquire(False) and §[1].acquire(False) and §[2].acquire(False) and §[3]._value == 2"),
    kind("locks that the session holds", "§ = [threading.Lock(), threading.RLock(), threading.Condition(),"
         " threading.BoundedSemaphore(2)]\n_ = [l.acquire() for l in [*§, §[1]]]",
         "§[0].locked() and (§[0].release(), not §[0].locked())[1] and (§[1].release(), §[1]._is_owned(),"
         " §[1].release(), §[1]._is_owned())[1::2] == (True, False) and (§[2].notify_all(), §[2].release(),"
         " §[2]._is_owned())[2] is False and (§[3].acquire(False), §[3].acquire(False)) == (True, False)"),
    kind("events, barriers and queues", "import queue\n§ = [threading.Event(), queue.Queue(),"
         " threading.Barrier(2)]\n§[0].set()\n§[1].put(5)",
         "§[0].is_set() and §[2].parties == 2 and isinstance(§[1], queue.Queue) and §[1].get() == 5"),
    kind("data of a thread", "§ = threading.local()\n§.x = [1]", "§.x == [1]"),
    kind("threads that have not begun", "§out = []\n§ = threading.Thread(target=§out.append, args=(1,))",
         "(§.start(), §.join(), §out == [1])[2]", names=("§", "§out")),
    kind("pools of threads that nothing ran on", "import concurrent.futures\n"
         "§ = concurrent.futures.ThreadPoolExecutor(2)", "§.submit(int, '3').result(60) == 3"),
    kind("child processes, and pipes to them", "import subprocess\n§ = subprocess.Popen(['cat'],"
         " stdin=subprocess.PIPE)\n§p = §.stdin", "'child process' in repr(§) and 'other end' in repr(§p)",
         "placeholder", "it belongs to the process that started it, as does its end of a pipe", ("§", "§p")),
    kind("loggers", "import logging\n§ = logging.getLogger('a.§')\n§.setLevel(logging.DEBUG)\n"
         "§.propagate = False\n§.addHandler(logging.StreamHandler(sys.stdout))\n"
         "logging.getLogger('b.§').addHandler(logging.StreamHandler())",
         "§ is logging.getLogger('a.§') and §.level == logging.DEBUG and not §.propagate"
         " and §.handlers[0].stream is sys.stdout and len(logging.getLogger('b.§').handlers) == 1"),
    kind("regular expressions", "import re\n§ = re.compile('a(.)', re.I)\n§m = §.search('xxAb')",
         "§m.group(1) == 'b' and §m.re == § and §m.span() == (2, 4)", names=("§", "§m")),
    kind("context variables", "import contextvars\n§ = contextvars.ContextVar('§', default=3)\n"
         "§s = contextvars.ContextVar('§s')\n_ = §s.set([1])\n§c = contextvars.copy_context()",
         "§.get() == 3 and §s.get() == [1] and §c[§s] is §s.get()", names=("§", "§s", "§c")),
    kind("tokens of context variables", "§v = contextvars.ContextVar('§v')\n§ = §v.set(1)",
         "§v.get() == 1 and 'token' in repr(§)", "placeholder",
         "it resets only the context that it was made in"),
    kind("weak references", "class §N: pass\n§o = §N()\nimport weakref\n§ = [weakref.ref(§o),"
         " weakref.proxy(§o), weakref.WeakValueDictionary(a=§o), weakref.WeakSet([§o]),"
         " weakref.WeakKeyDictionary({§o: 1}), weakref.ref(§N())]",
         "§[0]() is §o and (setattr(§o, 'x', 1), §[1].x == 1)[1] and §[2]['a'] is §o"
         " and §o in §[3] and §[4][§o] == 1 and §[5]() is None", names=("§", "§o")),
    kind("memoryviews", "§b = bytearray(b'abcdef')\n§ = memoryview(§b)[2:4]",
         "(§.__setitem__(0, 90), §b == b'abZdef' and §.obj is §b)[1]", names=("§", "§b")),
    kind("StringIO and BytesIO", "import io\n§ = [io.StringIO('text'), io.BytesIO(b'abc')]\n"
         "_ = §[0].read(2), §[1].seek(1)", "§[0].read() == 'xt' and §[1].read() == b'bc'"),
    kind("exceptions", "class §E(Exception):\n    def __init__(self, a, b):\n        super().__init__(a)\n"
         "        self.b = b\n§ = §E(1, 2)\n§.add_note('n')\n§.__cause__ = KeyError('k')",
         "§.args == (1,) and §.b == 2 and §.__notes__ == ['n'] and §.__cause__.args == ('k',)"),
    kind("exceptions with tracebacks", "def §f():\n    raise ValueError('no')\ntry: §f()\n"
         "except ValueError as e: § = e",
         "'raise ValueError' in ''.join(__import__('traceback').format_exception(§))", "rebuilt",
         "with the places of the traceback, without the variables of its frames"),
    kind("errors that name what is missing", "try: §nowhere\nexcept NameError as e: § = e\n"
         "§a = AttributeError('no', name='x', obj=[1])", "§.name == '§nowhere' and §a.name == 'x'", "rebuilt",
         "without the object that lacked the attribute", ("§",)),
    kind("frames", "§ = sys._getframe()", "'frame' in repr(§)", "placeholder",
         "CPython cannot make a frame"),
    kind("connections to SQLite", "import sqlite3\n§ = sqlite3.connect(':memory:')\n"
         "_ = §.execute('create table t(x)'), §.execute('insert into t values (5)')\n"
         "§.row_factory = sqlite3.Row\n§f = sqlite3.connect(folder + '/base')\n"
         "_ = §f.execute('create table u(x)')",
         "§.execute('select x from t').fetchone()['x'] == 5 and §.in_transaction is True and"
         " §f.execute('insert into u values (1)').rowcount == 1", "rebuilt",
         "in memory with its content, to a file connected again; functions that it was given are named",
         ("§", "§f")),
    kind("connections to SQLite in a transaction", "§ = sqlite3.connect(folder + '/waiting')\n"
         "_ = §.execute('create table t(x)'), §.execute('insert into t values (5)')",
         "'transaction' in repr(§)", "placeholder", "its file waits for that very process"),
    kind("random numbers of the system", "import random\n§ = random.SystemRandom()",
         "0 <= §.random() < 1 and type(§) is random.SystemRandom"),
    kind("structures of C", "import ctypes\nclass §S(ctypes.Structure):\n"
         "    _fields_ = [('a', ctypes.c_int), ('b', ctypes.c_double * 2)]\n§ = §S(1, (2.0, 3.0))",
         "§.a == 1 and §.b[1] == 3.0"),
    kind("structures of C in the memory of another object", "§b = (ctypes.c_int * 4)()\n"
         "§ = ctypes.c_int.from_buffer(§b, 4)", "'belongs to another' in repr(§) and len(§b) == 4",
         "placeholder", "it would no longer be the same memory"),
    kind("random generators", "import random\n§ = [random.Random(3), np.random.default_rng(4)]\n"
         "random.seed(5)\nnp.random.seed(6)\n_ = random.random()",
         "§[0].random() == random.Random(3).random() and"
         " int(§[1].integers(1000)) == int(np.random.default_rng(4).integers(1000))"),
    kind("the global random states", "random.seed(7); np.random.seed(8)\n§ = 'states'",
         "(random.random(), np.random.randint(10**6)) == (random.Random(7).random(),"
         " np.random.RandomState(8).randint(10**6))"),
    kind("large dicts and lists", "§s = [0]\n§ = {f'x{i}': [i, §s] for i in range(9000)}\n"
         "§l = [§] + list(range(9000))\n§['me'] = §l",
         "len(§) == 9001 and §['x8999'][1] is §s and §l[0] is § and §['me'] is §l"
         " and list(§)[:2] == ['x0', 'x1'] and §l[-1] == 8999", names=("§", "§l", "§s")),
    kind("long linked lists", "class §N:\n    __slots__ = ('prev', 'next', 'n')\n"
         "§ = §t = §N()\n§.n = 0\nfor i in range(1, 20_000):\n"
         "    §t.next = §N()\n    §t.next.prev, §t.next.n, §t = §t, i, §t.next\n§t.next = None\n"
         "def §count(m, n=0):\n    while m is not None:\n        assert m.n == n\n"
         "        m, n = m.next, n + 1\n    return n",
         "§count(§) == 20_000 and §t.n == 19_999 and §t.prev.next is §t and §.next.prev is §",
         names=("§", "§t")),
    kind("the namespace itself", "§ = [globals()]\nimport __main__ as §m",
         "§[0] is globals() and §m.§ is §"),
    kind("the environment", "§ = os.environ", "§ is os.environ"),
    kind("the directory, variables of the environment, sys.path", "os.environ['§'] = 'set'\n"
         "os.environ.pop('HOME', None)\nos.chdir(folder)\nsys.path.append('/§')\n§ = 'these'",
         "os.environ['§'] == 'set' and 'HOME' not in os.environ and os.getcwd() == folder and"
         " '/§' in sys.path"),
    kind("filters of warnings, limits, handlers of signals", "import signal, warnings\n"
         "warnings.filterwarnings('error', message='§')\nsys.set_int_max_str_digits(5000)\n"
         "def §h(*a): pass\n_ = signal.signal(signal.SIGUSR1, §h)\n_ = os.umask(0o027)\n§ = 'these'",
         "any(f[0] == 'error' and f[1] and f[1].pattern == '§' for f in warnings.filters) and"
         " sys.get_int_max_str_digits() == 5000 and signal.getsignal(signal.SIGUSR1) is §h and"
         " (lambda now: (os.umask(now), now)[1])(os.umask(0)) == 0o027"),
    kind("the collection of garbage, the timeout of sockets", "import gc\ngc.disable()\n"
         "gc.set_threshold(123, 4, 5)\nsocket.setdefaulttimeout(7)\n§ = 'these'",
         "(gc.isenabled(), gc.get_threshold(), socket.getdefaulttimeout()) == (False, (123, 4, 5), 7.0)"),
    kind("options of libraries", "import decimal, pandas\n_ = np.seterr(divide='raise')\n"
         "np.set_printoptions(precision=3)\ndecimal.getcontext().prec = 5\n"
         "pandas.set_option('display.max_rows', 7)\nlogging.getLogger('§.quiet').setLevel(logging.ERROR)\n"
         "§ = 'these'",
         "np.geterr()['divide'] == 'raise' and np.get_printoptions()['precision'] == 3 and"
         " decimal.getcontext().prec == 5 and pandas.get_option('display.max_rows') == 7 and"
         " logging.getLogger('§.quiet').level == logging.ERROR"),
    kind("builtins with changes", "import builtins\nbuiltins.§ = lambda: rate\n§n = 'it'",
         "§() == 2", names=("§n",)),
    kind("types and generic aliases", "§ = [int, type(None), list[int], dict[str, 'x'],"
         " typing.Optional[int], collections.OrderedDict]",
         "§[0] is int and §[1] is type(None) and §[2] == list[int] and §[5] is"
         " collections.OrderedDict"),
    kind("collections", "§ = [collections.OrderedDict(b=1, a=2), collections.Counter('aab'),"
         " collections.deque([1], 5), collections.ChainMap({}, {'x': 1}),"
         " collections.defaultdict(list, a=[1]), types.MappingProxyType({'x': 1}),"
         " types.SimpleNamespace(a=1)]",
         "list(§[0]) == ['b', 'a'] and §[2].maxlen == 5 and §[3]['x'] == 1 and §[4]['new'] == []"
         " and §[5]['x'] == 1 and §[6].a == 1"),
    kind("objects that pickle but do not load", "class §D:\n    def __reduce__(self):\n"
         "        return int, ('x',)\n§ = §D()", "'read back' in repr(§)", "placeholder",
         "they are read back when the checkpoint is made, and not called exact"),
    kind("objects that refuse", "class §R:\n    def __reduce__(self): raise TypeError('I refuse')\n"
         "§ = [§R(), 5]", "§[1] == 5 and 'I refuse' in repr(§[0])", "placeholder",
         "the object's own reason; what is around it comes back"),
)  # fmt: skip

# These change what can be said about locks, so they have a session of their own.
WITH_THREADS = (
    kind("threads", "import threading, time\n§e = threading.Event()\n"
         "§ = threading.Thread(target=§e.wait, daemon=True)\n§.start()", "'thread' in repr(§)",
         "placeholder", "a thread's stack cannot be copied"),
    kind("locks held while threads run", "§ = threading.Lock()\n_ = §.acquire()",
         "'somebody holds it' in repr(§)", "placeholder", "the holder may be another thread"),
    kind("data beside threads", "§ = {'a': [1]}\n§b = §['a']", "§['a'] is §b", names=("§", "§b")),
)  # fmt: skip


# What sessions were asked to deal with, and the kinds in which that is shown.
ASKED: dict[str, tuple[str, ...]] = {
    "shared references": ("shared references",),
    "cyclic references": ("cycles",),
    "views": ("views of arrays", "large arrays and views of them"),
    "closures sharing a cell": ("closures that share a cell",),
    "lambdas that use globals": ("lambdas that use globals",),
    "recursive lambdas": ("recursive lambdas",),
    "partials": ("partials",),
    "caches": ("functions with lru_cache",),
    "bound methods": ("bound methods",),
    "enums": ("enums",),
    "dataclasses": ("dataclasses",),
    "named tuples": ("named tuples",),
    "metaclasses": ("metaclasses",),
    "slots": ("slots",),
    "properties": ("properties",),
    "descriptors": ("descriptors with a state",),
    "decorators with state": ("decorators with a state",),
    "nested classes": ("classes inside classes", "classes made in functions"),
    "dynamic classes": ("classes made by type()",),
    "dynamic modules": ("modules made at run time",),
    "generators": ("generators that have not begun", "generators that have ended",
                   "generators under way", "generators that handle an error"),
    "iterators": ("iterators", "iterators over dicts and sets", "itertools"),
    "coroutines": ("coroutines that have not begun", "coroutines under way"),
    "files": ("files that are read", "files that are written", "files that are gone",
              "text files in the middle of a loop", "temporary files"),
    "pipes": ("pipes",),
    "locks": ("locks that nobody holds", "locks that the session holds",
              "locks held while threads run"),
    "events": ("events, barriers and queues",),
    "sockets": ("sockets that are not in use", "pairs of sockets", "sockets that are bound or connected"),
    "threads": ("threads that have not begun", "threads"),
    "loggers": ("loggers",),
    "regexes": ("regular expressions",),
    "contextvars": ("context variables",),
    "weakrefs": ("weak references",),
    "memoryviews": ("memoryviews",),
    "StringIO": ("StringIO and BytesIO",),
    "exceptions with tracebacks": ("exceptions", "exceptions with tracebacks"),
    "module aliases": ("module aliases",),
    "monkey-patched modules": ("modules with changes",),
    "random states": ("random generators", "the global random states"),
}  # fmt: skip


def rows() -> list[str]:
    """The table of the guide."""
    return [f"| {k.name} | `{k.outcome}` | {k.what} |" for k in (*KINDS, *WITH_THREADS)]
