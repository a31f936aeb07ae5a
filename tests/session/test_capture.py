"""What comes back: sharing, definitions, closures, secrets, and what cannot come back."""

from __future__ import annotations

import pytest

from holdfast.model.report import Report
from holdfast.session import Session


async def run(session: Session, code: str) -> object:
    result = await session.execute(code)
    assert result.error is None, result.error.traceback
    return result.value


async def round_trip(session: Session, *cells: str) -> Report:
    """Run the cells, checkpoint, forget everything, restore."""
    for cell in cells:
        await run(session, cell)
    cp = await session.checkpoint()
    await run(session, "globals().clear()")
    report = await session.restore(cp)
    assert {item.name for item in report.items} == {item.name for item in cp.report.items}
    return report


# -- data ----------------------------------------------------------------------------------


async def test_shared_objects_stay_shared(session: Session) -> None:
    report = await round_trip(
        session,
        "shared = [1]\na = {'s': shared}\nb = (shared, a)\nalone = [1]\n"
        "cycle = []\ncycle.append(cycle)\n"
        "deep = {'x': {'y': []}}\nalias = deep['x']['y']",
    )
    assert (
        await run(
            session,
            "[a['s'] is shared, b[0] is shared, b[1] is a, alone is not shared, cycle[0] is cycle,"
            " deep['x']['y'] is alias]",
        )
        == [True] * 6
    )
    assert all(item.outcome == "exact" for item in report.items)


async def test_frames_have_nothing_in_common_but_what_they_do(session: Session, store) -> None:
    from holdfast.session.layout import decode_records

    await run(
        session,
        "import pandas as pd, pyarrow as pa\n"
        "a = pd.DataFrame({'n': [1, 2], 't': ['x', 'y']})\nb = pd.DataFrame({'t': ['z']})\n"
        "c = pd.Series([1.5])\nt, u = pa.table({'n': [1]}), pa.table({'n': [2]})\n"
        "notes = ['seen']\na.attrs['notes'] = notes\nc.attrs['notes'] = notes",
    )
    checkpoint = await session.checkpoint()
    parts = [part.name for part in store.show(checkpoint.id).parts]
    data = [store.read(checkpoint.id, name) for name in parts if name.startswith("namespace/")]
    members = [record.members for part in data for record in decode_records(part)]
    # The list, and nothing of the libraries' own.
    assert [len(names) for names in members if names[0].startswith("object:")] == [1]
    await round_trip(session)
    own = "a._metadata is b._metadata is pd.DataFrame._metadata"
    shared = "a.attrs['notes'] is notes is c.attrs['notes']"
    same = "a.t.tolist() + b.t.tolist() == ['x', 'y', 'z'] and u.to_pydict() == {'n': [2]}"
    assert await run(session, f"[{own}, {shared}, {same}]") == [True, True, True]


@pytest.mark.parametrize("column", ["'text'", "pd.Series(range(200_000), dtype='int64[pyarrow]')"])
async def test_a_frame_that_nobody_touched_is_not_changed(session: Session, column: str) -> None:
    """Pandas copies what Arrow keeps for each pickle, to wherever there is room just then."""
    make = f"pd.DataFrame({{'n': [1.0] * 200_000, 't': {column}}})"
    await run(session, f"import pandas as pd\ndf = {make}\nothers = []")
    await session.checkpoint()
    for _ in range(2):
        await run(session, f"others.append({make}.t.copy(deep=True))")
        await session.checkpoint()
        assert [each.name for each in (await session.diff()).variables] == ["others"]


async def test_a_few_rows_are_kept_without_the_column_that_they_are_of(session: Session) -> None:
    await run(session, "import pandas as pd\nlong = pd.Series(['text'] * 200_000)")
    await run(session, "few = long.head(10)\ndel long")
    assert (await session.checkpoint()).size_bytes < 10_000


async def test_names_come_back_in_the_order_in_which_they_came(session: Session) -> None:
    names = "[name for name in globals() if name[:2] != '__']"
    cell = "b = [1]\nz = 1\nimport math\na = b\ndef f(): pass\ny = 'text'\nclass C: pass\nc = C()"
    await run(session, cell)
    before = await run(session, names)
    await round_trip(session)
    assert await run(session, names) == before == ["b", "z", "math", "a", "f", "y", "C", "c"]


