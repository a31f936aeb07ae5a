"""Increments: what a checkpoint takes over from the last one is what it would have saved anew."""
# ruff: noqa: E501  # a table of changes

from __future__ import annotations

import ast
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.session import noted
from tests.session.noted import Noted, parts
from tests.strangers import NOBODY, folder_of_nobody, run_as_nobody

from holdfast import sync
from holdfast.session.worker import earlier
from holdfast.store import open_store
from holdfast.sync.portal import portal

HELD = (
    "a", "m", "f", "t", "v", "whole", "raw", "over", "spare", "text", "arrow", "df", "ser", "o", "few", "huge", "lent",
    "tensor", "hoard", "q", "n", "pair", "words", "rec", "masked", "big",
)  # fmt: skip
SETUP = """
import ctypes, gc, hashlib, os
import numpy as np
import pandas as pd
import pyarrow as pa
dice = np.random.default_rng(7)
a = dice.standard_normal(400_000)
m = dice.integers(0, 1000, (600, 700))
f = np.asfortranarray(dice.standard_normal((500, 600)))
t = np.arange('2000-01-01', '2900-01-01', dtype='M8[h]')[:300_000].copy()
v = a[1000:200_000:3]
whole = a[:]
raw = bytearray(2_000_000)
over = np.frombuffer(raw, dtype=np.uint8)
spare = bytearray(dice.bytes(1_200_000))
text = bytes(1_500_000)
arrow = pa.array(dice.standard_normal(200_000))
df = pd.DataFrame({'x': dice.standard_normal(70_000), 'y': dice.standard_normal(70_000),
                   'n': np.arange(70_000), 's': [f's{i % 977}' for i in range(70_000)],
                   'c': pd.Categorical((['u', 'v', 'w'] * 25_000)[:70_000])})
o = np.array([f'text {i}' for i in range(20_000)], dtype=object)
few = np.array([['red', 'green', None, 1.5][i % 4] for i in range(30_000)], dtype=object)
df['o'] = pd.Series(np.array([f'{i} an object' for i in range(70_000)], dtype=object), dtype=object)
huge = np.ones(1_200_000)  # numpy asks for huge pages from 4 MB on
lent = np.frombuffer(pa.allocate_buffer(2_000_000), dtype=np.uint8)
lent[:] = 7
try:
    import torch
except ImportError:
    tensor = None
else:
    tensor = torch.arange(400_000, dtype=torch.float64)
hoard = {}
q = dice.integers(0, 9, (500, 400))
n, pair, words = 1, (1, ('x', 1.5)), ['one']
rec = np.zeros(150_000, dtype=[('id', 'i4'), ('at', 'f8'), ('tag', 'S3')])
masked = np.ma.masked_array(dice.standard_normal(200_000), mask=dice.random(200_000) < 0.1)
rows = 540_000
big = pd.DataFrame({'f': dice.standard_normal(rows), 'g': dice.standard_normal(rows).astype('f4'),
                    'c': pd.Categorical.from_codes(dice.integers(0, 200, rows), [f'kind {i}' for i in range(200)]),
                    'i': pd.array(dice.integers(0, 99, rows), dtype='Int64')})
big.loc[5:9, 'i'] = pd.NA
ser = pd.Series(dice.standard_normal(150_000))

def pieces(value):
    if isinstance(value, np.ma.MaskedArray):
        yield from (*pieces(value.data), *pieces(np.ma.getmaskarray(value)))
    elif isinstance(value, np.ndarray):
        yield str((value.dtype, value.shape, value.flags.writeable)).encode()
        yield value.tobytes() if not value.dtype.hasobject else repr(value.tolist()).encode('utf-8', 'surrogatepass')
    elif isinstance(value, pd.Series):
        yield from pieces(value.to_frame(str(value.name)))
    elif isinstance(value, pd.DataFrame):
        for name, column in [('', value.index), *value.items()]:
            held = column.array
            yield f'{name} {column.dtype}'.encode()
            if isinstance(held, pd.Categorical):
                yield from (*pieces(held.codes), repr((list(held.categories), held.ordered)).encode())
            elif str(column.dtype) == 'Int64':
                yield from (*pieces(held._data[~held._mask]), *pieces(held._mask))
            else:
                yield from pieces(column.to_numpy())
    elif isinstance(value, (dict, list, tuple)):
        for each in value.items() if isinstance(value, dict) else value:
            yield from pieces(each)
    elif isinstance(value, pa.Array):
        yield from pieces(value.to_numpy(zero_copy_only=False))
    elif type(value).__name__ == 'Tensor':
        yield from pieces(value.numpy())
    else:
        yield bytes(value) if isinstance(value, (bytes, bytearray)) else repr(value).encode()

def digest():
    # Of all values, and of which share their memory.
    found = hashlib.sha256()
    held = [globals()[name] for name in HELD]
    for each in pieces([held, np.shares_memory(a, v), whole.base is a, np.shares_memory(np.frombuffer(raw, 'u1'), over)]):
        found.update(each)
    return found.hexdigest()
"""

