"""Worker threads: results in order, nothing left behind, and a fork has its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.store import Store, open_store
from holdfast.store.chunks import workers


def test_there_are_some_and_not_too_many() -> None:
    assert 2 <= workers.count() <= 16
    assert workers.compute() is workers.compute()
    pools = (workers.compute(), workers.writing(2), workers.writing(4), workers.background())
    assert len({id(pool) for pool in pools}) == 4


def test_a_forked_child_has_threads_of_its_own(store: Store, save, place: Path, noise) -> None:
    made = save(noise(2_000_000))
    child = os.fork()
    if child == 0:
        try:
            with open_store(place) as again:
                fine = again.read(made, "part") == noise(2_000_000)
                with again.draft("state/child") as draft:
                    draft.put("part", noise(3_000_000, 1), "pages")
                    draft.commit()
            os._exit(0 if fine else 1)
        except BaseException:  # noqa: BLE001 - a forked child must not go on with the tests
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert store.read("state/child", "part") == noise(3_000_000, 1)


def test_results_come_in_order_and_never_far_ahead() -> None:
    begun: list[int] = []

    def task(number: int) -> int:
        begun.append(number)
        return -number

    results = workers.in_order(task, range(50), ahead=4)
    assert next(results) == 0
    assert max(begun) <= 6  # those ahead, and those that have just begun
    assert [*results] == [-number for number in range(1, 50)]
    assert sorted(begun) == [*range(50)]


def test_one_thing_alone_needs_no_thread() -> None:
    here = threading.get_ident()
    assert [*workers.in_order(lambda _: threading.get_ident(), "a", ahead=4)] == [here]
    assert here not in workers.in_order(lambda _: threading.get_ident(), "ab", ahead=4)
    assert [*workers.in_order(str, [], ahead=4)] == []


@pytest.mark.parametrize("culprit", ["source", "task", "taker"])
def test_nothing_is_left_running_when_something_fails(culprit: str) -> None:
    running: set[int] = set()

    def task(number: int) -> int:
        running.add(number)
        time.sleep(0.01)  # long enough to be seen, if it were left behind
        running.discard(number)
        if culprit == "task" and number == 5:
            raise ValueError(culprit)
        return number

    def source() -> Iterator[int]:
        yield from range(8)
        if culprit == "source":
            raise ValueError(culprit)
        yield from range(8, 20)

    def take() -> None:
        with closing(workers.in_order(task, source(), ahead=4)) as results:
            for number in results:
                if culprit == "taker" and number == 5:
                    raise ValueError(culprit)

    with pytest.raises(ValueError, match=culprit):
        take()
    assert not running