async def test_a_record_for_each_variable_and_for_what_they_share(session: Session, store) -> None:
    await run(session, "s = [1]\na = [s]\nb = [2]\nc = 'text'\nd = ['text', 1]")
    cp = await session.checkpoint()
    from holdfast.session.layout import decode_records

    records = [r.members for r in decode_records(store.read(cp.id, "namespace/small"))]
    # one record for each, and one for the object that two of them need
    assert {(f"name:{name}",) for name in "sabcd"} <= set(records)
    (shared,) = [members for members in records if members[0].startswith("object:")]
    assert len(shared) == 1
    # what does not change keeps its bytes, and a shared object its label
    before = store.read(cp.id, "namespace/small")
    await run(session, "b.append(3)")
    after = store.read((await session.checkpoint()).id, "namespace/small")
    old, new = ({r.members: r for r in decode_records(part)} for part in (before, after))
    assert [members for members in old if old[members] != new[members]] == [("name:b",)]


async def test_an_unsavable_neighbour_costs_nothing_else(session: Session) -> None:
    report = await round_trip(
        session,
        "def numbers():\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        yield 1\n"
        "generator, other = numbers(), numbers()\nnext(generator), next(other)\n"
        "rows = [1, 2]\nmixed = [rows, other, 'text']",
    )
    assert report["generator"].outcome == "placeholder"
    assert "generator" in report["generator"].reason
    assert report["mixed"].outcome == "placeholder"
    assert report["rows"].outcome == "exact"
    assert await run(session, "[rows, mixed[0] is rows, mixed[2]]") == [[1, 2], True, "text"]
    assert "placeholder for generator" in str(await run(session, "generator"))
    error = (await session.execute("next(iter(generator))")).error
    assert error is not None
    assert "could not be brought back" in error.message
    # and again: a placeholder stays one, and says so
    assert (await session.checkpoint()).report["generator"].outcome == "placeholder"


async def test_lower_tiers(session: Session) -> None:
    cell = (
        "class Stubborn(dict):\n    def __reduce_ex__(self, protocol): raise TypeError('never')\n"
        "settings = Stubborn(a=1, b=[2, (3,)])"
    )
    for text in (cell,):
        await run(session, text)
    cp = await session.checkpoint()
    assert cp.serialization_method == "msgpack"
    assert (cp.report["settings"].tier, cp.report["settings"].reason) == ("msgpack", "never")
    report = await session.restore(cp)
    assert report["settings"].outcome == "rebuilt"
    assert await run(session, "settings") == {"a": 1, "b": [2, (3,)]}


async def test_what_is_deeper_than_plain_data_may_be_is_kept_as_json(session: Session) -> None:
    """JSON has no limit on depth; what it would change is not kept by it."""
    await run(
        session,
        "class Stubborn(list):\n    def __reduce_ex__(self, protocol): raise TypeError('never')\n"
        "deep = ['end']\nfor _ in range(300): deep = [deep]\n"
        "tree = Stubborn([deep, 2**70, 1.5, None, {'k': [True, 1, '\u20ac']}])\n"
        "other = Stubborn([deep, (1, 2)])\ndel deep",
    )
    cp = await session.checkpoint()
    assert cp.serialization_method == "placeholder"
    assert (cp.report["tree"].tier, cp.report["tree"].reason) == ("json", "never")
    assert cp.report["other"].tier == "placeholder"
    report = await session.restore(cp)
    assert report["tree"].outcome == "rebuilt"
    assert await run(session, "type(tree) is list and tree[1:]") == [
        2**70, 1.5, None, {"k": [True, 1, "\u20ac"]},
    ]  # fmt: skip
    assert await run(session, "tree[4]['k'][0] is True") is True
    depth = "depth, inner = 0, tree[0]\nwhile inner != ['end']: depth, inner = depth + 1, inner[0]"
    assert await run(session, depth + "\ndepth") == 300
    await run(session, "del other")
    assert (await session.checkpoint()).serialization_method == "cloudpickle"  # lists by now


