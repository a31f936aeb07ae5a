"""What libraries copy only when it is written to: after a restore, writes reach what they would
have reached without one.

Each case makes a few values. A probe writes to each of them, in a fork of its own, and notes which
of the others changed; the same probe runs before the checkpoint and in a fresh process after it.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import sync
from holdfast.store import open_store

SETUP = '''
import copy, os, pickle
import numpy as np, pandas as pd, polars as pl, pyarrow as pa

def picture(value):
    """What a reader of the value sees, as bytes."""
    if isinstance(value, (pd.DataFrame, pd.Series, pd.Index)):
        return pickle.dumps((value.to_numpy(dtype=object).tolist(), list(map(str, value.axes
                             if not isinstance(value, pd.Index) else [value.dtype]))))
    if type(value).__name__ == "Tensor":
        return repr(value.tolist()).encode()
    if isinstance(value, np.ndarray):
        return repr(value.tolist()).encode()
    return repr(value).encode()

def write(value):
    """Change the first entry in place, of a frame that of each column."""
    if isinstance(value, pd.DataFrame):
        for column in range(value.shape[1]):
            value.iloc[0, column] = value.iloc[-1, column]
    elif isinstance(value, pd.Series):
        value.iloc[0] = value.iloc[-1]
    elif isinstance(value, np.ndarray):
        value[(0,) * value.ndim] = value[(-1,) * value.ndim]
    elif isinstance(value, pl.DataFrame):
        value[0, value.columns[0]] = value[-1, 0]
    elif isinstance(value, (pl.Series, bytearray, memoryview)):
        value[0] = value[-1]
    elif type(value).__name__ == "Tensor":
        value.reshape(-1)[0] = value.reshape(-1)[-1].item()
    else:
        raise TypeError("it cannot be written to")

def reached(values, number):
    """Which values look different after a write to one of them."""
    before = [picture(each) for each in values]
    try:
        write(values[number])
    except Exception as error:
        return type(error).__name__
    return [i for i, each in enumerate(values) if picture(each) != before[i]]

def probe(values):
    """For each value, which others a write to it reaches."""
    found = []
    for number in range(len(values)):
        read, out = os.pipe()
        pid = os.fork()
        if not pid:
            os.write(out, repr(reached(values, number)).encode())
            os._exit(0)
        os.close(out)
        with os.fdopen(read) as file:
            found.append(file.read())
        os.waitpid(pid, 0)
    return found

def frame():
    return pd.DataFrame({"a": np.arange(6), "b": np.arange(6) * 2, "c": np.arange(6) / 4,
        "t": list("uvwxyz"), "o": pd.Series([*range(6)], dtype=object),
        "d": pd.date_range("2026", periods=6), "z": pd.date_range("2026", periods=6, tz="UTC"),
        "p": pd.period_range("2026", periods=6, freq="D"), "k": pd.Categorical(list("xxyyzz")),
        "n": pd.array([1, 2, 3, 4, 5, None], dtype="Int64"),
        "l": pd.array(list("abcdef"), dtype=pd.StringDtype("python"))})
'''

DERIVED = {
    "column": "df['a']",
    "attribute": "df.b",
    "columns": "df[['a']]",
    "mixed columns": "df[['a', 'c', 't']]",
    "texts": "df['t']",
    "objects": "df['o']",
    "times": "df['d']",
    "zoned times": "df['z']",
    "periods": "df['p']",
    "categories": "df['k']",
    "nullable": "df['n']",
    "python strings": "df['l']",
    "rename": "df.rename(columns={'a': 'x'})",
    "assign": "df.assign(x=1)",
    "shallow copy": "df.copy(deep=False)",
    "deep copy": "df.copy()",
    "copy.copy": "copy.copy(df)",
    "set_axis": "df.set_axis(list('ABCDEFGHIJK'), axis=1)",
    "reset_index": "df.reset_index()",
    "set_index": "df.set_index('a')",
    "index of a column": "pd.Index(df['a']), df['a']",
    "set_index without drop": "df.set_index('a', drop=False)",
    "first rows": "df.iloc[:3]",
    "some rows": "df.iloc[1:4]",
    "every other row": "df.iloc[::2]",
    "loc": "df.loc[1:, 'a':'c']",
    "transposed": "df[['a', 'b']].T",
    "head": "df.head(3)",
    "tail": "df.tail(6)",
    "same type": "df.astype({'a': 'int64'})",
    "filled": "df.fillna({'a': 0})",
    "infer_objects": "df.infer_objects()",
    "convert_dtypes": "df[['a', 'c']].convert_dtypes()",
    "series of an index": "(lambda i: (i, pd.Series(i), i.to_series()))(pd.Index([3, 1, 2]))",
    "index and frame": "(lambda s: (s, s.index, pd.DataFrame({'i': s.index})))"
    "(pd.Series([1, 2, 3], index=pd.Index([7, 8, 9])))",
    "to_frame": "df['a'].to_frame()",
    "index to_frame": "(lambda i: (i, i.to_frame(), i.to_frame(index=False)))(pd.Index([3, 1, 2]))",
    "concat columns": "pd.concat([df['a'], df['c']], axis=1)",
    "concat frames": "pd.concat([df, df[['a']].add_suffix('2')], axis=1)",
    "replace": "df.replace({'nothing': 1})",
    "pipe": "df.pipe(lambda d: d)",
    "groupby pieces": "[piece for _, piece in df.groupby('k', observed=True)]",
    "groupby": "df.groupby('k', observed=True).obj",
    "values": "df[['a', 'b']].values",
    "to_numpy": "df['c'].to_numpy()",
    "column's array": "np.asarray(df['a'])",
    "extension array": "df['n'].array",
    "drop": "df.drop(columns=['t'])",
    "filter": "df.filter(items=['a', 'b'])",
    "select_dtypes": "df.select_dtypes('number')",
    "truncate": "df.truncate(before=1)",
    "query of all": "df.query('a >= 0')",
    "squeeze": "df[['a']].squeeze()",
    "xs": "df.xs('a', axis=1)",
    "pop": "(lambda other: (other, other.pop('a')))(df.copy(deep=False))",
    "where": "df.where(df == df)",
    "clip": "df[['a', 'b']].clip(lower=-1)",
    "rename_axis": "df.rename_axis('rows')",
    "add_prefix": "df.add_prefix('p')",
    "swaplevel": "df.set_index(['a', 'b']).swaplevel()",
    "tz_localize": "df.set_index('d').tz_localize('UTC')",
    "to_period": "df.set_index('d').to_period('D')",
    "eval": "df.eval('x = 1')",
    "inserted column": "(lambda other: (other.__setitem__('x', df['a']), other)[1])"
    "(df.iloc[:, :2])",
    "chain": "df.rename(columns=str.upper)[['A', 'B']].iloc[1:].reset_index(drop=True)",
    "view": "df['a'].view('int64') if hasattr(df['a'], 'view') else df['a'].copy(deep=False)",
    "from array": "(lambda a: (a, pd.DataFrame(a, copy=False), pd.Series(a[0], copy=False)))"
    "(np.arange(12).reshape(3, 4))",
    "sparse": "pd.Series(pd.arrays.SparseArray([0, 0, 1])).copy(deep=False)",
    "arrow": "df['a'].astype('int64[pyarrow]').copy(deep=False)",
    "nothing left of the frame": "frame().rename(columns=str.upper)",
}  # fmt: skip


# Other libraries' values that share memory; each is a function of nothing.
SHARED = {
    "polars frames": "(lambda d: (d, d.clone(), d.select('a'), d['a'], d.head(2),"
    " d.with_columns(b=1)))(pl.DataFrame({'a': [1, 2, 3]}))",
    "polars series": "(lambda s: (s, s.clone(), s.rename('x'), s.to_frame(), s.slice(0, 2),"
    " copy.copy(s)))(pl.Series('a', [1, 2, 3]))",
    "polars to numpy": "(lambda s: (s, s.to_numpy(), s.to_numpy(writable=True)))"
    "(pl.Series('a', [1, 2, 3]))",
    "polars and arrow": "(lambda s: (s, s.to_arrow(), pl.from_arrow(s.to_arrow())))"
    "(pl.Series('a', [1, 2, 3]))",
    "arrow to numpy": "(lambda p: (p, p.to_numpy(), np.asarray(p), p.slice(1).to_numpy()))"
    "(pa.array([1, 2, 3]))",
    "pandas from arrow": "(lambda p: (p, p.to_pandas(types_mapper=pd.ArrowDtype),"
    " pd.Series(p['a'])))(pa.table({'a': [1, 2, 3]}))",
    "views": "(lambda a: (a, a[1:], a.T, a.view(), np.broadcast_to(a, (2, 3)),"
    " (lambda v: (v.setflags(write=False), v)[1])(a[:2])))(np.arange(3))",
    "writable view of a read-only array": "(lambda a: (lambda v: (a.setflags(write=False),"
    " (a, v, a[1:]))[1])(a[:2]))(np.arange(3))",
    "views of bytes": "(lambda b: (b, np.frombuffer(b, 'u1'), np.frombuffer(b, 'u1')[1:],"
    " memoryview(b), memoryview(b).toreadonly(), np.asarray(memoryview(b))))(bytearray(b'abcd'))",
    "views of objects": "(lambda a: (a, a[1:], a.reshape(2, 2), a[::-1], a[:0], a.reshape(2, 2).T))"
    "(np.array([1, 'b', None, 2.5], object))",
    "views of fortran objects": "(lambda a: (a, a[1:], a[:, ::-1], a.T))"
    "(np.asfortranarray(np.array([[1, 'b'], [None, 2.5]], object)))",
    "fields": "(lambda a: (a, a['x'], a[1:]))(np.zeros(3, [('x', 'i4'), ('y', 'f8')]))",
    "windows": "(lambda a: (a, np.lib.stride_tricks.sliding_window_view(a, 2), a[::2], a[::-1]))"
    "(np.arange(4))",
    "masked arrays": "(lambda a: (a, a[1:], a.data, a.mask))(np.ma.masked_less(np.arange(4), 2))",
    "series over an array": "(lambda a: (a, pd.Series(a, copy=False), pd.Series(a, copy=False)"
    ".array, pd.Index(a, copy=False)))(np.arange(3))",
    "extension arrays": "(lambda s: (s, s.array, s.array.copy(), s.array[1:]))"
    "(pd.Series([1, 2, None], dtype='Int64'))",
    "levels of an index": "(lambda d: (d, d.index, d.index.levels[0], d.index.get_level_values(0),"
    " d.index.get_level_values(0).to_series()))"
    "(pd.DataFrame({'v': [1, 2]}, index=pd.MultiIndex.from_tuples([(1, 2), (3, 4)])))",
    "intervals": "(lambda d: (d, d.copy(deep=False), d['a']))"
    "(pd.DataFrame({'a': pd.interval_range(0, 3)}))",
    "estimators that hold a frame": "(lambda d: (d, copy.copy(d), [setattr(e, 'data', d.copy("
    "deep=False)) or e.data for e in map(lambda _: type('Estimator', (), {})(), 'ab')][0]))"
    "(frame()[['a', 'b']])",
}


CASES = {**DERIVED, **SHARED}


def _program(number: int, name: str) -> str:
    code, first = CASES[name], "[df]" if name in DERIVED else "[]"
    return textwrap.dedent(f"""
        df = frame()
        made = {code}
        case{number} = [*{first}, *(made if isinstance(made, (tuple, list)) else [made])]
        base{number}, *rest{number} = case{number}
        del df, made
    """)


class Probed:
    """What writes reach, before a checkpoint and in a fresh process after it."""

    def __init__(self) -> None:
        store = open_store("memory://")
        ask = [f"probe([base{number}, *rest{number}])" for number in range(len(CASES))]
        with sync.Session("frames", store=store) as session:
            session.execute(SETUP, check=True)
            for number, name in enumerate(CASES):
                session.execute(_program(number, name), check=True)
            self.before = [session.execute(each, check=True).value for each in ask]
            self.report = session.checkpoint().report
        with sync.Session.resume("frames", store=store) as session:
            self.after = [session.execute(each, check=True).value for each in ask]
            session.execute("base0.loc[0, 'a'] = 5", check=True)
            session.checkpoint()
        with sync.Session.resume("frames", store=store) as session:
            self.again = [session.execute(each, check=True).value for each in ask]


@pytest.fixture(scope="module")
def probed() -> Probed:
    return Probed()


@pytest.mark.parametrize("number", range(len(CASES)), ids=list(CASES))
def test_writes_reach_the_same_values(probed: Probed, number: int) -> None:
    assert probed.after[number] == probed.before[number]
    assert probed.report[f"case{number}"].outcome == "exact", probed.report[f"case{number}"]
    if number:  # the first case was written to in between
        assert probed.again[number] == probed.before[number]


STEPS = (
    "{x} = {y}",
    "{x} = {y}.copy(deep=False)",
    "{x} = {y}.copy()",
    "{x} = {y}.rename(columns=str.upper).rename(columns=str.lower)",
    "{x} = {y}[['a', 'b', 't']]",
    "{x} = {y}.iloc[1:] if len({y}) > 2 else {y}",
    "{x} = {y}.reset_index(drop=True)",
    "{x} = {y}.assign(a={z}['b'].array if len({y}) == len({z}) else 0)",
    "{x} = {y}['a'].to_frame().join({y}[['b', 't']])",
    "{x} = pd.DataFrame({{'a': {y}['a'], 'b': {y}['b'], 't': {y}['t']}}, copy=False)",
    "{x} = {y}.T.T",
    "{x} = {y}.set_axis({z}['a'].iloc[:len({y})].reindex(range(len({y})), fill_value=0))",
    "box['{x}'] = [{y}, {y}['a']]",
    "{x} = box.get('{y}', [{y}])[0]",
    "{x}.iloc[0, 0] = len({x}) * 100",
    "{x}.loc[{x}.index[-1], 'b'] = -7",
    "{x}['a'] += 1",
    "{x}['b'] = {y}['b'].to_numpy()[0]",
    "{x}.iloc[:, 0] = 5",
    "{x}.isetitem(1, {x}['b'] * 2)",
    "box['{x}'][1].iloc[0] = 42 if '{x}' in box else None",
    "{x}.index = {x}.index + 1",
    "{x}.fillna(0, inplace=True)",
    "{x}.drop(columns=['t'], inplace=False)",
)  # fmt: skip
NAMES = st.sampled_from(["u", "v", "w"])
STEP = st.builds(
    lambda step, x, y, z: step.format(x=x, y=y, z=z), st.sampled_from(STEPS), NAMES, NAMES, NAMES
)
RUN = """
def start():
    frame = pd.DataFrame({'a': range(4), 'b': range(4, 8), 't': list('wxyz')})
    return {'pd': pd, 'np': np, 'box': {},
            'u': frame, 'v': frame.copy(deep=False), 'w': frame[['a', 'b', 't']]}