RESTORE = "# all of it is mapped from the last checkpoint"

# Every way that numpy and pandas offer to change what they hold; `i` is a number.
CHANGES = (
    "a[i % 1000 : 300_000 + i % 1000] += 1",
    "a[i % a.size] = i",
    "a[i % 7 :: 97] = i",
    "np.multiply(a, 1.5, out=a)",
    "np.add.at(a, np.arange(i % 100, 1000), 1)",
    "np.put(a, [i % 1000, 5], [1, 2])",
    "np.copyto(a, -a, where=a > 1)",
    "np.copyto(huge[i % 1000 : 5000], i)",
    "np.putmask(m, m > 500, [i % 900, 2])",
    "np.place(f, f > 0.5, [float(i), 0.75])",
    "np.put_along_axis(m, m.argmax(axis=1)[:, None], i % 900, axis=1)",
    "with np.nditer(huge[i % 1000 : 9000], op_flags=[['readwrite']]) as every:\n    for one in every: one[...] = 2 * one\ndel every, one",
    "with np.nditer(f, flags=['external_loop', 'buffered'], op_flags=[['readwrite']]) as every:\n    for some in every: some += i\ndel every, some",
    "np.lib.stride_tricks.as_strided(huge, (100, 3), (800, 8))[:] = i",
    "np.nan_to_num(rec['at'], copy=False, nan=i)",
    "np.cumsum(huge, out=huge)",
    "np.take(huge, np.arange(1000), out=huge[5000:6000])",
    "dice.random(out=huge)",
    "dice.permuted(m, axis=1, out=m)",
    "np.clip(m, 5, 900, out=m)",
    "np.bitwise_xor(m, i, out=m, where=m > 700)",
    "np.subtract.at(m, (slice(3, 9), [1, 1, 2]), i)",
    "m.setfield(i % 7, 'i4', 4)",
    "np.matmul(f[:9, :9].copy(), f[:9, :9].copy(), out=f[:9, :9])",
    "a.sort()",
    "a.partition(i % 1000)",
    "dice.shuffle(a)",
    "a.fill(i)",
    "m.byteswap(inplace=True)",
    "m.T[i % 700] = i",
    "m.flat[i % 1000 : 5000] = 3",
    "np.fill_diagonal(m, i)",
    "m[m > 500] = i % 500",
    "f[i % 500] *= 2",
    "f.real[3:5] = i",
    "np.linalg.qr(f[:20, :20]); f[:, i % 600] = 0",
    "f.setflags(write=False)\nf.setflags(write=True)\nf[0, 0] = i",
    "t[i % 1000] += np.timedelta64(i, 'h')",
    "t.view('i8')[::1000] += i",
    "v[:] = i",
    "whole[-1] = i",
    "memoryview(a).cast('B')[i % 1000 : i % 1000 + 3] = b'abc'",
    "ctypes.memmove(a.ctypes.data + i % 5000, b'ABCDEFGH', 8)",
    "ctypes.memset(m.ctypes.data, i % 7, m.nbytes)",
    "with open(os.__file__, 'rb', buffering=0) as file: _ = file.readinto(memoryview(a).cast('B')[i % 1000 : i % 1000 + 4096])",
    "with open(os.__file__, 'rb') as file: _ = file.readinto(memoryview(raw)[i % 1000 : i % 1000 + 9000])",
    "rec['at'][i % 1000 :: 999] = i",
    "rec[i % 1000] = (i, 0.5, b'abc')",
    "rec.sort(order='at')",
    "rec = rec[['id', 'at', 'tag']].copy()",
    "masked[i % 1000 : 5000] = np.ma.masked",
    "masked.data[i % 1000 :: 7001] += 1",
    "masked.mask[i % 1000] = not masked.mask[i % 1000]\nmasked[i % 999] = i",
    "masked = np.ma.masked_where(masked.data > 2, masked)",
    "big.loc[i % 1000, 'f'] = i",
    "big['f'] *= 1.5",
    "big.loc[i % 1000, 'c'] = f'kind {i % 200}'",
    "big['c'] = big['c'].cat.reorder_categories(list(big['c'].cat.categories)[::-1])",
    "big['c']._values._codes[i % 1000 :: 50_021] = i % 200",
    "big.loc[i % 1000, 'i'] = pd.NA if i % 2 else i",
    "big['i'] = big['i'] + 1",
    "big['i']._values._mask[i % 1000 :: 50_021] = True",
    "big.iloc[i % 1000 : 2000, 1] = np.float32(i % 7)",
    "raw[i % 100_000 : i % 100_000 + 4] = b'four'",
    "over[i % 1000 :: 5003] = i % 256",
    "r, w = os.pipe()\n_ = os.write(w, b'abc')\n_ = os.readv(r, [memoryview(raw)[5000:5003]])",
    "text = text[:i % 1000] + bytes([i % 256]) + text[i % 1000 + 1 :]",
    "del over\nraw = bytearray(raw) + b'grown'\nover = np.frombuffer(raw, dtype=np.uint8)",
    "del over\nraw += bytes([i % 256]) * (i % 5000 + 1)\nover = np.frombuffer(raw, dtype=np.uint8)",
    "del over\nraw.extend(b'more' * (i % 3000 + 1))\nover = np.frombuffer(raw, dtype=np.uint8)",
    "del over\ndel raw[: i % 1000 + 1]\nover = np.frombuffer(raw, dtype=np.uint8)",
    "del over\nraw[:0] = b'in front' * (i % 100 + 1)\nover = np.frombuffer(raw, dtype=np.uint8)",
    "del over\nraw.clear()\nraw += bytes([i % 256]) * 2_000_000\nover = np.frombuffer(raw, dtype=np.uint8)",
    "spare[i % 1000 : i % 1000 + 4] = b'four'",
    "spare += b'x' * (i % 5000 + 1)",
    "del spare[: len(spare) // 3]",
    "spare.extend(dice.bytes(1_000_000 + i % 1000))",
    "spare.reverse()",
    "spare.clear()",
    "spare += dice.bytes(1_200_000)",
    "del spare[-(i % 1000 + 1) :]\nspare *= 2",
    "t.__setstate__((1, t.shape, t.dtype, False, t.tobytes()[::-1]))",
    "del v, whole\na.resize(a.size + i % 5000, refcheck=False)\nv, whole = a[9:200_000:3], a[:]",
    "del v, whole\na.resize(a.size - i % 500, refcheck=False)\nv, whole = a[9:200_000:3], a[:]",
    "v = whole = None\na = a.copy()\nv, whole = a[1000:200_000:3], a[:]",
    "size = m.shape\nm = None\ngc.collect()\nm = np.full(size, i)",
    "m, hoard[i % 3] = m.copy(), m",
    "hoard.clear()",
    "hoard['deep'] = [{'inside': (dice.standard_normal(200_000),)}]",
    "for each in hoard.get('deep', ()): each['inside'][0][i % 1000] = i",
    "arrow = pa.concat_arrays([arrow, arrow.slice(i % 100, 100)])",
    "pid = os.fork()\nif pid == 0:\n    a[:] = 0\n    os._exit(0)\n_ = os.waitpid(pid, 0)\na[3] = i",
    "r, w = os.pipe()\npid = os.fork()\nif pid == 0:\n    _ = os.read(r, 1)\n    os._exit(0)\na[i % 1000] = huge[7] = i\n_ = os.write(w, b'x')\n_ = os.waitpid(pid, 0)\nos.close(r)\nos.close(w)",
    "huge[i % huge.size] = i",
    "huge[i % 100 :: 1000] += 1",
    "huge = huge * 2",
    "del huge\nhuge = np.full(1_200_000, float(i))",
    "lent[i % 1000 :: 5003] = i % 256",
    "lent[i % 1000] += 1\nhoard['lent'] = lent[10:]",
    "lent = np.frombuffer(pa.py_buffer(bytearray(lent)), dtype=np.uint8)",
    "tensor is not None and tensor.mul_(1.5)",
    "if tensor is not None: tensor[i % 1000] = i",
    "if tensor is not None: tensor.numpy()[i % 50 :: 100] += 1",
    RESTORE,
    "q = np.ascontiguousarray(q)\nq.shape = q.shape[::-1]",
    "q.dtype = 'f8' if q.dtype == 'i8' else 'i8'",
    "q = np.ascontiguousarray(q.T)",
    "q = np.asfortranarray(q)",
    "q.setflags(write=False)\nq = q.copy()",
    "hoard['twin'] = q",
    "q.setflags(write=not q.flags.writeable)\nq = q if q.flags.writeable or i % 2 else q.copy()",
    "m.flat[i % 50 :: 100] += 1",
    "a = a.copy()\nv, whole = a[1000:200_000:3], a[:]\na.view('u4')[i % 9 :: 61] ^= 5",
    "o[i % o.size] = f'another {i}'",
    "o[i % 50] = None\ngc.collect()\no[i % 50] = f'text {i % 9}'",
    "o[3] = [i]",
    "o[3] = o[3] + [i] if type(o[3]) is list else i\ntype(o[3]) is list and o[3].append(7)",
    "o[:9] = float('nan'), None, True, 2**80, 1j, b'bytes', '\\ud800', -0.0, ''",
    "o[[1, 2]] = o[[2, 1]]",
    "ctypes.memmove(o.ctypes.data + 80, o.ctypes.data, 0)\no = o[::-1].copy()",
    "o[:] = [f'text {k}' for k in range(i % 100, i % 100 + o.size)]",
    "o = np.sort(np.array([str(each) for each in o], dtype=object))",
    "o.setflags(write=False)\no = o.copy()",
    "o = np.asfortranarray(o.reshape(200, -1)).reshape(-1)",
    "few.flat[i % few.size] = few.flat[i % 7]",
    "few = few.reshape(100, -1) if few.ndim == 1 else few.reshape(-1)",
    "np.put(few, [5, 6, 7], ['red', f'pale {i}', None])",
    "hoard['texts'] = {'few': few, 'more': o[::2], 'same': few}",
    "df.loc[i % 1000, 'o'] = f'changed {i}'",
    "df['o'] = df['o'].str.lower()",
    "df.loc[i % 900, 'o'] = None",
    "df['o'] = df['o'].astype('category' if i % 2 else object)\ndf['o'] = df['o'].astype(object)",
    "df['s'] = df['s'].astype(object if df['s'].dtype != object else 'str')",
    "n = i",
    "n = True if n == 1 else 1",
    "pair = (i, ('x', 1.5))",
    "pair = (i, [words])",
    "words.append(i)",
    "words = [pair, n]",
    "df['x'] = df['x'] * 1.5",
    "df.loc[i % 1000, 'y'] = i",
    "df.iloc[i % 1000 : i % 1000 + 5, 0] = i",
    "df.at[i % 1000, 'n'] = i",
    "df['new' + str(i % 3)] = df['x'] + i",
    "df = df.drop(columns=[c for c in df if c.startswith('new')])",
    "df.sort_values('y', inplace=True, ignore_index=True)",
    "df['c'] = df['c'].cat.rename_categories(lambda name: name + 'x' if len(name) < 9 else name[:1])",
    "df['c'] = df['c'].cat.set_categories(list(df['c'].cat.categories)[::-1])",
    "df.loc[i % 1000, 'c'] = df['c'].cat.categories[i % 3]",
    "df.loc[i % 1000, 's'] = 'another' + str(i)",
    "df['s'] = df['s'].str.upper()",
    "df.mask(df['x'] > 1, inplace=True)\ndf['n'] = np.arange(len(df))",
    "df.fillna({'x': 0.5, 'y': 0.25}, inplace=True)",
    "df = df.astype({'n': 'float64' if df['n'].dtype == 'int64' else 'int64'})",
    "df = pd.concat([df, df.iloc[i % 50 : 100]], ignore_index=True).iloc[:70_000]",
    "df.insert(0, 'first', df['n'] * i) if 'first' not in df else df.pop('first')",
    "df.index = df.index + i % 5",
    "df.update(pd.DataFrame({'x': [0.5, float(i)]}, index=df.index[[i % 1000, 1]]))",
    "df.eval('y = x * 2 + 1', inplace=True)",
    "df.loc[df.index.max() + 1] = df.iloc[i % 1000]",
    "df.insert(1, 'second', i) if 'second' not in df else df.pop('second')",
    "df.drop(index=df.index[i % 1000], inplace=True)\ndf.reset_index(drop=True, inplace=True)",
    "df.rename(columns={'x': 'y', 'y': 'x'}, inplace=True)",
    "df.iloc[[3, 1]] = df.iloc[[1, 3]].to_numpy()",
    "df.ffill(inplace=True)",
    ("if df['c'].dtype != 'category': df['c'] = df['c'].astype('category')\n"  # with pandas 2
    "df['c'] = df['c'].cat.as_unordered() if df['c'].cat.ordered else df['c'].cat.as_ordered()"),
    "df['c'] = df['c'].cat.add_categories(['z']) if df['c'].cat.categories.size < 4 else df['c'].cat.remove_categories(df['c'].cat.categories[-1:])",
    "ser.where(ser > 0, i, inplace=True)",
    "ser.mask(ser > 1, -1.0, inplace=True)",
    "ser.update(pd.Series({5: 1.0, i % 1000: 2.0}))",
    "ser.iloc[i % 1000 :: 5003] = i",
    "ser.sort_values(inplace=True, ignore_index=True)",
    "ser.array[i % 1000] = i",
    "ser.clip(-1, 1, inplace=True)",
    "ser.loc[ser.index.max() + 1] = i",
    "ser.pop(ser.index[i % 1000])",
    "ser.name = f'named {i % 5}'",
)  # fmt: skip


