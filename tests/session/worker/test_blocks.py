"""Blocks of texts: kept in records of their own, and sent again only when they are others."""
# ruff: noqa: E501  # cells to run

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.session.noted import Noted
from tests.store.parts.test_pagewriter import colliding_pages
from xxhash import xxh3_128_hexdigest

from holdfast import sync
from holdfast.session.worker.blocks import Blocks, Sent
from holdfast.session.worker.kinds.arrays import objects
from holdfast.session.worker.labels import Labels
from holdfast.store import Store, open_store

SETUP = """
import gc
import numpy as np
import pandas as pd
count = 40_000
df = pd.DataFrame({'x': np.arange(count) * 0.5})
df['name'] = pd.Series(np.array([f'user number {i}' for i in range(count)], dtype=object), dtype=object)
df['kind'] = pd.Series(np.array([['short', 'long', None, np.nan][i % 4] for i in range(count)], dtype=object), dtype=object)
df['text'] = [f'text {i}' for i in range(count)]
df['own'] = pd.array([f'own {i}' for i in range(count)], dtype=pd.StringDtype('python'))
df['some'] = pd.Categorical([f'category {i % 9000}' for i in range(count)])
grid = np.asfortranarray(np.array([f'cell {i}' for i in range(count)], dtype=object).reshape(200, 200))
odd = np.array(['\\ud800', b'bytes', 2**90, -0.0, float('nan'), True, None, 1j] * 5000 + [f'{i} end' for i in range(9000)], dtype=object)
"""
LOOK = """
def told(a):
    return [(type(each).__name__, repr(each)) for each in a.ravel(order='K')]
seen = (told(df['name'].to_numpy()), told(df['kind'].to_numpy()), list(df['text']), list(df['own']), list(df['some']),
        told(grid), grid.flags.f_contiguous, grid.shape, told(odd), [str(each) for each in df.dtypes],
        df.kind.iloc[0] is df.kind.iloc[4])
import hashlib, pickle
hashlib.sha256(repr(seen).encode('utf-8', 'surrogatepass')).hexdigest()
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def session(store: Store) -> Iterator[sync.Session]:
    made = sync.Session("texts", store=store)
    made.start()
    try:
        made.execute(SETUP, check=True)
        yield made
    finally:
        made.shutdown()


def test_texts_come_back_and_are_not_sent_again(session: sync.Session, store: Store) -> None:
    first = session.checkpoint().checkpoint
    session.execute("df['new'] = df['x'] * 2", check=True)
    before = session.execute(LOOK, check=True).value
    second = session.checkpoint()
    size = sum(part.size for part in store.show(second.checkpoint).parts)
    assert size > 3_000_000
    assert abs(second.size_bytes - size) < 100_000  # what is kept counts, too
    session.shutdown()
    store.delete(first)
    store.prune()
    with sync.Session.resume("texts", store=store) as again:
        assert again.execute(LOOK, check=True).value == before
        # The worker that brought them back knows nothing yet; what it sends is there already.
        assert again.checkpoint().checkpoint.stored_bytes < 600_000
        again.execute("df.loc[7, 'name'] = 'somebody else'", check=True)
        changed = again.checkpoint()
        again.execute("df = odd = grid = None", check=True)
        again.checkpoint()
        again.restore(changed)
        assert again.execute("df['name'].iloc[7]", check=True).value == "somebody else"
    assert store.verify(deep=True).ok


def test_the_same_values_are_the_same_block() -> None:
    long = "a longer text, so that they are worth a record of their own"
    texts = np.array([f"{long} {i}" for i in range(9000)], dtype=object)
    blocks = Blocks()
    blocks.survey([texts])
    block = blocks.of(texts)
    assert blocks.of(texts.copy()) is block
    data = block.data(Labels())
    assert data is not None
    assert objects(*pickle.loads(data), texts.shape, "C").tolist() == texts.tolist()
    blocks.captured(3, [Sent(block.identity, block.label, len(data))], 0)
    assert block.sent == {3}
    kept, texts[70] = texts[70], "another"
    assert blocks.of(texts) is not block
    texts[70] = kept
    assert blocks.of(texts) is block
    texts[70] = "".join([*kept])  # equal, but not the same: nobody compares values
    other = blocks.of(texts)
    assert other is not block
    for _ in range(3):
        blocks.survey([])
    assert blocks.of(texts) is not other  # nothing is held for ever


def test_a_full_capture_looks_at_all_values_and_takes_nothing_from_earlier_ones() -> None:
    long = "a longer text, so that they are worth a record of their own"
    texts = np.array([f"{long} {i}" for i in range(9000)], dtype=object)
    blocks, labels = Blocks(), Labels()
    first = blocks.of(texts)
    assert first.data(labels) is not None
    blocks.captured(3, [Sent(first.identity, first.label, first.size)], 0)
    blocks.anew()
    second = blocks.of(texts)
    assert second is not first
    assert not second.sent
    assert second.data(labels) == first.data(labels)
    blocks.captured(4, [Sent(second.identity, second.label, second.size)], 0)
    assert second.sent == {3, 4}  # both have the record that its label names
    blocks.anew()
    blocks.forget()
    third = blocks.of(texts)
    assert third.data(labels) is not None
    blocks.captured(5, [Sent(third.identity, third.label, third.size)], 0)
    assert third.sent == {5}  # what came before is of another namespace


def test_a_full_checkpoint_in_between_sends_no_text_twice(
    session: sync.Session, store: Store
) -> None:
    """One that stays in memory is full; the next on disk goes on from the last on disk."""
    past = Noted.of(session, store)
    session.checkpoint()
    before = session.execute(LOOK, check=True).value
    session.execute("del seen", check=True)
    session.checkpoint(save_to_disk=False)
    assert past.parts > 3_000_000
    made = session.checkpoint()
    assert past.parts < 1_500_000
    session.execute("df = odd = grid = None", check=True)
    session.restore(made)
    assert session.execute(LOOK, check=True).value == before


def test_what_a_copy_met_is_not_taken_for_what_lies_at_its_address_here() -> None:
    """A copy and the session that went on find the same free places for what they make."""
    long = "a longer text, so that they are worth a record of their own"
    texts = np.array([f"{long} {i}" for i in range(9000)], dtype=object)
    others = texts[::-1].copy()
    in_the_copy = Blocks().of(texts)
    told = Sent(in_the_copy.identity, in_the_copy.label, 1)
    del in_the_copy
    blocks = Blocks()
    here = blocks.of(others)
    blocks.captured(3, [told], 0)
    assert not here.sent


# Each capture says where it is made, and takes so long that the next one is made in a copy.
SLOW = """
import os, threading, time
class Slow:
    log = ''
    def __reduce__(self):
        time.sleep(0.1)
        with open(Slow.log, 'a') as file:
            print(os.getpid() == worker, file=file)
        return Slow, ()