def follow(space, steps):
    for step in steps:
        try:
            exec(step, space)
        except Exception:
            pass
    held = {name: space[name] for name in 'uvw'}
    held |= {f'{k}{i}': each for k, v in space['box'].items() for i, each in enumerate(v)}
    return {k: (v.to_numpy().tolist(), list(v.index)) for k, v in held.items()}
"""


@pytest.fixture(scope="module")
def session() -> Any:
    with sync.Session(store=open_store("memory://")) as made:
        made.execute(SETUP + RUN, check=True)
        yield made


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(STEP, max_size=8), st.lists(STEP, min_size=1, max_size=8), st.lists(STEP, max_size=4)
)
def test_random_programs_survive_a_restore(
    session: Any, first: list[str], then: list[str], last: list[str]
) -> None:
    session.execute(f"space = start(); follow(space, {first!r})", check=True)
    straight = session.execute(
        f"plain = start(); follow(plain, {first + then + last!r})", check=True
    ).value
    session.execute("del plain", check=True)
    session.restore(session.checkpoint())
    session.execute(f"follow(space, {then!r})", check=True)
    session.restore(session.checkpoint())  # an increment: some of it changed
    assert session.execute(f"follow(space, {last!r})", check=True).value == straight


def test_a_large_snapshot_survives_a_crash(tmp_path: Any) -> None:
    store = open_store(tmp_path)
    with sync.Session("clean", store=store) as session:
        session.execute(
            "import os, pandas as pd, numpy as np\n"
            "class Step:\n    pass\n"
            "df = pd.DataFrame({'a': np.arange(400_000), 'b': np.arange(400_000) / 2})\n"
            "snapshot = df.copy(deep=False)\nstep = Step()\nstep.input = df[['a']]\n"
            "held = {'column': df['b'], 'rows': df.iloc[200_000:]}",
            check=True,
        )
        session.checkpoint()
        session.execute("step.note = 'changed'", check=True)
        session.checkpoint()
        session.execute("import signal; os.kill(os.getpid(), signal.SIGKILL)")
    with sync.Session.resume("clean", store=store) as session:
        seen = session.execute(
            "df.loc[df['a'] > 10, ['a', 'b']] = -1\nheld['rows'].iloc[0, 0] = -2\n"
            "int(snapshot['a'].sum()), float(snapshot['b'].sum()), int(step.input['a'].sum()),"
            "float(held['column'].sum()), int(held['rows']['a'].sum()), int(df['a'].sum())",
            check=True,
        ).value
    whole = sum(range(400_000))
    rest = sum(range(200_000, 400_000)) - 200_000 - 2
    assert seen == (whole, whole / 2, whole, whole / 2, rest, 55 - (400_000 - 11))


def test_frames_outlive_a_session_without_pandas(tmp_path: Any) -> None:
    """They are carried along, and are still copied when written to where pandas is."""
    store = open_store("memory://")
    with sync.Session("frames", store=store) as session:
        session.execute(
            "import pandas as pd, numpy as np\ndf = pd.DataFrame({'a': np.arange(4)})\n"
            "snapshot, column = df.copy(deep=False), df['a']\n"
            "index = pd.Index([1, 2])\nseries = pd.Series(index)",
            check=True,
        )
        session.checkpoint()
    (tmp_path / "pandas.py").write_text("raise ImportError('pandas is not there')\n")
    with sync.Session.resume("frames", store=store, env={"PYTHONPATH": str(tmp_path)}) as without:
        assert "pandas is not there" in without.execute("repr(df)", check=True).value
        without.checkpoint()
    with sync.Session.resume("frames", store=store) as again:
        again.execute("df.loc[0, 'a'] = 9\nseries.iloc[0] = 9", check=True)
        ask = "snapshot['a'].tolist(), column.tolist(), index.tolist(), series.tolist()"
        seen = again.execute(ask, check=True).value
    assert seen == ([0, 1, 2, 3], [0, 1, 2, 3], [1, 2], [9, 2])
