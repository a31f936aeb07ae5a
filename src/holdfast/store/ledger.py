"""The ledger: the log, folded and kept current, and the chunks it speaks of.

Everything that changes a store goes through `append`; everything that reads one begins with
`refresh`.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.model import moment
from holdfast.model.errors import (
    BadInput,
    Conflict,
    Corrupt,
    Denied,
    HoldfastError,
    Unsupported,
)
from holdfast.store.backends.contract import Backend, Behind
from holdfast.store.chunks.chunk import Buffer
from holdfast.store.chunks.index import Body
from holdfast.store.chunks.library import Library
from holdfast.store.cipher import NAME as CIPHER_NAME
from holdfast.store.cipher import PLAIN, Cipher
from holdfast.store.copies import Copies
from holdfast.store.keys import Keyring
from holdfast.store.log.catalogue import Catalogue, Record, id_text
from holdfast.store.log.entries import (
    Commit,
    Encrypted,
    Entry,
    Sealed,
    Upto,
    decode_entry,
    encode_checked,
    encode_entry,
    frees_space,
)
from holdfast.store.log.frames import Frame, Signed, signed_message
from holdfast.store.parts.part import PartRecord, decode_parts
from holdfast.store.parts.recall import Recall, Tables
from holdfast.store.prints import Prints

Build = Callable[[Catalogue], tuple[Entry, Buffer]]

_MANY = 1000  # entries
_PATIENCE = 1000  # lost races for the next entry before a writer gives up


class Ledger:
    """What a store knows. Thread-safe."""

    def __init__(
        self,
        backend: Backend,
        keyring: Keyring,
        cipher: Cipher = PLAIN,
        copies: Copies | None = None,
        prints: Prints | None = None,
    ) -> None:
        self.backend = backend
        self.keyring = keyring
        self.cipher = cipher
        self.copies = copies or Copies(None, keyring)
        self.prints = prints or Prints(None, keyring)
        self._swept = -1  # of copies and prints, after the entry that dropped something
        self.library = Library(backend, cipher)
        self.recall = Recall()
        self.tables = Tables()
        self.catalogue = Catalogue()
        self._lock = threading.RLock()
        self._looked = threading.local()  # whether this thread did, and goes by what it saw
        self._read_on()

    def refresh(self) -> Catalogue:
        """Take in what others wrote."""
        return self.catalogue if getattr(self._looked, "once", False) else self._read_on()

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Look once, and let `refresh` of this thread give what is known until the end."""
        before = getattr(self._looked, "once", False)
        self.refresh()
        self._looked.once = True
        try:
            yield
        finally:
            self._looked.once = before

    def _read_on(self) -> Catalogue:
        with self._lock:
            tail = self.backend.entries(self.catalogue.seq)
            now = self.catalogue
            if tail.is_empty:
                return now
            if tail.reset:
                # Other threads go on with the old one until this is complete.
                # A snapshot does not say when it was that it dropped something.
                now = Catalogue(seq=tail.base, base=tail.base, last_drop=tail.base)
                # Nor does it say what it left out, of which a recollection may speak.
                self.recall.clear()
            many = len(tail.frames) >= _MANY
            taken: list[Record] = []
            with _without_pauses(many):
                for frame in tail.frames:
                    if frame.seq > now.seq + 1 and frame.seq > tail.base + 1:
                        _miss(now, now.seq + 1, frame.seq - 1)
                    record = self._take(now, frame, skim=many)
                    if record is not None and frame.body_size:
                        taken.append(record)
            if tail.reset or tail.remains:
                remains = [body for frame in tail.remains if (body := self._remains(frame))]
                self.library.index.add_bodies(remains, reset=tail.reset)
            if taken:
                self.library.index.add_bodies(_bodies(now, taken))
            self.catalogue = now
            self._sweep(now)
            return now

    def glance(self) -> Catalogue:
        """Like `refresh`, but what is known already when another thread is at it."""
        if not self._lock.acquire(blocking=False):
            return self.catalogue
        try:
            return self.refresh()
        finally:
            self._lock.release()

    def append(self, build: Build) -> Catalogue:
        """Append an entry that `build` makes from the catalogue as it is at that moment."""
        if not self.catalogue.seq:
            self.declare()
        for _ in range(_PATIENCE):
            now = self._try(build)
            if now is not None:
                return now
        raise Conflict("other writers were faster every time", hint="try again")

    def declare(self) -> None:
        """Let a new log begin by saying that it is encrypted, if it is."""
        while self.cipher.seals and not self._read_on().seq:
            self._try(self._declaration)

    def _try(self, build: Build) -> Catalogue | None:
        """Append an entry; None when another writer was faster."""
        with self._lock:
            now, entry, body = self._built(build)
            seq = now.seq + 1
            header, entry = self._header(seq, entry)
            key_id, mac = self.keyring.sign(signed_message(seq, header))
            signed = Signed(
                seq=seq,
                key_id=key_id,
                mac=mac,
                header=header,
                body=body,
                frees=frees_space(entry),
            )
            try:
                frame = self.backend.append(signed)
            except Behind:
                self._read_on()
                return None
            record = self._take(now, frame, entry)
            if record is not None and frame.body_size:
                self.library.index.add_bodies(_bodies(now, [record]))
            self._sweep(now)
            return now

    def _sweep(self, now: Catalogue) -> None:
        """Let neither copy nor prints outlive their checkpoint, whoever dropped it."""
        if now.last_drop != self._swept:
            self._swept = now.last_drop
            self.copies.sweep(now.records)
            self.prints.sweep(now.records)

    def _built(self, build: Build) -> tuple[Catalogue, Entry, Buffer]:
        """An entry by what is known. It need not be all there is: then the backend refuses the
        entry. But what speaks against an entry may have been settled by one we have not read."""
        now = self.catalogue
        try:
            return now, *build(now)
        except HoldfastError:
            seq = now.seq
            if self._read_on().seq == seq:
                raise
        now = self.catalogue
        return now, *build(now)

    def _declaration(self, now: Catalogue) -> tuple[Entry, bytes]:
        time = now.next_time(moment.now())
        return Encrypted(cipher=CIPHER_NAME, check=self.cipher.check, time=time), b""

    def _take(
        self, now: Catalogue, frame: Frame, entry: Entry | None = None, *, skim: bool = False
    ) -> Record | None:
        """Fold one entry in, and give the record of a commit; `entry` is one that we have just
        written. What cannot be folded in is a problem to report, never a reason to stop."""
        judged = (
            self.keyring.judges(frame.key_id, frame.mac, frame.message())
            if entry is None
            else self.keyring.knows(frame.key_id)
        )
        try:
            if entry is None:
                if judged is False:
                    raise Corrupt("its signature is wrong", where=f"log entry {frame.seq}")
                if skim and judged and (record := now.skim(frame, self._plain(frame))) is not None:
                    return record
                entry = self.entry_of(frame)
            foreign = not judged or self._is_foreign(now, frame, entry)
            return now.apply(frame, entry, foreign=foreign, known=bool(judged))
        except (Corrupt, BadInput) as error:
            now.seq = max(now.seq, frame.seq)
            now.blame(f"log entry {frame.seq}", str(error))
            return None

    def _plain(self, frame: Frame) -> bytes:
        """An entry's bytes before they were sealed; empty where they should have been, and are
        not."""
        if not self.cipher.seals:
            return frame.header
        entry = decode_entry(frame.header)
        if not isinstance(entry, Sealed):
            return b""
        return bytes(self.cipher.open(entry.box, _bound(frame.seq)))

    def _header(self, seq: int, entry: Entry) -> tuple[bytes, Entry]:
        """The entry's bytes as they are written, and the entry as it will be read."""
        header, found = encode_checked(entry)
        if not self.cipher.seals or isinstance(entry, Encrypted):
            return header, found
        return encode_entry(Sealed(box=bytes(self.cipher.seal(header, _bound(seq))))), found

    def entry_of(self, frame: Frame) -> Entry:
        """What a frame says; raises Corrupt, also for what is not encrypted in a store that is,
        and Denied where a key is needed to know."""
        entry = decode_entry(frame.header)
        if type(entry) is Commit and not self.cipher.seals:
            return entry  # as nearly always in a long log
        match entry:
            case Upto():
                return entry
            case Encrypted():
                if entry.check != self.cipher.check:
                    raise _locked(self.backend.url)
                return entry
            case Sealed():
                if not self.cipher.seals:
                    raise _locked(self.backend.url)
                return decode_entry(bytes(self.cipher.open(entry.box, _bound(frame.seq))))
        if self.cipher.seals:
            raise Corrupt("it is not encrypted, in a store that is")
        return entry

    def _is_foreign(self, now: Catalogue, frame: Frame, entry: Entry) -> bool:
        """Whether a checkpoint that was brought here was made by somebody we do not know."""
        if type(entry) is not Commit or entry.verb != "import" or entry.trusted:
            return False
        accepted = self.keyring.accepts_proof(entry.maker, entry.proof, entry.digest)
        if self.keyring.knows(entry.maker) and entry.proof and not accepted:
            # Not a problem: nothing is lost, and what somebody brought must not keep a prune from
            # deleting.
            now.notes.append(
                f"log entry {frame.seq}: the imported checkpoint {id_text(entry.id)} claims to be"
                f" made with key {entry.maker.hex()}, and is not"
            )
        return not accepted

    def _remains(self, frame: Frame) -> Body | None:
        """The chunks of a commit that is no longer spoken of, unless it is damaged."""
        if self.keyring.judges(frame.key_id, frame.mac, frame.message()) is False:
            return None
        try:
            entry = self.entry_of(frame)
        except (Corrupt, Unsupported):
            return None
        return _body(frame, entry) if isinstance(entry, Commit) else None

    # -- parts

    def part_records(self, record: Record) -> tuple[PartRecord, ...]:
        """The parts of a checkpoint with their maps; makes their chunks findable."""
        commit = record.commit
        self.library.learn(v for names in self.catalogue.volumes(record) for v in names)
        data = (
            commit.parts or bytes(self.library.get(commit.parts_chunk))
            if commit.part_count
            else b"\x90"
        )
        return decode_parts(data)


@contextmanager
def _without_pauses(many: bool) -> Iterator[None]:
    """Let the interpreter not look for garbage while many entries are taken in: there is none, and
    the looking takes longer than the taking."""
    if not many or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _body(frame: Frame, commit: Commit) -> Body:
    """Where the chunks in an entry's body are."""
    return Body(frame.origin, frame.body_offset, commit.chunk_ids, commit.chunk_sizes)


def _bodies(now: Catalogue, records: list[Record]) -> Iterator[Body]:
    """Where the chunks in these entries are, looked up when somebody asks for one."""
    now.settle()
    for record in records:
        if record.decoded is not None:  # else it made no sense
            yield _body(record.frame, record.decoded)


def _bound(seq: int) -> bytes:
    """What an entry's box is bound to: its place in the log."""
    return b"entry" + seq.to_bytes(8, "little")


def _locked(url: str) -> Denied:
    return Denied(
        f"the store at {url} is encrypted, and the key for it is not in its slots",
        hint="bring its `keys` folder back from a backup; without it nothing can be read",
    )


def _miss(now: Catalogue, first: int, last: int) -> None:
    which = f"entry {first}" if first == last else f"entries {first} to {last}"
    now.blame("log", f"{which} cannot be read")