def touched(change: str) -> set[str]:
    """The variables that a change may touch; those that share memory as one."""
    used = {each.id for each in ast.walk(ast.parse(change)) if isinstance(each, ast.Name)}
    return {{"v": "a", "whole": "a", "over": "raw"}.get(name, name) for name in used & set(HELD)}


def side_by_side() -> list[list[str]]:
    """All changes in few steps: of those in one step no two touch the same variable, so none can
    hide that another was missed. What touches one stays in its order."""
    steps: list[list[str]] = []
    next_for = dict.fromkeys(HELD, 0)
    for change in CHANGES:
        if change == RESTORE:
            continue  # touches everything: halfway
        names = touched(change)
        step = max(next_for[name] for name in names)
        next_for.update(dict.fromkeys(names, step + 1))
        if step == len(steps):
            steps.append([])
        steps[step].append(change)
    steps.insert(len(steps) // 2, [RESTORE])
    assert sorted(each for step in steps for each in step) == sorted(CHANGES)
    return steps


class Pair:
    """A session whose every checkpoint is made twice: what changed, and everything."""

    def __init__(self, folder: Path, name: str) -> None:
        self.store = open_store(folder / "store")
        self.session = sync.Session(name, store=self.store)
        self.past = Noted.of(self.session, self.store)
        self.session.start()
        self.session.execute(f"HELD = {HELD!r}\n{SETUP}", check=True)
        self.session.checkpoint()
        self.elsewhere = sync.Session(f"{name}-elsewhere", store=self.store).start()

    def change(self, change: str, number: int) -> None:
        if change == RESTORE:
            before = self.session.execute("digest()", check=True).value
            self.session.restore(self.session.checkpoint())
            assert self.session.execute("digest()", check=True).value == before
        else:
            self.session.execute(f"i = {number}\n{change}", check=True)

    def check(self) -> int:
        """Compare the two; gives how many bytes the first stored."""
        told = self.session.checkpoint().checkpoint
        self.taken_over = 1 - self.past.brought / self.past.memory
        self.past.forget()
        anew = self.session.checkpoint().checkpoint
        assert self.past.brought == self.past.memory
        assert parts(self.store, told) == parts(self.store, anew)
        return told.stored_bytes

    def check_with_a_full_one(self) -> int:
        """Compare with one in a store where nothing came before it."""
        told = self.session.checkpoint().checkpoint
        self.taken_over = 1 - told.stored_bytes / self.past.memory
        with open_store("memory://") as empty:
            past = Noted.of(self.session, empty)
            try:
                anew = self.session.checkpoint().checkpoint
                assert past.brought == past.memory > 20_000_000
                assert not anew.parents
                assert parts(self.store, told) == parts(empty, anew)
            finally:
                self.session._keeper._history = self.past
                past.disown()
        return told.stored_bytes

    def check_elsewhere(self) -> None:
        """Bring the last checkpoint back in another process, and compare the values."""
        last = self.store.resolve(str(self.session.subject))
        portal().run(self.elsewhere._keeper.enter(last, trust=True))
        asked = "digest()"
        found = self.elsewhere.execute(asked, check=True).value
        assert found == self.session.execute(asked, check=True).value


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pair"), "pair")
    yield made
    made.session.shutdown()
    made.elsewhere.shutdown()


mutations = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
steps_of_changes = st.lists(
    st.tuples(st.sampled_from(CHANGES), st.integers(1, 10**6)), min_size=1, max_size=5
)


@mutations
@given(steps=steps_of_changes, restores=st.booleans())
def test_an_increment_is_what_a_full_checkpoint_is(
    pair: Pair, steps: list[tuple[str, int]], restores: bool
) -> None:
    for change, number in steps:
        pair.change(change, number)
    pair.check()
    if restores:
        pair.change(RESTORE, 0)


@settings(mutations, max_examples=4)
@given(steps=steps_of_changes)
def test_an_increment_found_by_hashes_is_what_a_full_checkpoint_is(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, int]]
) -> None:
    """Where the kernel does not tell: pages are compared with the parent's, by the store."""
    monkeypatch.setenv("HOLDFAST_TRACK_MEMORY", "off")
    for change, number in steps:
        pair.change(change, number)
    pair.check_with_a_full_one()


