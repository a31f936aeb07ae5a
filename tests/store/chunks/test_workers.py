"""Worker threads, which do not survive a fork."""

from __future__ import annotations

import os
from pathlib import Path

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