def wait(gate):
    while not os.path.exists(gate):
        time.sleep(0.01)
slow, worker = Slow(), os.getpid()
texts = [np.array([f'{i} is the number of this text' for i in range(20_000)], dtype=object)]
twins = {'each': [np.array([f'{i} is a number' for i in range(20_000)], dtype=object) for _ in 'ab']}
"""


def test_a_block_is_called_the_same_wherever_it_is_met_first(store: Store, tmp_path: Path) -> None:
    """Arrays inside of others are met by the capture, which may happen in a copy."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    with sync.Session("slow", store=store) as session:
        session.execute(f"import numpy as np\n{SLOW}\nSlow.log = {str(log)!r}", check=True)
        made = [session.checkpoint().checkpoint for _ in range(3)]
        session.execute(f"threading.Thread(target=wait, args=({str(gate)!r},)).start()", check=True)
        made += [session.checkpoint().checkpoint for _ in range(2)]  # a copy has no threads
        gate.touch()
        session.execute("while threading.active_count() > 1: time.sleep(0.01)", check=True)
        made += [session.checkpoint().checkpoint for _ in range(2)]
        session.execute("texts[0] = texts[0][::-1].copy()", check=True)
        session.restore(session.checkpoint())
        first = session.execute("texts[0][0], *twins['each'][1][[0, -1]]", check=True).value
    assert first == ("19999 is the number of this text", "0 is a number", "19999 is a number")
    places = [each for each, _ in itertools.groupby(log.read_text().split())]
    assert places == ["True", "False", "True", "False"]  # in place, in copies, and so again
    held = [
        {part.name: part.root for part in store.show(each).parts if part.name != "environment"}
        for each in made
    ]
    assert all(each == held[0] for each in held)
    assert sum(name.startswith("namespace/shared.") for name in held[0]) == 2  # of equal ones, one