tracking = pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "untracked"])


@tracking
@settings(mutations, max_examples=3)
@given(chain=st.lists(steps_of_changes, min_size=2, max_size=5), restores=st.booleans())
def test_increments_on_increments_lead_to_what_a_full_checkpoint_is(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    tracked: bool,
    chain: list[list[tuple[str, int]]],
    restores: bool,
) -> None:
    """What one of them lacks, none of those that follow brings."""
    monkeypatch.setenv("HOLDFAST_TRACK_MEMORY", "on" if tracked else "off")
    if restores:
        pair.change(RESTORE, 0)
    for steps in chain:
        for change, number in steps:
            pair.change(change, number)
        pair.session.checkpoint()
    pair.check_with_a_full_one()
    pair.check_elsewhere()


def check_steps(
    pair: Pair, steps: list[list[str]], tracked: bool, elsewhere: int
) -> tuple[float, list[str]]:
    """Each step's increment is a full checkpoint, and every so many of them are brought back in
    another process; and most is taken over, or this would show nothing. Gives how much at least."""
    check = pair.check if tracked else pair.check_with_a_full_one
    check()
    taken_over = []
    for number, step in enumerate(steps, 1):
        for change in step:
            pair.change(change, CHANGES.index(change) * 31 + 5)
        check()
        taken_over.append((pair.taken_over, step))
        if number % elsewhere == 0 or number == len(steps):
            pair.check_elsewhere()
    assert statistics.median(share for share, _ in taken_over) > 0.9
    return min(taken_over)