async def test_deep_objects(session: Session) -> None:
    report = await round_trip(
        session,
        "class Node: pass\nhead = None\nfor _ in range(2000):\n"
        "    node = Node()\n    node.next = head\n    head = node\ndel node\n"
        "nested = []\nfor _ in range(900): nested = [nested]",
    )
    assert report["head"].outcome == "exact"
    assert await run(session, "n = 0\nwhile head: head = head.next; n += 1\nn") == 2000
    assert report["nested"].outcome == "exact"


async def test_libraries(session: Session) -> None:
    await round_trip(
        session,
        "import numpy as np, pandas as pd, collections, datetime, decimal, re, enum, pathlib\n"
        "array = np.arange(12.0).reshape(3, 4)\n"
        "frame = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\n"
        "counts = collections.Counter('hello')\nwhen = datetime.datetime(2026, 1, 2)\n"
        "queue = collections.deque([1, 2], maxlen=5)\npattern = re.compile('a+')\n"
        "Point = collections.namedtuple('Point', 'x y')\npoint = Point(1, 2)\n"
        "path = pathlib.Path('/tmp/x')\nnumber = decimal.Decimal('1.10')",
    )
    assert await run(
        session,
        "[bool((array == np.arange(12.0).reshape(3, 4)).all()), list(frame['b']), counts['l'],"
        " when.year, queue.maxlen, pattern.match('aa').group(), point.y, isinstance(point, Point),"
        " str(path), str(number)]",
    ) == [True, ["x", "y"], 2, 2026, 5, "aa", 2, True, "/tmp/x", "1.10"]


# -- definitions ---------------------------------------------------------------------------


async def test_functions_live_in_the_sessions_namespace(session: Session) -> None:
    report = await round_trip(
        session,
        "rate = 2\ntable = {'x': 1}\n"
        "def scaled(x, k=3, *, where=table):\n    'doc'\n    return x * k * rate\n"
        "scaled.calls = 5\nsquare = lambda x: x * rate\nalso = scaled\n"
        "def typed(x: int) -> str: ...",
    )
    assert report["scaled"].outcome == report["square"].outcome == "rebuilt"
    assert await run(
        session, "rate = 10\n[scaled(1), square(2), scaled.calls, also is scaled]"
    ) == [
        30,
        20,
        5,
        True,
    ]
    assert await run(
        session,
        "[scaled.__doc__, scaled.__globals__ is globals(), scaled.__kwdefaults__['where'] is table,"
        " typed.__annotations__ == {'x': int, 'return': str}]",
    ) == ["doc", True, True, True]


async def test_definitions_of_every_kind(session: Session) -> None:
    await round_trip(
        session,
        "import os.path as osp, xml.dom.minidom\nfrom math import pi as p, sqrt\n"
        "import functools, contextlib, dataclasses, enum, abc\n"
        "async def later(): return 1\n"
        "try:\n    import nonexistent_library\nexcept ImportError:\n"
        "    def fallback(): return 'fallback'\n"
        "if p > 3:\n"
        "    class Chosen:\n        value = 'then'\n"
        "else:\n    class Chosen:\n        value = 'else'\n"
        "def twice(f):\n    @functools.wraps(f)\n"
        "    def inner(*args): return 2 * f(*args)\n    return inner\n"
        "@twice\ndef three(): return 3\n"
        "@dataclasses.dataclass\nclass Row:\n    a: int\n"
        "    b: list = dataclasses.field(default_factory=list)\n"
        "class Color(enum.Enum):\n    RED = 1\n"
        "class Base(abc.ABC):\n    @abc.abstractmethod\n    def m(self): ...\n"
        "class Derived(Base):\n    __slots__ = ('y',)\n    def m(self): return super().m, self.y\n"
        "@contextlib.contextmanager\ndef opened():\n    yield 'in'\n"
        "@functools.lru_cache(maxsize=7)\ndef fib(n): return n if n < 2 else fib(n-1) + fib(n-2)\n"
        "fib(5)\n",
        "row = Row(1, [2])\nred = Color.RED\nd = Derived()\nd.y = 4",
    )
    assert await run(
        session,
        "with opened() as o: pass\n"
        "[osp.join('a', 'b'), xml.dom.minidom.__name__, round(p, 2), sqrt(4), await later(),"
        " fallback(),"
        " Chosen.value, three(), three.__name__, row == Row(1, [2]), red is Color.RED, d.m()[1],"
        " isinstance(d, Base), o, fib(10), fib.cache_parameters()['maxsize']]",
    ) == [
        "a/b", "xml.dom.minidom", 3.14, 2.0, 1, "fallback", "then", 6, "three", True, True, 4,
        True, "in", 55, 7,
    ]  # fmt: skip