def test_an_address_that_was_used_again_is_no_reason_to_keep_a_text(session: sync.Session) -> None:
    """A text that goes makes room for the next one, often at the very same place."""
    session.execute(
        "texts = np.array([f'{i:08d}' for i in range(20_000)], dtype=object)", check=True
    )
    for step in range(3):
        session.checkpoint()
        session.execute(
            f"for i in range(0, 20_000, 7):\n    texts[i] = None\n    texts[i] = f'{{i + {step + 1}:08d}}'",
            check=True,
        )
        made = session.checkpoint()
        session.execute("texts = None\ngc.collect()", check=True)
        session.restore(made)
        asked = f"all(texts[i] == f'{{i + {step + 1}:08d}}' for i in range(0, 20_000, 7))"
        assert session.execute(asked, check=True).value is True


def test_what_is_gone_and_comes_again_is_sent_again(session: sync.Session) -> None:
    session.checkpoint()
    session.execute(
        "aside = [df, grid, odd]\ndel df, grid, odd\nhidden = lambda: aside", check=True
    )
    session.checkpoint()
    session.execute("df, grid, odd = aside\ndel aside, hidden", check=True)
    before = session.execute(LOOK, check=True).value
    made = session.checkpoint()
    session.execute("df = grid = odd = None", check=True)
    session.restore(made)
    assert session.execute(LOOK, check=True).value == before


def test_a_checkpoint_that_failed_is_not_built_upon(session: sync.Session) -> None:
    session.checkpoint()
    session.execute("df['name'] = df['name'].str.upper().astype(object)", check=True)
    session.checkpoint()
    session._history._base = min(session._history._bases)  # as if it had not arrived
    before = session.execute(LOOK, check=True).value
    made = session.checkpoint()
    session.execute("df = None", check=True)
    session.restore(made)
    assert session.execute(LOOK, check=True).value == before


def test_a_secret_among_many_texts_is_left_out(session: sync.Session, store: Store) -> None:
    key = "AKIA" + "IOSFODNN7" + "ABCDEFG"
    session.execute(f"df.loc[5, 'name'] = 'AKIA' + {key[4:]!r}", check=True)
    made = session.checkpoint().checkpoint
    for part in store.show(made).parts:
        assert key.encode() not in store.read(made, part.name)


def test_what_can_change_is_looked_at_again(session: sync.Session) -> None:
    session.execute(
        "mixed = np.array([f'{i} text' for i in range(20_000)], dtype=object)\nmixed[9] = inner = []",
        check=True,
    )
    for step in range(3):
        session.execute(f"mixed[9].append({step})", check=True)
        made = session.checkpoint()
    session.execute("mixed = inner = None", check=True)
    session.restore(made)
    assert session.execute("mixed[9], mixed[9] is inner", check=True).value == ([0, 1, 2], True)