@tracking
@pytest.mark.timeout(300)
def test_every_change(pair: Pair, monkeypatch: pytest.MonkeyPatch, tracked: bool) -> None:
    monkeypatch.setenv("HOLDFAST_TRACK_MEMORY", "on" if tracked else "off")
    check_steps(pair, side_by_side(), tracked, elsewhere=6)


@pytest.mark.soak
@tracking
@pytest.mark.timeout(1800)
def test_every_change_by_itself(pair: Pair, monkeypatch: pytest.MonkeyPatch, tracked: bool) -> None:
    monkeypatch.setenv("HOLDFAST_TRACK_MEMORY", "on" if tracked else "off")
    alone = [[change] for change in CHANGES]
    least, where = check_steps(pair, alone, tracked, elsewhere=1)
    assert least > 0.5, where


def test_what_was_mapped_is_changed_again(pair: Pair) -> None:
    """Restored from a mapping, changed on few pages and here and there, and restored again."""
    for number in (3, 4):
        pair.change(RESTORE, number)
        assert pair.check() < 200_000
        pair.session.execute(
            f"a[{number}] = huge[5] = {number}\nm.flat[{number}::100] += 1\nlent[{number}] = 9",
            check=True,
        )
        assert pair.check() < 400_000
    kept = pair.session.execute("float(a[4]), int(lent[3]), float(huge[5])", check=True).value
    pair.change(RESTORE, 5)
    asked = "float(a[4]), int(lent[3]), float(huge[5])"
    assert pair.session.execute(asked, check=True).value == kept