async def test_redefinitions_keep_old_instances_and_aliases(session: Session) -> None:
    await round_trip(
        session,
        "class C:\n    version = 1\nold = C()\ndef f(): return 'old'\ng = f",
        "class C:\n    version = 2\nnew = C()\ndef f(): return 'new'",
        "class Parent:\n    def m(self): return 'parent'",
        "class Child(Parent): pass\nchild = Child()\ndel Parent, Child",
    )
    assert await run(
        session,
        "[old.version, new.version, isinstance(new, C), isinstance(old, C), f(), g(), child.m(),"
        " 'Parent' in globals()]",
    ) == [1, 2, True, False, "new", "old", "parent", False]


async def test_only_what_ran_is_kept(session: Session) -> None:
    await round_trip(
        session,
        "for kind in ('a', 'b'):\n    def handler(kind=kind): return kind\n"
        "if False:\n    def never(): ...\n"
        "def raises():\n    1/0\n"
        "def deleted(): ...\ndel deleted",
    )
    assert await run(session, "[handler(), 'never' in globals(), 'deleted' in globals()]") == [
        "b",
        False,
        False,
    ]
    error = (await session.execute("raises()")).error
    assert error is not None
    assert "1/0" in error.traceback


async def test_classes_with_more_than_their_source(session: Session) -> None:
    report = await round_trip(
        session,
        "import threading\nBIG = [1, 2]\n"
        "class C:\n    registry = []\n    table = BIG\n    lock = threading.Lock()\n    gone = 1\n"
        "    def m(self, seen=[]):\n        seen.append(1)\n        return len(seen)\n"
        "C.registry.append('x')\nC.added = 5\nC.method = lambda self: self.added\ndel C.gone\n"
        "C().m()",
    )
    assert report["C"].outcome == "rebuilt"
    assert await run(
        session,
        "[C.registry, C.table is BIG, C.added, C().method(), hasattr(C, 'gone'), C().m(),"
        " C.lock.acquire(blocking=False)]",
    ) == [["x"], True, 5, 5, False, 2, True]


async def test_decorators_that_register(session: Session) -> None:
    await round_trip(
        session,
        "registry = {}\ndef register(name, by=registry):\n"
        "    def inner(thing):\n        by[name] = thing\n        return thing\n    return inner\n"
        "@register('f')\ndef f(): return 1\n"
        "@register('C')\nclass C: pass\n",
    )
    assert await run(
        session, "[registry['f'] is f, registry['C'] is C, len(registry)]"
    ) == [True, True, 2]  # fmt: skip


async def test_closures_share_their_cells(session: Session) -> None:
    await round_trip(
        session,
        "def counter():\n    n = 0\n"
        "    def up():\n        nonlocal n\n        n += 1\n        return n\n"
        "    def now(): return n\n    return up, now\n"
        "up, now = counter()\nup()\n"
        "def recursive():\n    def down(k): return 0 if k == 0 else down(k - 1)\n    return down\n"
        "down = recursive()\n"
        "class Memo:\n    def __init__(self, f): self.f, self.seen = f, {}\n"
        "    def __call__(self, x):\n        self.seen[x] = self.f(x)\n"
        "        return self.seen[x]\n"
        "@Memo\ndef tripled(x): return 3 * x\ntripled(2)",
    )
    assert await run(session, "up()\n[now(), down(5), dict(tripled.seen), tripled(3)]") == [
        2, 0, {2: 6}, 9,
    ]  # fmt: skip


async def test_source_is_there_for_tracebacks_and_inspect(session: Session) -> None:
    await round_trip(session, "x = 1\n\n\ndef f():\n    # a comment\n    raise ValueError('no')")
    assert await run(session, "import inspect\ninspect.getsource(f)") == (
        "def f():\n    # a comment\n    raise ValueError('no')\n"
    )
    error = (await session.execute("f()")).error
    assert error is not None
    assert "line 6, in f" in error.traceback
    assert "raise ValueError('no')" in error.traceback