def test_what_pandas_copies_for_a_pickle_is_the_same_each_time(session: sync.Session) -> None:
    """Of some rows of a frame, and of a column of texts in several pieces, it makes copies."""
    session.execute(
        "wide = pd.DataFrame(np.arange(400_000.0).reshape(-1, 4), columns=list('abcd'))\n"
        "rows, twin = wide.iloc[:50_000], wide.iloc[:50_000]\n"
        "long = pd.DataFrame({'t': [f'{i} a text of some length' for i in range(50_000)]})\n"
        "long = pd.concat([long, long])",
        check=True,
    )
    session.checkpoint()
    made = session.checkpoint()
    assert made.checkpoint.stored_bytes < 100_000
    session.execute("wide = rows = twin = long = None", check=True)
    session.restore(made)
    asked = "rows.equals(twin), len(long), long.iloc[-1, 0], float(rows.iloc[7, 1]), float(twin.iloc[7, 1])"
    told = session.execute(asked, check=True).value
    assert told == (True, 100_000, "49999 a text of some length", 29.0, 29.0)
    # pandas 3 writes to copies of the rows, pandas 2 to the frame that both are views of.
    cells = "float(rows.iloc[7, 1]), float(twin.iloc[7, 1])"
    session.execute("rows.iloc[7, 1] = -1.0\ntwin.iloc[7, 1] = -2.0", check=True)
    written = session.execute(cells, check=True).value
    made = session.checkpoint()
    session.execute("wide = rows = twin = long = None", check=True)
    session.restore(made)
    assert session.execute(cells, check=True).value == written


def test_copies_whose_hashes_were_made_to_be_equal_stay_two(session: sync.Session) -> None:
    """Their content gives them their labels: an unseeded hash would let one replace the other."""
    pages = colliding_pages()
    session.execute(
        "def of(page):\n"
        "    wide = pd.DataFrame({name: np.zeros(100_000, 'i8') for name in 'abc'}).copy()\n"
        "    wide._mgr.blocks[0].values[0, :512] = np.frombuffer(page, 'i8')\n"
        "    return wide.iloc[:90_000]\n"
        f"one, two = of({pages[0]!r}), of({pages[1]!r})",
        check=True,
    )
    made = session.checkpoint()
    session.execute("one = two = None", check=True)
    session.restore(made)
    found = session.execute(
        "[each['a'].to_numpy()[:512].tobytes() for each in (one, two)]", check=True
    ).value
    assert found == list(pages)


def test_labels_of_content_cannot_be_foreseen() -> None:
    labels = Labels()
    first, second = colliding_pages()
    assert xxh3_128_hexdigest(first) == xxh3_128_hexdigest(second)
    assert labels.content(first) != labels.content(second)
    assert labels.content(first) == labels.content(bytes(bytearray(first)))


@pytest.mark.parametrize(
    "code",
    [
        "np.arange(500_000)",
        "np.asfortranarray(np.ones((600, 500)))",
        "np.arange(10)",
        "np.array(['2000-01-01'] * 200_000, dtype='M8[s]')",
        "np.array([f'{i} text' for i in range(20_000)], dtype=object)",
        "np.array([[1], 'a', None], dtype=object)",
        "np.zeros(5000, dtype=[('a', 'i4'), ('b', 'f8')])",
    ],
)
def test_what_nobody_may_write_to_stays_so(session: sync.Session, code: str) -> None:
    session.execute(f"fixed = {code}\nfree = fixed.copy()\nfixed.setflags(write=False)", check=True)
    session.checkpoint()
    made = session.checkpoint()
    session.execute("fixed = free = None", check=True)
    session.restore(made)
    asked = "fixed.flags.writeable, free.flags.writeable, fixed.flags.owndata or fixed.base is not None, bool(np.all(fixed == free))"
    assert session.execute(asked, check=True).value == (False, True, True, True)
    session.execute("fixed.setflags(write=True)\nfixed[0] = fixed[1]", check=True)
    made = session.checkpoint()
    session.execute("fixed = None", check=True)
    session.restore(made)
    assert session.execute("fixed.flags.writeable", check=True).value is True