def test_the_same_without_tracking(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the kernel's help all memory is looked at, and the same is stored."""
    monkeypatch.setenv("HOLDFAST_TRACK_MEMORY", "off")
    pair.check_with_a_full_one()
    pair.session.execute("a[76] = 5\nbig.loc[76, 'f'] = 5", check=True)
    assert pair.check_with_a_full_one() < 200_000
    assert pair.past.brought == pair.past.memory  # nobody told what had changed
    monkeypatch.delenv("HOLDFAST_TRACK_MEMORY")
    pair.check()
    pair.session.execute("a[77] = 5", check=True)
    assert pair.check() < 200_000


OTHERS = """
import mmap, os
import numpy as np
path = {path!r}
shared = np.frombuffer(mmap.mmap(-1, 2 << 20), dtype=np.uint8)
with open(path, 'r+b') as file:
    filed = np.frombuffer(mmap.mmap(file.fileno(), 2 << 20), dtype=np.uint8)
shown = np.memmap(path, mode='c', dtype=np.uint8)
again = np.memmap(path, mode='r+', dtype=np.uint8)
"""


def test_what_another_process_writes_is_in_the_increment(pair: Pair, tmp_path: Path) -> None:
    """No page of ours was written to, so the kernel has nothing to tell."""
    path = tmp_path / "file"
    path.write_bytes(bytes(2 << 20))
    pair.session.execute(OTHERS.format(path=str(path)), check=True)
    pair.check()
    for step in (1, 2):
        pair.session.execute(
            f"pid = os.fork()\nif pid == 0:\n    shared[70_000] = {step}\n    os._exit(0)\n"
            "_ = os.waitpid(pid, 0)",
            check=True,
        )
        with path.open("r+b") as file:
            file.seek(90_000)
            file.write(bytes([step]))
        pair.check()
    seen = "[int(shared[70_000]), int(filed[90_000]), int(shown[90_000]), int(again[90_000])]"
    assert pair.session.execute(seen, check=True).value == [2] * 4
    pair.session.restore(pair.session.checkpoint())
    assert pair.session.execute(seen, check=True).value == [2] * 4
    pair.session.execute("del shared, filed, shown, again", check=True)


def referenced(process: int, address: int) -> int:
    """How many bytes of the memory around an address anybody has read or written since that was
    last cleared."""
    inside = False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first:
            start, end = (int(each, 16) for each in first.split("-"))
            inside = start <= address < end
        elif inside and first == "Referenced:":
            return int(line.split()[1]) * 1024
    raise LookupError(hex(address))


def test_memory_that_no_code_has_written_to_is_not_looked_at() -> None:
    """Neither the worker nor the host reads it: the kernel notes which pages were."""
    asked = "[each[4 << 20 :].__array_interface__['data'][0] for each in (a, b)]"
    with sync.Session("still", store=open_store("memory://")) as session:
        session.execute(
            "import numpy as np\na, b = np.ones(8 << 20), np.ones(8 << 20)\n"
            "words = {f'word {i}': [i] for i in range(1000)}",
            check=True,
        )
        session.checkpoint()
        places = session.execute(asked, check=True).value
        for step in range(1, 4):
            Path(f"/proc/{session.pid}/clear_refs").write_text("1")
            session.execute(f"b[{step} << 18] = words['word 7'][0] = -{step}", check=True)
            made = session.checkpoint()
            looked_at = [referenced(session.pid, each) for each in places]
            assert looked_at[0] == 0
            assert 0 < looked_at[1] <= 64 << 10
        session.execute("a.sum()", check=True)
        assert referenced(session.pid, places[0]) > 60 << 20  # which it would have been
        session.execute("a = b = words = None", check=True)
        session.restore(made)
        kept = "float(a.sum()), [float(b[i << 18]) for i in (1, 2, 3)], words['word 7']"
        assert session.execute(kept, check=True).value == (8 << 20, [-1, -2, -3], [-3])


def test_a_small_change_of_much_memory_stores_little(pair: Pair) -> None:
    pair.check()
    pair.session.execute("a[1234] += 1\nm[5, 6] = 7", check=True)
    assert pair.check() < 200_000


def test_a_tensor_follows_its_array_after_each_restore() -> None:
    pytest.importorskip("torch")
    with sync.Session("twins", store=open_store("memory://")) as session:
        session.execute(
            "import numpy as np, torch\na = np.ones(200_000)\nb = torch.from_numpy(a)", check=True
        )
        session.restore(session.checkpoint())
        for number in (3, 4):
            session.execute(f"a[{number}] = 30\nb[{number + 10}] = 40", check=True)
            made = session.checkpoint()
            session.execute("a = b = None", check=True)
            session.restore(made)
            found = session.execute("float(a.sum()), float(b.sum())", check=True).value
            assert found == (200_000 + 68 * (number - 2),) * 2


def test_what_shared_its_memory_and_came_back_apart_stays_apart() -> None:
    """Both are made of the same memory of the checkpoint. Later ones must not take one for the
    other."""
    with sync.Session("twins", store=open_store("memory://")) as session:
        session.execute(
            "import numpy as np, pyarrow\nlent = pyarrow.allocate_buffer(1_600_000)\n"
            "a = np.frombuffer(lent)\na[:] = 1\nb = np.frombuffer(lent)\nlent = None",
            check=True,
        )
        first = session.checkpoint()
        told = {name: first.report[name].outcome for name in ("a", "b")}
        assert "rebuilt" in told.values()  # that they will be apart is not kept to ourselves
        session.restore(first)
        for number in (3, 4):
            session.execute(f"a[{number}] = 30\nb[{number}] = 40", check=True)
            made = session.checkpoint()
            session.execute("a = b = None", check=True)
            session.restore(made)
            found = session.execute("float(a.sum()), float(b.sum())", check=True).value
            assert found == (200_000 + 29 * (number - 2), 200_000 + 39 * (number - 2))


def test_more_layouts_than_are_remembered() -> None:
    """One of the first arrays is also in a list, which is found when its pickle was forgotten."""
    with sync.Session("many", store=open_store("memory://")) as session:
        session.execute("import numpy as np\na = np.ones(1 << 17)\nheld = [a]", check=True)
        session.checkpoint()
        session.execute(
            f"for i in range({earlier.MOST}): globals()[f'x{{i}}'] = np.zeros(1 << 17)", check=True
        )
        made = session.checkpoint()
        session.execute("a = held = None", check=True)
        session.restore(made)
        assert session.execute("held[0] is a and int(a.sum())", check=True).value == 1 << 17


def test_an_array_that_gets_another_layout_while_it_is_captured() -> None:
    with sync.Session("odd", store=open_store("memory://")) as session:
        session.execute(
            "import numpy as np\na = np.ones(1 << 17)\n"
            "class Odd:\n"
            "    def __init__(self, held): self.held = held\n"
            "    def __reduce__(self):\n"
            "        a.shape = (1 << 7, 1 << 10)\n"
            "        return Odd, (self.held,)\n"
            "odd = Odd(a)",
            check=True,
        )
        made = session.checkpoint()
        session.execute("a[3] = 4\nodd = None", check=True)
        session.restore(made)
        found = session.execute("odd.held is a, a.shape, int(a.sum())", check=True).value
        assert found == (True, (1 << 7, 1 << 10), 1 << 17)


def test_an_array_over_the_memory_of_another_stays_one() -> None:
    """`numpy.asarray(memoryview(a))` and `numpy.frombuffer(a)` hold their array in a memoryview."""
    with sync.Session("over", store=open_store("memory://")) as session:
        session.execute(
            "import numpy as np\na, small = np.ones(200_000), np.ones(50)\n"
            "b, c = np.asarray(memoryview(a)), np.frombuffer(a, 'i8', offset=80)\n"
            "d, e = np.asarray(memoryview(a)[10:99]), np.asarray(memoryview(small))",
            check=True,
        )
        made = session.checkpoint()
        assert {item.outcome for item in made.items if item.name in "abcde"} == {"exact"}
        session.restore(made)
        asked = (
            "a[12] = small[3] = 5\nfloat(b[12]), float(c.view('f8')[2]), float(d[2]), float(e[3])"
        )
        assert session.execute(asked, check=True).value == (5, 5, 5, 5)


AS_NOBODY = """
import json, os, sys
from noted import Noted, parts
from holdfast import sync
from holdfast.session.worker.memory.pagemap import Pagemap
from holdfast.store import open_store

try:
    Pagemap().close()
except OSError:
    tells = False
else:
    tells = True
store = open_store(sys.argv[1])
told = {"user": os.getuid(), "tells": tells, "brought": [], "equal": []}
with sync.Session("own", store=store) as session:
    past = Noted.of(session, store)
    session.execute("import os\\nimport numpy as np\\na = np.arange(5_000_000.0)", check=True)
    told["worker"] = session.execute("os.getuid()", check=True).value
    for step in range(3):
        session.execute(f"a[{step} * 1_000_000] = -{step + 1}", check=True)
        made = session.checkpoint().checkpoint
        told["brought"].append(past.brought)
        told["memory"] = past.memory
        if step:
            past.forget()
            told["equal"].append(parts(store, made) == parts(store, session.checkpoint().checkpoint))
with sync.Session.resume("own", store=store) as again:
    asked = "[float(a[i]) for i in (0, 1_000_000, 2_000_000, 4_999_999)]"
    told["values"] = again.execute(asked, check=True).value
print(json.dumps(told))
"""


def test_no_privileges_are_needed_for_an_increment() -> None:
    """A small change of a large array brings few bytes where the kernel tells whoever asks, and is
    right in any case."""
    with folder_of_nobody("increments") as folder:
        (folder / "noted.py").write_text(Path(noted.__file__).read_text())
        (folder / "program.py").write_text(AS_NOBODY)
        done = run_as_nobody(folder, str(folder / "program.py"), str(folder / "store"))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["user"], told["worker"]) == (NOBODY, NOBODY)
    assert told["equal"] == [True, True]
    assert told["values"] == [-1, -2, -3, 4_999_999]
    assert told["brought"][0] == told["memory"] == 40_000_000
    least = 8 if told["tells"] else told["memory"]
    assert all(least <= each for each in told["brought"][1:])
    if told["tells"]:
        assert max(told["brought"][1:]) <= 64 << 10