async def test_functions_without_source_are_kept_too(session: Session) -> None:
    report = await round_trip(
        session,
        "exec('def made(x): return x + offset')\noffset = 5\n"
        "Dynamic = type('Dynamic', (), {'m': lambda self: 'm'})\nd = Dynamic()",
    )
    assert report["made"].outcome == "exact"
    found = await run(session, "offset = 6\n[made(1), d.m(), isinstance(d, Dynamic)]")
    assert found == [7, "m", True]


async def test_again_and_again(session: Session) -> None:
    """A restored session can be frozen like the one it came from."""
    await run(session, "class C:\n    k = []\nc = C()\nif True:\n    class D(C): pass\nd = D()")
    await run(session, "f = lambda: c")
    for number in range(3):
        await run(session, f"C.k.append({number})\nc.x = {number}")
        cp = await session.checkpoint()
        other = await session.fork(f"copy{number}")
        assert await run(other, "[C.k, f().x, isinstance(d, C), d.k is C.k]") == [
            list(range(number + 1)),
            number,
            True,
            True,
        ]
        await other.shutdown()
        await session.restore(cp)


# -- modules and libraries -----------------------------------------------------------------


async def test_a_missing_library_costs_only_what_needs_it(make, store, tmp_path) -> None:
    library = tmp_path / "somewhere"
    library.mkdir()
    (library / "rare.py").write_text("class Thing:\n    def __init__(self, x): self.x = x\n")
    path = {"PYTHONPATH": str(library)}
    session = await make("rare", env=path)
    await run(
        session,
        "import rare\nfrom rare import Thing\nthing = Thing(3)\nplain = 5\n"
        "both = [thing, 'kept']\nclass Sub(rare.Thing): pass\nsub = Sub(4)",
    )
    await session.checkpoint()
    await session.shutdown()
    without = await Session.resume("rare", store=store)
    report = without.report
    assert report is not None
    outcomes = {item.name: item.outcome for item in report.items}
    assert outcomes["plain"] == "exact"
    assert {outcomes[name] for name in ("rare", "Thing", "thing", "both", "Sub", "sub")} == {
        "placeholder"
    }
    assert "rare" in report["thing"].reason
    assert await run(without, "[plain, both[1]]") == [5, "kept"]
    error = (await without.execute("rare.Thing(1)")).error
    assert error is not None
    assert "No module named 'rare'" in error.message
    # what was missing is carried along, and revives where the library is
    await without.execute("held = {'deep': [both]}\nplain = 6")
    cp = await without.checkpoint()
    assert cp.report["both"].outcome == cp.report["Sub"].outcome == "placeholder"
    await without.restore(cp)
    await without.checkpoint()
    await without.shutdown()
    again = await Session.resume("rare", store=store, env=path)
    assert await run(again, "[rare.Thing(1).x, plain, thing.x, both[0] is thing, both[1]]") == [
        1, 6, 3, True, "kept",
    ]  # fmt: skip
    assert await run(
        again, "[Thing is rare.Thing, sub.x, type(sub) is Sub, issubclass(Sub, Thing)]"
    ) == [True, 4, True, True]
    assert await run(again, "held['deep'][0] is both") is True
    outcomes = {item.name: item.outcome for item in again.report.items}
    assert "placeholder" not in outcomes.values()
    await again.shutdown()


async def test_another_python_gets_source_and_portable_records_only(session, make, store) -> None:
    """The same parts, signed as if an older Python had made them."""
    await run(
        session,
        "class C:\n    def m(self): return self.x\nc = C()\nc.x = [1]\ndef f(): return c.m()\n"
        "exec('def bytecode(): return 1')\nclosure = (lambda k: lambda: k)(7)",
    )
    cp = await session.checkpoint()
    with store.draft("session/older", parent=None) as draft:
        for part in store.show(cp.id).parts:
            if part.name == "environment":
                value = {**store.value(cp.id, part.name), "python": "3.10.13"}
                draft.put(part.name, value, split="structure")
            elif part.split == "structure":
                draft.put(part.name, store.value(cp.id, part.name), split="structure")
            else:
                draft.put(part.name, store.read(cp.id, part.name))
        draft.commit()
    older = await Session.resume("older", store=store)
    report = older.report
    assert report is not None
    assert report["bytecode"].outcome == "placeholder"
    assert "3.10.13" in report["bytecode"].reason
    assert report["c"].outcome == report["closure"].outcome == report["f"].outcome == "rebuilt"
    assert await run(older, "[c.x, f(), closure()]") == [[1], [1], 7]
    await older.shutdown()


