"""What was searched for secrets once is not searched again, whoever did it."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from holdfast.session.worker.innocent import Innocent
from holdfast.session.worker.secrets import suspect

LONG = b"nothing to see here " * 100


@given(st.lists(st.sampled_from([b"password", b"AKIA" + b"A" * 16, b"plain", LONG]), max_size=5))
def test_the_answer_is_the_same_however_often_it_is_asked_for(pieces: list[bytes]) -> None:
    innocent, data = Innocent(), b" ".join(pieces)
    assert [innocent.suspect(data) for _ in range(3)] == [suspect(data)] * 3
    assert innocent.suspect(data + b"!") is suspect(data + b"!")


def test_only_what_has_nothing_in_it_is_known_afterwards() -> None:
    innocent = Innocent()
    assert not innocent.knows(LONG)
    assert not innocent.suspect(LONG)
    assert innocent.knows(LONG)
    assert innocent.suspect(LONG + b"password")
    assert not innocent.knows(LONG + b"password")
    assert not innocent.suspect(b"short")
    assert not innocent.knows(b"short")


def test_what_a_copy_of_the_process_has_found_is_known_to_the_others() -> None:
    innocent = Innocent()
    child = os.fork()
    if child == 0:
        try:
            innocent.suspect(LONG)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert innocent.knows(LONG)
