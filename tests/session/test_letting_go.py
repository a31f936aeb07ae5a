"""Neither a checkpoint nor a restore keeps what it has met: memory is free, destructors run and
buffers can be resized when the session lets go of them, without a collector of garbage."""

from __future__ import annotations

import pytest

from holdfast import sync
from holdfast.store import open_store

SETUP = """
import gc, weakref
import numpy as np
gc.disable()
class Own: pass
def refer(value):
    global refer_to
    refer_to = weakref.ref(value)
"""
# What is there, and what of it is let go of afterwards.
HELD = {
    "an object": ("held = Own()", "held"),
    "a large array": ("held = np.ones(300_000)", "held"),
    "an array of an object": ("held = Own(); held.array = np.ones(300_000)", "held.array"),
    "an array over bytes": ("raw = bytearray(2_000_000); held = np.frombuffer(raw, 'u1')", "held"),
    "what two share": ("held = Own(); one, two = [held], [held, 'x']", "held"),
    "what is in a large list": ("held = Own(); many = [held] * 5000", "held"),
    "what is deep": ("held = Own()\nfor _ in range(9_000): held.d = [vars(held).get('d')]",
                     "held"),
    "what cannot be saved": ("held = Own(); held.lock = (n for n in [1])", "held"),
    "what has a secret": ("held = Own(); held.password = 'tops3cret'", "held"),
    "what fails": ("class Own:\n    def __reduce__(self): 1 / 0\nheld = Own()", "held"),
    "a function": ("held = lambda: held", "held"),
    "texts": ("held = Own(); held.o = np.array([f'a text {i}' for i in range(9000)], object)",
              "held"),
}  # fmt: skip
LET_GO = "refer({0})\none = two = many = None\ndel {0}\nrefer_to() is None"


CASES = [
    pytest.param(make, name, then, id=f"{what}, {then}")
    for what, (make, name) in HELD.items()
    for then in ("checkpoint", "restore")
    if (what, then) != ("what fails", "restore")  # nothing comes back
]


@pytest.mark.parametrize(("make", "name", "then"), CASES)
def test_nothing_is_kept(make: str, name: str, then: str) -> None:
    with sync.Session("held", store=open_store("memory://")) as session:
        session.execute(SETUP + make, check=True)
        session.checkpoint()
        if then == "restore":
            session.restore(session.checkpoint())
            session.execute("gc.disable()", check=True)
        else:
            session.execute("pass", check=True)
            session.checkpoint()
        assert session.execute(LET_GO.format(name), check=True).value is True


def test_bytes_can_be_resized_after_a_checkpoint_and_a_restore() -> None:
    with sync.Session("held", store=open_store("memory://")) as session:
        session.execute(
            SETUP + "raw = bytearray(2_000_000)\nover = np.frombuffer(raw, dtype='u1')", check=True
        )
        grow = "del over\nraw.extend(b'more')\nover = np.frombuffer(raw, dtype='u1')\nlen(raw)"
        for number in range(1, 6, 2):
            session.checkpoint()
            assert session.execute(grow, check=True).value == 2_000_000 + 4 * number
            session.restore(session.checkpoint())
            assert session.execute(grow, check=True).value == 2_000_004 + 4 * number