# -- secrets -------------------------------------------------------------------------------

KEY = "sk-" + "a1B2" * 8


async def test_secrets_are_left_out_and_reported(session: Session, store, monkeypatch) -> None:
    await run(
        session,
        f"password = 'hunter2hunter2'\napi_key = b'raw-bytes-key'\nsomething = '{KEY}'\n"
        f"tokens = ['a', 'b']\n"
        f"config = {{'db_password': 'correct horse', 'nested': ['{KEY}'], 'user': 'me'}}\n"
        f"def connect(user, password='battery staple'):\n    inner = '{KEY}'\n    return password\n"
        "class Client:\n    def __init__(self): self.auth_secret = 'staple battery'\n"
        "client = Client()",
    )
    cp = await session.checkpoint()
    assert {name: cp.report[name].outcome for name in ("password", "api_key", "something")} == {
        "password": "skipped",
        "api_key": "skipped",
        "something": "skipped",
    }
    assert cp.report["tokens"].outcome == "exact"
    for name in ("config", "connect", "client"):
        assert "secret" in cp.report[name].reason
    kept = _everything(store, cp)
    for leaked in (
        "hunter2",
        "raw-bytes",
        KEY,
        "correct horse",
        "battery staple",
        "staple battery",
    ):
        assert leaked.encode() not in kept, leaked
    monkeypatch.setenv("HOLDFAST_SECRET_API_KEY", "from the environment")
    report = await session.restore(cp, secrets={"password": "given again"})
    assert report["password"].outcome == report["api_key"].outcome == "rebuilt"
    assert report["something"].outcome == "placeholder"
    assert await run(session, "[password, api_key, tokens, config['user'], connect('x')]") == [
        "given again",
        b"from the environment",
        ["a", "b"],
        "me",
        "given again",
    ]


async def test_secrets_in_every_kind_of_container(session: Session, store) -> None:
    await run(
        session,
        "import collections, dataclasses, functools\n"
        "ordered = collections.OrderedDict(user='me', password='leak-1')\n"
        "Login = collections.namedtuple('Login', 'user password')\n"
        "login = Login('me', 'leak-2')\n"
        "def keep(api_key):\n    return lambda: api_key\n"
        "closure = keep('leak-3')\n"
        "@dataclasses.dataclass(slots=True)\nclass Account:\n    user: str\n    secret: str\n"
        "account = Account('me', 'leak-4')\n"
        "partial = functools.partial(print, password='leak-5')\n"
        "held = [{'nested': [collections.defaultdict(str, secret='leak-6')]}]\n"
        "lazy = (lambda password='leak-7': password)\n"
        "rows = [{'user': str(i), 'password': f'leak-8-{i}'} for i in range(5000)]",
    )
    cp = await session.checkpoint()
    kept = _everything(store, cp)
    for number in range(1, 9):
        assert f"leak-{number}".encode() not in kept, number
    for name in ("ordered", "login", "closure", "account", "partial", "held", "lazy", "rows"):
        assert "secret" in cp.report[name].reason, name
    given = {"password": "again", "api_key": "again", "token": "again", "secret": "again"}
    await session.restore(cp, secrets=given)
    assert await run(
        session,
        "[ordered['password'], login.password, closure(), account.secret, partial.keywords,"
        " held[0]['nested'][0]['secret'], lazy(), rows[4999]]",
    ) == ["again"] * 4 + [{"password": "again"}] + ["again"] * 2 + [
        {"user": "4999", "password": "again"}
    ]