@pytest.mark.parametrize("size", [1600, 1_600_000])
@pytest.mark.parametrize(
    "made", ["pa.allocate_buffer({})", "pa.allocate_buffer({}, resizable=True)",
             "pa.py_buffer(bytearray({}))"]
)  # fmt: skip
def test_arrays_over_one_buffer_of_arrows_say_that_they_come_back_apart(
    made: str, size: int
) -> None:
    with sync.Session("lent", store=open_store("memory://")) as session:
        session.execute(
            f"import numpy as np\nimport pyarrow as pa\nlent = {made.format(size)}\n"
            "a, b = np.frombuffer(lent), np.frombuffer(lent)\na[:] = 1\nlent = None",
            check=True,
        )
        first = session.checkpoint()
        assert [first.report[name].outcome for name in ("a", "b")] == ["rebuilt"] * 2
        assert all("with its own" in first.report[name].reason for name in ("a", "b"))
        session.restore(first)
        asked = "a[0] = 5\nfloat(a[0]), float(b[0]), float(b[-1])"
        assert session.execute(asked, check=True).value == (5, 1, 1)


@pytest.mark.parametrize("way", ["in place", "in a copy"])
def test_memory_that_is_made_for_a_record_is_not_taken_for_what_was_there(
    tmp_path: Path, way: str
) -> None:
    """pandas puts the pieces of Arrow's columns together for each pickle: in memory that was free
    a moment ago, and that an earlier capture had its own such copy in."""
    with open_store(str(tmp_path)) as store:
        with sync.Session("work", store=store) as session:
            session.execute("import pandas as pd, time", check=True)
            if way == "in a copy":
                session.execute(
                    "class Slow:\n    def __reduce__(self):\n"
                    "        time.sleep(0.06)\n        return Slow, ()\nslow = Slow()"
                )
            expected = {}
            for step in range(6):
                session.execute(
                    "q = None\n"
                    f"q = pd.Series([f'{{k * {step}:08d}}' for k in range(200_000)], "
                    "dtype='string[pyarrow]')",
                    check=True,
                )
                expected[session.checkpoint().id] = f"{100_000 * step:08d}"
        with sync.Session.resume("work", store=store) as session:
            for made, text in expected.items():
                session.restore(made)
                assert session.execute("q[100_000]", check=True).value == text
