"""The conformance suite for backends: inherit from `BackendSuite`, say how to open one.

class TestMine(BackendSuite):
    @pytest.fixture
    def place(self, tmp_path): return tmp_path / "store"

    def open(self, place): return MyBackend(place)
"""

from __future__ import annotations

import ctypes
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.model.errors import Conflict, Corrupt, NotFound
from holdfast.store.backends.contract import Backend, Behind, Buffer
from holdfast.store.log.frames import Frame, Signed

Place = Any  # whatever `open` understands


def entry(seq: int, body: bytes = b"", text: str = "") -> Signed:
    """An entry with something in each of its fields; a backend looks into none of them."""
    header = f"entry {seq} {text}".encode()
    return Signed(seq=seq, key_id=b"K" * 8, mac=bytes([seq % 256]) * 32, header=header, body=body)


def body_of(backend: Backend, frame: Frame) -> bytes:
    return backend.read(frame.origin, frame.body_offset, frame.body_size)


def is_active(backend: Backend, nonce: bytes) -> bool:
    return any(nonce.startswith(beginning) for beginning in backend.active_nonces())


class BackendSuite(ABC):
    """What every backend must do. Two that are opened at one place are two users of one store."""

    @pytest.fixture
    @abstractmethod
    def place(self) -> Place:
        """A new place without a store."""

    @abstractmethod
    def open(self, place: Place) -> Backend:
        """A store at that place, made if there is none."""

    @pytest.fixture
    def backend(self, place: Place) -> Iterator[Backend]:
        found = self.open(place)
        yield found
        found.close()

    def other(self, place: Place) -> Backend:
        """Somebody else who uses the same store, and has read its log."""
        found = self.open(place)
        found.entries(0)
        return found

    # -- the log

    def test_a_new_log_is_empty(self, backend: Backend) -> None:
        tail = backend.entries(0)
        assert (tail.frames, tail.reset, tail.base) == ([], False, 0)
        assert [volume for volume in backend.volumes() if volume.is_pack] == []
        assert backend.audit() == []

    def test_entries_come_back_as_they_were_appended(self, backend: Backend) -> None:
        bodies = [b"", b"x", secrets.token_bytes(5_000_000), b"last"]
        for seq, body in enumerate(bodies, 1):
            backend.entries(seq - 1)
            backend.append(entry(seq, body))
        frames = backend.entries(0).frames
        assert [frame.seq for frame in frames] == [1, 2, 3, 4]
        for frame, body in zip(frames, bodies, strict=True):
            wanted = entry(frame.seq)
            assert (frame.key_id, frame.mac) == (wanted.key_id, wanted.mac)
            assert frame.header == wanted.header
            assert body_of(backend, frame) == body
        assert backend.audit() == []

    def test_only_what_is_new_is_read(self, backend: Backend) -> None:
        backend.entries(0)
        for seq in (1, 2, 3):
            backend.append(entry(seq))
        assert [frame.seq for frame in backend.entries(3).frames] == []

    def test_an_entry_has_the_next_number_or_is_refused(self, backend: Backend) -> None:
        backend.entries(0)
        backend.append(entry(1))
        for wrong in (1, 3):
            with pytest.raises(Behind):
                backend.append(entry(wrong))
        assert [frame.seq for frame in backend.entries(0).frames] == [1]

    def test_others_see_it_at_once(self, backend: Backend, place: Place) -> None:
        other = self.other(place)
        backend.entries(0)
        backend.append(entry(1, b"body"))
        (frame,) = other.entries(0).frames
        assert body_of(other, frame) == b"body"
        other.append(entry(2))
        assert [frame.seq for frame in backend.entries(1).frames] == [2]

    def test_of_two_who_want_a_number_one_gets_it(self, backend: Backend, place: Place) -> None:
        other = self.other(place)
        backend.entries(0)
        backend.append(entry(1, text="ours"))
        with pytest.raises(Behind):
            other.append(entry(1, text="theirs"))
        assert [frame.header for frame in other.entries(0).frames] == [entry(1, b"", "ours").header]

    def test_many_appenders_lose_nothing(self, place: Place) -> None:
        wanted = {f"{writer}-{number}" for writer in range(4) for number in range(25)}

        def write(writer: int) -> None:
            mine = self.other(place)
            last = 0
            for number in range(25):
                while True:
                    frames = mine.entries(last).frames
                    last = frames[-1].seq if frames else last
                    try:
                        last = mine.append(entry(last + 1, text=f"{writer}-{number}")).seq
                        break
                    except Behind:
                        continue

        writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
        for thread in writers:
            thread.start()
        for thread in writers:
            thread.join()
        frames = self.open(place).entries(0).frames
        assert [frame.seq for frame in frames] == list(range(1, 101))
        assert {frame.header.decode().split()[2] for frame in frames} == wanted

    def test_a_sealed_volume_gets_no_more_entries(self, backend: Backend) -> None:
        backend.entries(0)
        before = backend.append(entry(1, b"a"))
        assert backend.seal() == [before.origin]
        assert backend.seal() == [before.origin]  # not the one that the next entry goes to
        after = backend.append(entry(2, b"b"))
        assert before.origin != after.origin
        frames = backend.entries(0).frames
        assert [body_of(backend, frame) for frame in frames] == [b"a", b"b"]

    def test_settling_changes_nothing(self, backend: Backend) -> None:
        backend.entries(0)
        backend.append(entry(1))
        backend.settle()
        assert [frame.seq for frame in backend.entries(0).frames] == [1]

    # -- key slots

    def test_slots_come_and_go(self, backend: Backend, place: Place) -> None:
        assert backend.slots() == {}
        one, two = "0123456789abcdef", "f" * 16
        backend.put_slot(one, b"wrapped")
        backend.put_slot(two, b"too")
        assert self.open(place).slots() == {one: b"wrapped", two: b"too"}
        with pytest.raises(Conflict):
            self.open(place).put_slot(one, b"another")
        backend.remove_slot(one)
        backend.remove_slot(one)
        assert self.open(place).slots() == {two: b"too"}
        assert [volume for volume in backend.volumes() if volume.is_pack] == []

    # -- snapshots

    def folded(self, backend: Backend) -> list[Frame]:
        """Four entries, the third left out of a snapshot; the last two in a volume of their own."""
        backend.entries(0)
        frames = [backend.append(entry(seq, b"body %d" % seq)) for seq in (1, 2)]
        backend.seal()
        frames += [backend.append(entry(seq, b"body %d" % seq)) for seq in (3, 4)]
        kept = [frame for frame in frames if frame.seq != 3]
        assert backend.compact(entry(4), kept) > 0
        return frames

    def test_a_snapshot_speaks_for_what_was_trimmed(self, backend: Backend, place: Place) -> None:
        frames = self.folded(backend)
        assert backend.trim(4, {frames[2].origin}) > 0
        for user in (backend, self.open(place)):
            tail = user.entries(0)
            assert (tail.reset, tail.base) == (True, 4)
            said = {f.seq: f for f in tail.frames if f.header != entry(4).header or f.body_size}
            assert said.keys() >= {1, 2, 4}
            assert 3 not in said
            for seq in (1, 2, 4):
                assert said[seq].header == entry(seq).header
                assert said[seq].mac == entry(seq).mac
                assert said[seq].origin == frames[seq - 1].origin
        gone = {volume.name for volume in backend.volumes()}
        assert frames[0].origin not in gone
        assert frames[2].origin in gone

    def test_bodies_that_are_still_there_are_found(self, backend: Backend, place: Place) -> None:
        """Also that of an entry which the snapshot left out."""
        frames = self.folded(backend)
        backend.trim(4, {frames[2].origin})
        for user in (backend, self.open(place)):
            tail = user.entries(0)
            bodies = {f.seq: body_of(user, f) for f in (*tail.frames, *tail.remains) if f.body_size}
            assert bodies[3] == b"body 3"
            assert bodies[4] == b"body 4"

    def test_the_log_goes_on_behind_a_snapshot(self, backend: Backend, place: Place) -> None:
        frames = self.folded(backend)
        early = self.other(place)
        backend.trim(4, {frames[2].origin})
        late = self.other(place)
        backend.entries(0)
        backend.append(entry(5, b"five"))
        for user in (early, late, backend):
            found = {frame.seq: frame for frame in user.entries(4).frames}
            assert body_of(user, found[5]) == b"five"
        with pytest.raises(Behind):
            self.other(place).append(entry(5))

    def test_nothing_is_trimmed_under_an_older_hold(self, backend: Backend) -> None:
        frames = self.folded(backend)
        hold = backend.hold(3)
        assert backend.trim(4, set()) == 0
        assert body_of(backend, frames[0]) == b"body 1"
        hold.release()
        assert backend.trim(4, set()) > 0

    def test_nothing_is_trimmed_that_the_caller_cannot_know(self, backend: Backend) -> None:
        """Who has read up to entry 3 cannot say what a snapshot up to entry 4 needs."""
        frames = self.folded(backend)
        assert backend.trim(3, set()) == 0
        assert body_of(backend, frames[3]) == b"body 4"

    def test_without_a_snapshot_nothing_is_trimmed(self, backend: Backend) -> None:
        backend.entries(0)
        backend.append(entry(1, b"a"))
        assert backend.trim(1, set()) == 0
        assert [frame.seq for frame in backend.entries(0).frames] == [1]

    # -- packs

    def test_a_pack_is_there_when_it_is_published(self, backend: Backend, place: Place) -> None:
        name = secrets.token_bytes(16)
        pack = backend.create_pack(name)
        pack.write_at(4, b"world")
        pack.write_at(0, b"hello"[:4])
        assert name not in {volume.name for volume in backend.volumes()}
        with pytest.raises(NotFound):
            backend.read(name, 0, 1)
        pack.publish()
        pack.discard()  # which does nothing any more
        for user in (backend, self.open(place)):
            (found,) = [volume for volume in user.volumes() if volume.name == name]
            assert (found.size, found.is_pack) == (9, True)
            assert user.read(name, 2, 4) == b"llwo"

    def test_a_discarded_pack_was_never_there(self, backend: Backend) -> None:
        name = secrets.token_bytes(16)
        pack = backend.create_pack(name)
        pack.write_at(0, b"x")
        pack.discard()
        pack.discard()
        assert backend.volumes() == []

    def test_several_threads_write_a_pack(self, backend: Backend) -> None:
        name = secrets.token_bytes(16)
        pack = backend.create_pack(name)
        pieces = [secrets.token_bytes(50_000) for _ in range(16)]

        def write(first: int) -> None:
            for i in range(first, 16, 4):
                pack.write_at(i * 50_000, pieces[i])

        threads = [threading.Thread(target=write, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pack.publish()
        assert backend.read(name, 0, 800_000) == b"".join(pieces)

    def test_what_is_laid_is_there_like_the_rest(self, backend: Backend) -> None:
        """Wherever it begins and ends, and wherever in memory it lies."""
        room = bytearray(secrets.token_bytes(5 * 4096))
        start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % 4096
        whole = memoryview(room)[start : start + 3 * 4096]
        odd = secrets.token_bytes(5000)
        name = secrets.token_bytes(16)
        pack = backend.create_pack(name)
        wanted = bytearray()
        laid: tuple[tuple[int, list[Buffer]], ...] = (
            (4096, [whole, whole[:4096], whole[:100]]), (30_000, [whole]), (45_056, [odd, whole]),
            (69_632, [whole[8:4104], odd]), (81_920, []),
        )  # fmt: skip
        for at, pieces in laid:
            pack.lay(at, pieces)
            data = b"".join(pieces)
            wanted += bytes(max(0, at + len(data) - len(wanted)))
            wanted[at : at + len(data)] = data
        pack.write_at(0, b"head")
        pack.write_at(90_000, b"foot")
        wanted[:4] = b"head"
        wanted += bytes(90_000 - len(wanted)) + b"foot"
        pack.publish()
        assert backend.read(name, 0, len(wanted)) == wanted

    def test_reading_gives_exactly_what_was_asked_for_or_an_error(self, backend: Backend) -> None:
        name = self.published(backend, b"0123456789")
        assert backend.read(name, 0, 0) == b""
        assert backend.read(name, 10, 0) == b""
        assert backend.read(name, 9, 1) == b"9"
        for offset, size in ((9, 2), (11, 1), (0, 11), (1 << 63, 1)):
            with pytest.raises(Corrupt):
                backend.read(name, offset, size)

    def test_a_deleted_pack_is_gone(self, backend: Backend, place: Place) -> None:
        name = self.published(backend, b"0123456789")
        other = self.open(place)
        assert other.read(name, 0, 2) == b"01"
        assert backend.delete(name) == 10
        assert backend.delete(name) == 0
        assert other.delete(name) == 0
        assert backend.volumes() == []
        with pytest.raises(NotFound):
            backend.read(name, 0, 1)

    def test_a_path_leads_to_the_same_bytes(self, backend: Backend) -> None:
        name = self.published(backend, b"0123456789")
        path = backend.path(name)
        assert path is None or path.read_bytes() == b"0123456789"
        assert backend.path(secrets.token_bytes(16)) is None

    def published(self, backend: Backend, data: bytes) -> bytes:
        name = secrets.token_bytes(16)
        pack = backend.create_pack(name)
        pack.write_at(0, data)
        pack.publish()
        return name

    # -- holds

    def test_holds_are_seen_by_everybody_until_they_end(
        self, backend: Backend, place: Place
    ) -> None:
        other = self.open(place)
        assert other.oldest_hold() is None
        later, earlier = backend.hold(7), other.hold(3)
        assert later.refusal is None
        for user in (backend, other):
            assert user.oldest_hold() == 3
            assert is_active(user, later.nonce)
            assert is_active(user, earlier.nonce)
        earlier.release()
        earlier.release()
        assert backend.oldest_hold() == 7
        assert not is_active(backend, earlier.nonce)
        later.release()
        assert other.oldest_hold() is None

    def test_every_hold_has_a_nonce_of_its_own(self, backend: Backend) -> None:
        held = [backend.hold(1) for _ in range(20)]
        assert len({hold.nonce for hold in held}) == 20
        assert all(len(hold.nonce) == 8 for hold in held)
        for hold in held:
            hold.release()

    # -- signs of life

    def test_a_sign_of_life_is_seen_by_everybody_until_it_stops(
        self, backend: Backend, place: Place
    ) -> None:
        other = self.open(place)
        name = secrets.token_bytes(16)
        assert other.pulse(name) is None
        beat = backend.beat(name)
        for user in (backend, other):
            pulse = user.pulse(name)
            assert pulse is not None
            assert pulse == user.pulse(name)
        beat.stop()
        beat.stop()
        assert backend.pulse(name) is None
        assert other.pulse(name) is None

    def test_each_renewal_gives_another_nonce(self, backend: Backend, place: Place) -> None:
        other = self.open(place)
        name = secrets.token_bytes(16)
        beat = backend.beat(name)
        seen = set()
        for _ in range(5):
            pulse = other.pulse(name)
            assert pulse is not None
            seen.add(pulse.nonce)
            beat.renew()
        assert len(seen) == 5
        beat.stop()

    # -- the rest

    def test_everybody_knows_the_same_store(self, backend: Backend, place: Place) -> None:
        other = self.open(place)
        assert (backend.store_id, backend.url) == (other.store_id, other.url)
        assert backend.store_id

    def test_space_is_a_number_or_unknown(self, backend: Backend) -> None:
        free = backend.free_bytes()
        assert free is None or free >= 0

    def test_closing_twice_is_closing_once(self, backend: Backend) -> None:
        self.published(backend, b"x")
        backend.close()
        backend.close()
