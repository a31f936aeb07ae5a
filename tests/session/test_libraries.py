"""What libraries make comes back in a new process: arrays, frames, tables, models, figures."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.model.report import Report
from holdfast.store import Store, open_store

SETUP = """
import io
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np, pandas as pd, polars as pl, pyarrow as pa
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
def png(figure):
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
"""


@dataclass(frozen=True, slots=True)
class Thing:
    """Code that binds `name`, and what must be true of it afterwards."""

    name: str
    code: str
    check: str
    pandas_2: str = "exact"  # the outcome with pandas 2, which keeps a view where pandas 3 copies


THINGS = (
    Thing("kinds", "kinds = [np.zeros(3, dtype=t) for t in ('i1', 'u8', 'f2', 'c16', 'M8[s]')]\n"
          "kinds += [np.array(['a', 'bc']), np.array([{'x': 1}, None], object), np.array(5.5),"
          " np.zeros((0, 3)), np.array([(1, 2.5)], [('n', 'i4'), ('x', 'f8')]), np.float32(2)]",
          "[str(k.dtype) for k in kinds][:5] == ['int8', 'uint64', 'float16', 'complex128',"
          " 'datetime64[s]'] and kinds[6][0] == {'x': 1} and kinds[8].shape == (0, 3)"
          " and kinds[9]['x'][0] == 2.5 and type(kinds[10]) is np.float32"),
    Thing("fortran", "fortran = np.asfortranarray(np.arange(360_000.0).reshape(600, 600))",
          "fortran.flags.f_contiguous and fortran.flags.owndata and fortran[3, 5] == 1805"),
    Thing("masked", "masked = np.ma.masked_less(np.arange(5), 2)", "masked.sum() == 9"),
    Thing("big", "big = np.arange(300_000.0)\nbig_view, big_holder = big[::2], [big, big]",
          "(big.__setitem__(2, -1), big_view[1] == -1 and big_holder[0] is big"
          " and big_holder[1] is big)[1] and (big.resize(4, refcheck=False), len(big) == 4)[1]"),
    Thing("record", "record = np.zeros(100_000, [('a', 'i8'), ('b', 'f8')])\nfield = record['b']",
          "(record.__setitem__(7, (1, 2.5)), field[7] == 2.5)[1]"),
    Thing("over", "held = bytearray(16)\nover = np.frombuffer(held, 'u1')",
          "(held.__setitem__(3, 9), over[3] == 9)[1]"),
    Thing("frame", "frame = pd.DataFrame({'n': range(200_000), 'x': np.linspace(0, 1, 200_000),"
          " 's': pd.Series(['a', 'b'] * 100_000, dtype=object),"
          " 'c': pd.Categorical(['u', 'v'] * 100_000),"
          " 'd': pd.date_range('2026-01-01', periods=200_000, freq='s', tz='UTC')})\n"
          "frame['t'] = frame['s'].astype('string')\nby = frame.groupby('c', observed=True)",
          "frame.shape == (200_000, 6) and frame['n'].sum() == 19999900000 and list(frame['s'][:2])"
          " == ['a', 'b'] and frame['c'].cat.categories.tolist() == ['u', 'v'] and"
          " str(frame['d'].dt.tz) == 'UTC' and (frame.__setitem__('new', 1), by.obj is frame)[1]"
          " and frame['t'].dtype == 'string'"),
    Thing("shorter", "shorter = pd.Series(range(9), index=list('abcdefghi'))\n"
          "del shorter['c']\npopped = shorter.pop('a')",
          "shorter.tolist() == [1, 3, 4, 5, 6, 7, 8] and ''.join(shorter.index) == 'bdefghi'"
          " and popped == 0 and (shorter.__delitem__('i'), shorter.sum())[1] == 26",
          pandas_2="rebuilt"),
    Thing("indexed", "indexed = pd.DataFrame({'v': [1, 2, 3]},"
          " index=pd.MultiIndex.from_tuples([('a', 1), ('a', 2), ('b', 1)], names=['k', 'n']))",
          "indexed.loc[('a', 2), 'v'] == 2 and indexed.index.names == ['k', 'n']"),
    Thing("polar", "polar = pl.DataFrame({'a': range(200_000), 'b': ['x', None] * 100_000})\n"
          "lazy = polar.lazy().filter(pl.col('a') > 5)",
          "polar['a'].sum() == 19999900000 and polar['b'].null_count() == 100_000"
          " and lazy.collect().height == 199_994"),
    Thing("table", "table = pa.table({'a': range(200_000), 'b': ['x', None] * 100_000,"
          " 'l': [[1, 2]] * 200_000})\nchunk = table['a'].chunk(0)[10:20]",
          "table.num_rows == 200_000 and table['b'].null_count == 100_000 and"
          " chunk.to_pylist() == list(range(10, 20)) and table['l'][7].as_py() == [1, 2]"),
    Thing("forest", "X = np.random.default_rng(0).random((200, 4))\ny = X[:, 0] > 0.5\n"
          "forest = RandomForestClassifier(5, random_state=0).fit(X, y)\n"
          "before = forest.predict_proba(X)",
          "np.array_equal(forest.predict_proba(X), before)"),
    Thing("pipeline", "pipeline = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)\n"
          "predicted = pipeline.predict(X)", "np.array_equal(pipeline.predict(X), predicted)"),
    Thing("figure", "figure, axes = plt.subplots()\nline, = axes.plot([1, 2, 3], [3, 1, 2])\n"
          "axes.set_title('a title')\ndrawn = png(figure)",
          "axes.figure is figure and line in axes.lines and axes.get_title() == 'a title'"
          " and png(figure) == drawn"),
)  # fmt: skip


class Seen:
    """The session before and after, in two processes."""

    def __init__(self) -> None:
        store = open_store("memory://")
        with sync.Session("libraries", store=store) as session:
            session.execute(SETUP, check=True)
            for thing in THINGS:
                session.execute(thing.code, check=True)
            checkpoint = session.checkpoint()
            self.made: Report = checkpoint.report
            self.parts = {part.name: part.size for part in store.show(checkpoint.id).parts}
        with sync.Session.resume("libraries", store=store) as again:
            self.checks = {t.name: again.execute(f"bool({t.check})") for t in THINGS}


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen()


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.name)
def test_a_thing(seen: Seen, thing: Thing) -> None:
    outcome = thing.pandas_2 if version("pandas").startswith("2.") else "exact"
    assert seen.made[thing.name].outcome == outcome, seen.made[thing.name]
    result = seen.checks[thing.name]
    assert result.error is None, result.error.traceback
    assert result.value is True


def test_large_memory_is_kept_once_and_beside_the_records(seen: Seen) -> None:
    buffers = {name: size for name, size in seen.parts.items() if name.startswith("buffers/")}
    # `big` is named by three variables and is there once
    assert list(buffers.values()).count(300_000 * 8) == 1
    assert seen.parts.get("namespace/big", 0) < 10_000
    assert sum(buffers.values()) > 5_000_000


needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is tried when there"
)


@needs_torch
def test_torch() -> None:
    store = open_store("memory://")
    with sync.Session("torch", store=store) as session:
        session.execute(
            "import torch\ntorch.manual_seed(1)\nt = torch.arange(6.).reshape(2, 3)\n"
            "row = t[1]\nm = torch.nn.Linear(3, 2)\nout = m(t)",
            check=True,
        )
        checkpoint = session.checkpoint()
        # What nobody touched is the same again, the generator's state as well.
        assert _roots(store, session.checkpoint().id) == _roots(store, checkpoint.id)
        drawn = session.execute("torch.rand(1).item()", check=True).value
        session.restore(checkpoint)
        assert session.execute("torch.equal(m(t), out)", check=True).value is True
        assert session.execute("torch.rand(1).item()", check=True).value == drawn


TENSORS = """
import torch
t = torch.arange(6.).reshape(2, 3)
row, turned, same = t[1], t.T, [t]
big = torch.arange(400_000, dtype=torch.float64)
part = big[10:300_000:3]
model = torch.nn.Linear(3, 2)
model(t).sum().backward()
model.weight.word = [model]
values = model.state_dict()
held = list(model.parameters())
half = torch.ones(700_000, dtype=torch.bfloat16)
nothing, one, sparse = torch.empty(0, 3), torch.tensor(5), torch.eye(3).to_sparse()
turned_sign = torch.tensor([1 + 2j]).conj()
"""
SHARED = (
    "(t.__setitem__((1, 2), -1.0), row[2].item(), turned[2, 1].item())[1:] == (-1, -1)",
    "same[0] is t",
    "(big.__setitem__(10, -1.0), part[0].item())[1] == -1",
    "values['weight'].data_ptr() == model.weight.data_ptr()",
    "held[0] is model.weight",
    "model.weight.grad.tolist() == [[3, 5, 7]] * 2 and model.weight.word[0] is model",
    "type(model.weight) is torch.nn.Parameter and model.weight.requires_grad",
    "half.dtype == torch.bfloat16 and int(half.float().sum()) == 700_000",
    "nothing.shape == (0, 3) and one.item() == 5 and sparse.is_sparse",
    "turned_sign.tolist() == [1 - 2j]",
    "big.resize_(500_000).shape == (500_000,)",
)


@needs_torch
def test_tensors_that_share_memory_still_do() -> None:
    store = open_store("memory://")
    with sync.Session("tensors", store=store) as session:
        session.execute(TENSORS, check=True)
        first = session.checkpoint()
        assert {each.name for each in first.report if each.outcome != "exact"} == {"torch"}
        session.execute("big[77] = 5", check=True)
        made = session.checkpoint()
        assert made.checkpoint.stored_bytes < 100_000
        # A capture leaves them as they are.
        assert session.execute("big.resize_(500_000).numel()", check=True).value == 500_000
        session.restore(made)
    with sync.Session.resume("tensors", store=store) as again:
        assert again.execute("big[77].item()", check=True).value == 5
        for check in SHARED:
            assert again.execute(f"bool({check})", check=True).value is True, check


@needs_torch
def test_what_a_tensor_loses_is_said() -> None:
    with sync.Session("tensors", store="memory://") as session:
        session.execute(
            "import torch, numpy as np\na = np.arange(3.0)\nover = torch.from_numpy(a)\n"
            "given = torch.ones(3)\nunder = given.numpy()\n"
            "computed = torch.ones(3, requires_grad=True) * 2",
            check=True,
        )
        made = session.checkpoint()
        session.restore(made)
        # An array that a variable holds is the tensor's memory again.
        assert session.execute("a[0] = 9\nover[0].item()", check=True).value == 9
    said = {name: made.report[name] for name in ("given", "under", "computed")}
    assert said["given"].outcome == said["computed"].outcome == "rebuilt"
    assert made.report["over"].outcome == "exact"
    assert "shares its memory with an array" in said["given"].reason
    assert "without how it was computed" in said["computed"].reason


@needs_torch
def test_tensors_outlive_a_session_without_torch(tmp_path: Path) -> None:
    """They are carried along, and revive where torch is."""
    store = open_store("memory://")
    with sync.Session("tensors", store=store) as session:
        session.execute(TENSORS, check=True)
        session.checkpoint()
    (tmp_path / "torch.py").write_text("raise ImportError('torch is not there')\n")
    with sync.Session.resume("tensors", store=store, env={"PYTHONPATH": str(tmp_path)}) as without:
        said = without.execute("x = {'t': t}\nrepr(big)", check=True).value
        assert said == "<placeholder for torch.Tensor: torch is not there>"
        assert without.checkpoint().report["x"].outcome == "placeholder"
    with sync.Session.resume("tensors", store=store) as again:
        for check in (*SHARED, "x['t'] is t"):
            assert again.execute(f"bool({check})", check=True).value is True, check


def _roots(store: Store, checkpoint: str) -> dict[str, str]:
    """What the variables of a checkpoint are, as hashes."""
    parts = store.show(checkpoint).parts
    return {part.name: part.root for part in parts if part.name.startswith("namespace/")}


def test_an_array_is_restored_frozen_and_restored_again() -> None:
    """numpy lets an array that it reads from a pickle use the pickle's bytes as its memory."""
    with sync.Session("again", store=open_store("memory://")) as session:
        session.execute("import numpy as np\na = np.arange(4000.0)\nview = a[5:10]", check=True)
        session.restore(session.checkpoint())
        session.execute("a[7] = -1", check=True)
        report = session.restore(session.checkpoint())
        assert [item.outcome for item in report if item.name in ("a", "view")] == ["exact"] * 2
        shares = "(float(view[2]), a.__setitem__(8, -2), float(view[3]))"
        assert session.execute(shares, check=True).value == (-1.0, None, -2.0)
