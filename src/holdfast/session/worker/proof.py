"""Proving records: some objects can be dumped but not loaded, and only loading them tells.

It happens in a forked child, so that nothing the loading does reaches the session.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType
from typing import NamedTuple

from holdfast.session.worker.aside import ask
from holdfast.session.worker.codes import Place
from holdfast.session.worker.reasons import reason_of
from holdfast.session.worker.surroundings import Surroundings, memory
from holdfast.session.worker.threads import alone
from holdfast.session.worker.unpickler import RecordUnpickler

DEADLINE = 20.0
PATIENCE = 2.0  # seconds for one pickle, where threads may have left a lock behind
_BEGUN = "loading it did not come to an end"
_NOT_READ = "it could not be read back to see whether it loads"


class Living:
    """The session as it is, for records that refer to it."""

    def __init__(self, around: Surroundings, objects: Mapping[str, object]) -> None:
        self.namespace = around.namespace
        self.secrets: Mapping[str, str | bytes] = {}
        self.lost: dict[str, str] = {}
        self._around = around
        self._objects = objects

    def definition(self, label: str) -> object:
        return self._around.objects[label]

    def code(self, place: Place) -> CodeType:
        return self._around.codes.find(place)

    def shared(self, label: str) -> object:
        block = self._around.values.get(label)
        return self._objects[label] if block is None else block.values()

    def memory(self, label: str) -> memoryview:
        return memory(self._around.buffers[label])

    def lay(self, label: str, array: object) -> bool:
        """There is nothing to be mapped: the memory is here."""
        return False

    def made_of(self, array: object, label: str) -> None:
        """Nothing is kept of what is made here."""


# A pickle, the labels of the memory that it takes, and whether it was laid flat.
Proof = tuple[bytes, tuple[str, ...], bool]


class Proofs(NamedTuple):
    """By number, the pickles that cannot be loaded, and those of which nobody knows; and why."""

    failed: dict[int, str]
    unknown: dict[int, str]


def prove(records: Sequence[Proof], session: Living, known: Iterable[str] = ()) -> Proofs:
    """Load the pickles in forked children, one child after the other: one that ends over a pickle
    leaves those behind it to the next."""
    proofs = Proofs({}, {})
    known = [*known]
    left = [*range(len(records))]
    end = time.monotonic() + DEADLINE
    # A child of a process with threads may wait for ever for a lock that one of them had.
    patience = None if alone() else PATIENCE
    while left and (seconds := end - time.monotonic()) > 0:
        some = [(index, records[index]) for index in left]
        try:
            said = ask(lambda write: _load_all(some, session, write, known), seconds, patience)  # noqa: B023
        except OSError as error:
            proofs.unknown.update(dict.fromkeys(left, f"{_NOT_READ}: {error.strerror}"))
            return proofs
        begun = None
        for line in said[: said.rfind(b"\n") + 1].splitlines():
            index, reason = json.loads(line)
            begun = index if reason == _BEGUN else None
            if reason and begun is None:
                proofs.failed[index] = reason
            left = left if begun is not None else [each for each in left if each != index]
        if begun is None:
            break  # it has come to the end of them, or to none
        left.remove(begun)
        if patience is None:
            proofs.failed[begun] = _BEGUN
        else:
            proofs.unknown[begun] = f"{_NOT_READ} while other threads run"
    proofs.unknown.update(dict.fromkeys(left, f"{_NOT_READ}, for want of time"))
    return proofs


def _load_all(
    records: Sequence[tuple[int, Proof]], session: Living, write: int, known: Iterable[str]
) -> None:
    made: list[object] = []
    for index, (data, buffers, flat) in records:
        os.write(write, _line(index, _BEGUN))
        try:
            values = RecordUnpickler(data, session, True, buffers).values(flat)
            made.append(values)  # a generator, or a file, that is let go of does something then
        except BaseException as error:  # noqa: BLE001  # user code; the parent reports it
            os.write(write, _line(index, reason_of(error, known)))
        else:
            os.write(write, _line(index, ""))


def _line(index: int, reason: str) -> bytes:
    return json.dumps([index, reason]).encode() + b"\n"