async def test_a_secret_that_comes_to_what_had_none(session: Session, store) -> None:
    # Most of the dict is as it was when nothing was found in it.
    await run(session, "rows = {i: {'name': f'user {i}'} for i in range(20_000)}")
    assert (await session.checkpoint()).report["rows"].outcome == "exact"
    await run(session, "rows[12_345]['password'] = 'leak-9'")
    cp = await session.checkpoint()
    assert b"leak-9" not in _everything(store, cp)
    assert "secret" in cp.report["rows"].reason
    await run(session, "del rows[12_345]['password']")
    assert not (await session.checkpoint()).report["rows"].reason


async def test_secrets_under_the_names_of_parameters(session: Session, store) -> None:
    await run(
        session,
        "import functools\ndef numbers(secret):\n    yield secret\nbegun = numbers('leak-1')\n"
        "@functools.lru_cache\ndef login(user, password): return {'secret': 'leak-2'}\n"
        "_ = login('me', 'leak-3'), login('me', password='leak-4')\n"
        "def connect(host):\n    password = f'leak-5-{host}'\n    return password",
    )
    cp = await session.checkpoint()
    kept = _everything(store, cp)
    for number in range(1, 6):
        assert f"leak-{number}".encode() not in kept, number
    for name in ("begun", "login", "connect"):
        assert "secret" in cp.report[name].reason, name


async def test_text_inside_of_other_text_is_data(session: Session, store) -> None:
    """The guide says so: names are what tells a secret, and in these nothing has a name."""
    code = "pairs = [('password', 'data-1')]\ntext = 'PASSWORD=data-2'\nhost = 'db'\n"
    code += "def url():\n    return f'{host}?password=data-3'"
    await run(session, code)
    cp = await session.checkpoint()
    kept = _everything(store, cp)
    assert all(f"data-{number}".encode() in kept for number in (1, 2, 3))
    assert {cp.report[name].outcome for name in ("pairs", "text")} == {"exact"}


def _everything(store, checkpoint) -> bytes:
    return b"".join(
        store.read(checkpoint.id, part.name)
        if part.split != "structure"
        else repr(store.value(checkpoint.id, part.name)).encode()
        for part in store.show(checkpoint.id).parts
    )


@pytest.mark.parametrize("name", ["tokenizer", "keys", "monkey", "passwords_seen"])
async def test_ordinary_names_are_kept(session: Session, name: str) -> None:
    report = await round_trip(session, f"{name} = 'ordinary text'")
    assert report[name].outcome == "exact"


# -- never silently wrong ------------------------------------------------------------------


async def test_what_cannot_be_read_back_is_not_called_exact(session: Session) -> None:
    report = await round_trip(
        session,
        "class E:\n    def __reduce__(self): return E, (1,)\n    def __init__(self, a, b): ...\n"
        "class Dies:\n    def __reduce__(self): return __import__('os')._exit, (3,)\n"
        "rows = [1]\nerror = E(1, 2)\nheld = [rows, E(1, 2)]\ndies = Dies()\nalso = [rows]",
    )
    assert report["error"].outcome == report["held"].outcome == "placeholder"
    assert "missing 1 required positional argument" in report["error"].reason
    assert "did not come to an end" in report["dies"].reason
    assert report["rows"].outcome == report["also"].outcome == "exact"
    assert await run(session, "also[0] is rows") is True


async def test_a_file_that_changed_costs_only_itself(session: Session, tmp_path) -> None:
    path = tmp_path / "data"
    path.write_text("one\ntwo\n")
    await run(session, f"held = {{'file': open({str(path)!r}), 'rows': [1]}}\n"
              "_ = held['file'].readline()")  # fmt: skip
    cp = await session.checkpoint()
    assert cp.report["held"].outcome == "rebuilt"
    report = await session.restore(cp)
    assert report["held"].outcome == "rebuilt"
    assert await run(session, "held['file'].readline()") == "two\n"
    path.write_text("another\n")
    report = await session.restore(cp)
    assert report["held"].outcome == "placeholder"
    assert "has changed since" in report["held"].reason
    assert await run(session, "held['rows']") == [1]
    path.unlink()
    assert (await session.restore(cp))["held"].outcome == "placeholder"
    assert await run(session, "held['rows']") == [1]


