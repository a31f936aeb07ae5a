"""Long logs are skimmed when they are opened: what they say stays the same, and so do problems."""

from __future__ import annotations

import msgspec
import pytest
from tests.store.log.test_catalogue import A, B, C, commit

from holdfast.model.errors import Corrupt
from holdfast.store.backends.contract import Tail
from holdfast.store.backends.memory import MemoryBackend
from holdfast.store.keys import Key, Keyring
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue
from holdfast.store.log.entries import (
    STILL,
    Bound,
    Drop,
    Entry,
    Label,
    Move,
    Moves,
    encode_entry,
    glimpse,
)
from holdfast.store.log.frames import Frame, signed_message

MANY = 1200


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def entries() -> list[Entry]:
    """Commits of a few subjects, with everything that later entries can say of them."""
    made: list[Entry] = []
    for number in range(1, MANY):
        about = {"subject": f"state/{number % 7}", "time": number * 10, "volumes": name(number % 5)}
        if number % 100 == 50:
            about |= {"verb": "import", "maker": b"m" * 8}
        if number % 100 == 60:
            about |= {"verb": "aside"}
        made.append(commit(name(number), tags={"made": str(number)}, **about))
        if number % 90 == 0:
            made.append(
                Label(
                    id=name(number - 7),
                    set={"late": "1"},
                    unset=("made",),
                    pinned=True,
                    time=number * 10 + 1,
                )
            )
        if number % 130 == 0:
            made.append(Drop(ids=(name(number - 14), name(number - 1)), time=number * 10 + 2))
        if number % 110 == 0:
            before, after = name(number), name(number - 21)
            heads = [
                Bound(subject=f"state/{n % 7}", before=None, after=name(n), fence=0)
                for n in (number - 1, number - 2)
            ]
            made.append(Moves(heads=tuple(heads), verb="restore", time=number * 10 + 2))
            made.append(
                Move(
                    subject=f"state/{number % 7}",
                    before=before,
                    after=after,
                    verb="restore",
                    time=number * 10 + 3,
                )
            )
    return made


class Given(MemoryBackend):
    """A place whose log is as it was given."""

    def __init__(self, headers: list[bytes], keyring: Keyring, step: int) -> None:
        super().__init__("")
        self._step = step
        self._frames = []
        for seq, header in enumerate(headers, 1):
            key_id, mac = keyring.sign(signed_message(seq, header))
            self._frames.append(
                Frame(
                    seq=seq,
                    key_id=key_id,
                    mac=mac,
                    header=header,
                    origin=b"o" * 16,
                    body_offset=seq * 1000,
                    body_size=10,
                )
            )

    def entries(self, after: int) -> Tail:
        return Tail([f for f in self._frames if after < f.seq <= after + self._step])


def read(headers: list[bytes], step: int, known: Keyring | None = None) -> Ledger:
    """The log, taken in at once or in steps."""
    keyring = Keyring(Key(b"k" * 32))
    ledger = Ledger(Given(headers, keyring, step), known or keyring)
    while ledger.catalogue.seq < len(headers):
        ledger.refresh()
    return ledger


def seen(now: Catalogue) -> object:
    return (
        [record.checkpoint() for record in now.newest_first()],
        {subject: now.moves(subject) for subject in now.steps},
        now.heads,
        {subject: list(line) for subject, line in now.lines.items()},
        now.named,
        now.problems,
        now.last_time,
        now.seq,
    )


def test_a_long_log_says_the_same_however_it_is_read() -> None:
    headers = [encode_entry(entry) for entry in entries()]
    at_once, by_and_by = read(headers, len(headers)), read(headers, 400)
    skimmed = [r for r in at_once.catalogue.all_records() if r.decoded is None]
    assert len(skimmed) > 1000
    assert not [r for r in by_and_by.catalogue.all_records() if r.decoded is None]
    assert seen(at_once.catalogue) == seen(by_and_by.catalogue)
    assert at_once.library.index._in_log() == by_and_by.library.index._in_log()


def test_what_others_have_signed_is_foreign_and_read_at_once() -> None:
    headers = [encode_entry(entry) for entry in entries()]
    now = read(headers, len(headers), known=Keyring(Key(b"x" * 32))).catalogue
    assert {record.foreign for record in now.all_records()} == {True}
    assert not [record for record in now.all_records() if record.decoded is None]


def test_an_entry_that_makes_no_sense_is_a_problem_also_in_a_long_log() -> None:
    headers = [encode_entry(entry) for entry in entries()]
    good = len(read(headers, len(headers)).catalogue.records)
    fields = msgspec.msgpack.decode(headers[-1])
    fields[8] = b"a digest of the wrong length"
    headers[-1] = msgspec.msgpack.encode(fields)
    assert glimpse(headers[-1]) is not None
    now = read(headers, len(headers)).catalogue
    subject = fields[2]
    with pytest.raises(Corrupt):
        now.head(subject).checkpoint()  # type: ignore[union-attr]
    assert [problem.where for problem in now.problems] == [f"log entry {len(headers)}"]
    assert len(now.records) == good - 1
    assert now.head(subject) is not None
    assert now.moves(subject)[-1].after == now.head(subject).checkpoint().id  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "entry",
    [
        Drop(ids=(A, B), time=1),
        *(commit(A, verb=verb) for verb in STILL),
        commit(A, reason="about import"),
        Move(subject="state/x", before=A, after=B, verb="restore", time=1),
    ],
)
def test_what_is_no_plain_commit_is_decoded(entry: Entry) -> None:
    assert glimpse(encode_entry(entry)) is None


def test_a_plain_commit_is_skimmed() -> None:
    found = glimpse(encode_entry(commit(C)))
    assert found is not None
    assert (found.id, found.subject) == (C, "state/x")


@pytest.mark.parametrize("header", [b"", b"\xdc\x00\x18\xa6commit", b"\xdc\x00\x18\xa6commit\xc0"])
def test_what_cannot_be_read_is_left_to_the_decoder(header: bytes) -> None:
    assert glimpse(header) is None