async def test_views_stay_views(session: Session) -> None:
    await round_trip(
        session,
        "import numpy as np\na = np.arange(20.0).reshape(4, 5)\nrow, column = a[1], a[:, 2]\n"
        "back = a[::-1, ::2]\nf = np.asfortranarray(np.ones((3, 4)))\npart = f[1:, 1:]\n"
        "frozen = a[0]\nfrozen.flags.writeable = False\nalone = np.arange(3)",
    )
    assert await run(
        session,
        "a[1, 2] = 99\nf[2, 3] = 7\n"
        "[float(row[2]), float(column[1]), float(back[2, 1]), float(part[1, 2]),"
        " back.strides[0] < 0,"
        " frozen.flags.writeable, np.shares_memory(row, column), alone.flags.owndata]",
    ) == [99.0, 99.0, 99.0, 7.0, True, False, True, True]


async def test_the_namespace_itself(session: Session) -> None:
    await round_trip(session, "everything = globals()\nimport __main__ as me\nx = 1")
    assert await run(session, "[everything is globals(), me.x, me.everything is everything]") == [
        True,
        1,
        True,
    ]


async def test_definitions_that_change_data_when_they_run(session: Session) -> None:
    await round_trip(
        session,
        "found, names = [], []\n"
        "def register(cls):\n    found.append(cls)\n    names.append(cls.__name__)\n"
        "    return cls\n"
        "@register\nclass A: pass\n"
        "def note(cls):\n    names.append('noted')\n    return cls\n"
        "@note\nclass B: pass\n"
        "class Base:\n    plugins = []\n"
        "    def __init_subclass__(cls): Base.plugins.append(cls)\n"
        "class P1(Base): pass\nclass P2(Base): pass",
    )
    assert await run(
        session,
        "[found == [A], names, Base.plugins == [P1, P2], [c.__name__ for c in Base.plugins]]",
    ) == [True, ["A", "noted"], True, ["P1", "P2"]]


@pytest.mark.parametrize(
    ("make_it", "kind"),
    [
        ("__import__('socket').create_server(('127.0.0.1', 0))", "socket"),
        ("open('/dev/null')", "TextIOWrapper"),
    ],
)
async def test_what_cannot_come_back_says_so(session: Session, make_it: str, kind: str) -> None:
    report = await round_trip(session, f"thing = {make_it}\nneighbour = 1")
    assert report["thing"].outcome == "placeholder"
    assert report["neighbour"].outcome == "exact"
    assert kind in str(await run(session, "thing"))


@pytest.mark.parametrize(
    ("make_it", "check"),
    [
        ("__import__('functools').partial(int, base=2)", "thing('101') == 5"),
        ("[].append", "thing.__self__ == []"),
        ("iter([1, 2, 3])", "list(thing) == [1, 2, 3]"),
        ("__import__('io').StringIO('text')", "thing.read() == 'text'"),
        ("__import__('threading').Lock()", "thing.acquire(blocking=False)"),
        ("__import__('threading').Event()", "not thing.is_set()"),
        ("__import__('logging').getLogger('x.y')", "thing.name == 'x.y'"),
        ("__import__('re').compile('a(.)')", "thing.match('ab').group(1) == 'b'"),
        ("ValueError('no')", "thing.args == ('no',)"),
        ("__import__('random').Random(3)", "thing.random() == type(thing)(3).random()"),
        ("__import__('itertools').count(5)", "next(thing) == 5"),
        ("bytearray(b'x')", "thing == b'x'"),
        ("__import__('types').SimpleNamespace(a=1)", "thing.a == 1"),
        ("len", "thing is len"),
        ("int", "thing is int"),
        ("...", "thing is ..."),
        ("NotImplemented", "thing is NotImplemented"),
        ("range(3)", "thing == range(3)"),
        ("{}.keys()", "list(thing) == []"),
        ("__import__('sys').stdout", "thing is __import__('sys').stdout"),
        ("__import__('collections').OrderedDict(a=1)", "list(thing) == ['a']"),
        ("__import__('collections').defaultdict(list, a=[1])", "thing['new'] == []"),
        ("list[int]", "thing == list[int]"),
        ("property(lambda self: 1)", "thing.fget(None) == 1"),
    ],
)  # fmt: skip
async def test_what_comes_back(session: Session, make_it: str, check: str) -> None:
    report = await round_trip(session, f"thing = {make_it}")
    assert report["thing"].outcome in ("exact", "rebuilt"), report["thing"]
    assert await run(session, check) is True
