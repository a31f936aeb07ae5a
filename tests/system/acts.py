"""What actors do to a store while it is being hurt, and how to tell that nothing was lost.

A checkpoint's reason is the recipe of its content, so that whoever finds it can check it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
from blake3 import blake3
from tests.system import outside, slot_acts

from holdfast import sync
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.disk import Disk, Sync
from holdfast.model.errors import HoldfastError
from holdfast.state import StateManager
from holdfast.state.files import Directory
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.backends.local.beats import LocalBeat
from holdfast.store.backends.local.holds import living
from holdfast.store.cipher import PLAIN, AesCipher
from holdfast.store.keys import Key, import_key, load_keyring
from holdfast.store.retention import Last
from holdfast.store.slots import new_key_file
from holdfast.store.store import Store
from holdfast.store.transfer.exporting import new_file
from holdfast.testing.disks import ForgetfulDisk
from holdfast.testing.power import operations
from holdfast.testing.stage import TakeNote

PLACE = "place/of/store"
STATES = "place/of/states"
SMALL = 3_000
MEDIUM = 900_000  # the largest that still goes into the log; a few of them make it worth folding
LARGE = 1_300_000
SESSION = "powered"
NUMBERS = "numbers = np.random.default_rng(1).integers(0, 2**60, 200_000)"

TRIES = 8
TORN = "an interrupted append looks the same"


class Near(LocalBackend):
    """On a disk that no other machine has, although its kind does not say so."""

    def beat(self, name: bytes) -> LocalBeat:
        return LocalBeat(self.root / "leases", name)


def open_at(base: str, disk: Disk | None = None, *, create: bool = True) -> Store:
    """The store of an act: deep enough that several directories have to be made for it."""
    environ = {"HOLDFAST_HOME": f"{base}/home/of/mine"}
    keyring = load_keyring(environ, disk)
    backend = Near(Path(base, PLACE), create=create, disk=disk)
    # The same plays with an encrypted store, for whoever asks for it.
    encrypted = os.environ.get("HOLDFAST_TEST_STORE") == "encrypted"
    return Store(backend, keyring, AesCipher(bytes(range(32))) if encrypted else PLAIN)


def content(recipe: str) -> dict[str, bytes]:
    """The parts that a recipe stands for: a seed, a size, and how many steps it has changed."""
    seed, size, steps = recipe.split()
    plain = blake3(seed.encode()).digest(length=int(size))
    pages = np.frombuffer(plain, dtype=np.uint8).copy()
    for step in range(int(steps)):
        # Half of the pages change with each step, so that old packs become sparse.
        pages[step * 4096 % 8192 :: 8192] += np.uint8(step + 1)
        pages[: len(pages) // 2] ^= np.uint8(step + 1)
    return {"plain": plain, "pages": pages.tobytes()}


def save(store: Store, subject: str, recipe: str) -> Checkpoint:
    parts = content(recipe)
    with store.draft(subject, reason=recipe) as draft:
        draft.put("pages", parts["pages"], split="pages")
        if len(parts["plain"]) > MEDIUM:
            draft.put("plain", _on_pages(parts["plain"]), split="segment", passing=True)
        else:
            draft.put("plain", parts["plain"])
        draft.put("value", {"recipe": recipe}, split="structure")
        return draft.commit()


def _on_pages(data: bytes) -> memoryview:
    """The same from the beginning of a page on, where a disk can take it from."""
    room = mmap.mmap(-1, len(data))
    room[:] = data
    return memoryview(room)


# -- acts


def small(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """One log entry."""
    store = _opener(base, drop)
    _patiently(note, lambda: _acknowledge(note, save(store(), "state/small", f"s {SMALL} 1")))


def row(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """Entries one after the other: from the second on there is a runway, which the next ones are
    written over, and which closing cuts off."""
    store = _opener(base, drop)

    def step(number: int) -> None:
        _acknowledge(note, save(store(), "state/row", f"r{number} {SMALL // 3} {number}"))

    for number in range(4):
        _patiently(note, partial(step, number))
    _patiently(note, lambda: store().close())
    _patiently(note, partial(step, 4))


def relay(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """The same content again, in a new segment such as a collector begins."""
    backend = LocalBackend(Path(base, PLACE), disk=ForgetfulDisk(drop))
    backend.entries(0)
    backend.seal()
    small(note, base, drop)


def large(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """A pack and an entry; the directories, too, if they are not there."""
    store = _opener(base, drop)
    _patiently(note, lambda: _acknowledge(note, save(store(), "sandbox/large", f"l {LARGE} 9")))


def first(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """Key, layout, marker, segment, entry: everything that is made once."""

    store = _opener(base, drop)
    _patiently(note, lambda: _acknowledge(note, save(store(), "state/first", f"f {SMALL} 0")))


def prune(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """Drop, condemn, relocate, snapshot, delete, trim; then go on."""
    store = _opener(base, drop)

    def collect() -> None:
        report = store().prune(Last(1))
        note({"pruned": len(report.removed), "bytes": report.reclaimed_bytes})

    _patiently(note, collect)
    _patiently(note, lambda: _acknowledge(note, save(store(), "state/after", f"a {SMALL} 2")))


def files(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """What people keep outside of a store: a key file, another machine's key, and archives."""
    disk = ForgetfulDisk(drop)

    def make_key() -> None:
        path = Path(base, "key")
        secret = new_key_file(path, disk)
        note({"saved": file_promise(path, secret.value.hex().encode() + b"\n")})

    def take_key() -> None:
        key = Key(bytes(range(32)))
        path = import_key(key, {"HOLDFAST_HOME": f"{base}/home/of/mine"}, disk)
        note({"saved": file_promise(path, key.to_text().encode() + b"\n")})

    def write_archive(replace: bool) -> None:
        path = Path(base, f"archive-{replace}")
        content = blake3(path.name.encode()).digest(length=SMALL)
        with new_file(path, replace=replace, disk=disk) as file:
            file.write(content)
        note({"saved": file_promise(path, content)})

    _patiently(note, make_key)
    _patiently(note, take_key)
    _patiently(note, partial(write_archive, False))
    _patiently(note, partial(write_archive, True))


def secrets(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """Make an encrypted store and change its secret. Then somebody else begins to do so and dies
    before the new slot's name is safe, and who comes after them takes the old one away."""
    disk = ForgetfulDisk(drop)
    died = ForgetfulDisk([*drop, "slot name"])

    def let_in(number: int) -> None:
        note({"saved": slot_acts.let_in(base, number, disk)})

    def shut_out(number: int) -> None:
        for promise in slot_acts.shut_out(base, number, disk):
            note({"saved": promise})

    def begin() -> None:
        slot_acts.let_in(base, 2, died)  # and nobody was told

    _patiently(note, partial(let_in, 0))
    _patiently(note, partial(let_in, 1))
    _patiently(note, partial(shut_out, 0))
    _patiently(note, begin)
    _patiently(note, partial(shut_out, 1))


def states(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """The readable files of a state, in a new directory: one more than are kept, then a save."""
    manager = _state_opener(base, drop, limit=2)

    def step(number: int) -> None:
        _step(note, manager(), number, promise=number > 0)  # the first is let go of for the last

    def save_it() -> None:
        manager().set_state("step", 3)
        manager().save_state()
        note({"saved": state_promise(base, 3)})

    for number in range(3):
        _patiently(note, partial(step, number))
    _patiently(note, save_it)


def more_states(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """One more, by somebody else, who lets go of nothing."""
    manager = _state_opener(base, drop, limit=100)
    _patiently(note, lambda: _step(note, manager(), 4))


def containers(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """Checkpoints of a container in a folder that has to be made, of which each gets another form,
    and the count of a failure."""
    disk = ForgetfulDisk(drop)
    for number in range(2):
        _patiently(note, lambda n=number: note({"saved": outside.save_container(base, n, disk)}))
    _patiently(note, lambda: outside.rewrite_containers(base, disk))
    _patiently(note, lambda: note({"saved": outside.count_failure(base, disk)}))


def agents(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """What lets agents back into their sandboxes, and a file of theirs that is replaced."""
    disk = ForgetfulDisk(drop)
    for number in range(2):
        _patiently(note, lambda n=number: note({"saved": outside.keep_pass(base, n, disk)}))
    for number in range(2):
        _patiently(note, lambda n=number: note({"saved": outside.write_file(base, n, disk)}))


def session(note: TakeNote, base: str, drop: Sequence[Sync] = ()) -> None:
    """Checkpoints of a session: one that goes to a pack, and one of little that has changed."""
    store = _opener(base, drop)

    @cache
    def opened() -> sync.Session:
        made = sync.Session(SESSION, store=store(), fresh=True).start()
        made.execute(f"import numpy as np\nstep = 0\n{NUMBERS}", check=True)
        return made

    def step(number: int) -> None:
        opened().execute(f"step = {number}\nnumbers[{number} * 1000] = -{number}", check=True)
        _acknowledge(note, opened().checkpoint(reason=f"step {number}").checkpoint)

    for number in (1, 2):
        _patiently(note, partial(step, number))
    _patiently(note, lambda: opened().shutdown())


def _state_opener(base: str, drop: Sequence[Sync], limit: int) -> Callable[[], StateManager]:
    @cache
    def manager() -> StateManager:
        made = StateManager("s", directory=Path(base, STATES), checkpoint_limit=limit)
        made._place = Directory(made.checkpoint_dir, "s", disk=ForgetfulDisk(drop))
        return made

    return manager


def _step(note: TakeNote, manager: StateManager, number: int, promise: bool = True) -> None:
    manager.set_state("step", number)
    made = manager.checkpoint(f"step {number}")
    if promise:
        base = str(manager.checkpoint_dir).removesuffix(f"/{STATES}")
        note({"saved": state_promise(base, number, made.id)})


def state_promise(base: str, step: int, checkpoint: str = "") -> str:
    """That the state is at this step or further, and that there is a checkpoint of it."""
    return f"{base}/{STATES}/={step} {checkpoint}"


def file_promise(path: Path, content: bytes) -> str:
    """That a file is there, with these bytes."""
    return f"{path}={blake3(content).hexdigest()}"


def observed(note: TakeNote, base: str, act: str, drop: Sequence[Sync] = ()) -> None:
    """Another act, on a disk that forgets; each note says after which operation it was taken."""
    known = [small, row, large, first, prune, files, secrets, states, containers, agents, session]
    perform = {each.__name__: each for each in known}[act]
    perform(lambda taken: note({**taken, "at": operations(base)}), base, drop)


def thin(note: TakeNote, base: str) -> None:
    """A store that has no pack yet, as a backup leaves it that forgets empty directories."""
    first(note, base)
    for spare in Path(base, PLACE, "holds").iterdir():  # kept for a next operation, and let go of
        spare.unlink()
    for name in ("packs", "holds", "tmp"):
        Path(base, PLACE, name).rmdir()


def prepare(note: TakeNote, base: str) -> None:
    """A store in which a prune has everything to do."""
    store = open_at(base)
    for step in range(6):
        _acknowledge(note, save(store, "state/log", f"log{step} {MEDIUM // 2} 1"))
    for step in range(4):
        _acknowledge(note, save(store, "sandbox/packs", f"packs {LARGE} {step}"))
    _acknowledge(note, save(store, "state/small", f"s {SMALL} 0"))
    kept = store.list("sandbox/packs")[2]
    store.pin(kept)
    note({"pinned": kept.id})


def _opener(base: str, drop: Sequence[Sync]) -> Callable[[], Store]:
    """Opens the store once, and again only if that failed."""
    return cache(partial(open_at, base, ForgetfulDisk(drop)))


def _acknowledge(note: TakeNote, saved: Checkpoint) -> None:
    note({"saved": saved.id})


def _patiently(note: TakeNote, work: Callable[[], None]) -> None:
    """Whoever was told of an error tries again; strace lets each thread fail once."""
    for _ in range(TRIES):
        try:
            work()
        except HoldfastError as error:
            note({"error": error.kind, "hint": error.hint, "message": str(error)})
        else:
            return


# -- afterwards


def file_losses(promised: Iterable[str]) -> list[str]:
    """Which files are not there, or not as they were promised."""
    found = [(one, Path(one.partition("=")[0])) for one in promised]
    return [
        f"{path.name} is lost"
        for one, path in found
        if not path.exists() or file_promise(path, path.read_bytes()) != one
    ]


def state_losses(base: str, promised: Iterable[str]) -> list[str]:
    """What of the states is lost; and whether they go on."""
    wanted = [one.partition("=")[2].split() for one in promised]
    if not wanted:
        return []
    folder = Path(base, STATES)
    try:
        manager = StateManager.load("s", directory=folder)
        behind = manager.get_state("step") < max(int(step) for step, *_ in wanted)
        wrong = ["the state is an older one"] if behind else []
        now = manager.checkpoint("the next one")
        kept = {one.id: one for one in manager.list_checkpoints()}
        for step, *which in wanted:
            wrong += [f"{one} is lost" for one in which if one not in kept]
            for one in set(which) & kept.keys():
                manager.rollback(one)
                wrong += [] if manager.get_state("step") == int(step) else [f"{one} is another"]
        manager.rollback(now)
    except HoldfastError as error:
        return [f"the states do not go on: {error}"]
    return wrong


def losses(store: Store, promised: Iterable[str]) -> list[str]:
    """What is missing or wrong; a torn end of the log may be reported until the next commit."""
    found = {one.id: one for one in store.list()}
    wrong = [f"{one} is lost" for one in promised if one not in found]
    for one in found.values():
        wrong += [f"{one.id}: {what}" for what in _differences(store, one)]
    for problem in store.verify(deep=True).problems:
        if TORN not in problem.what:
            wrong.append(f"verify: {problem}")
    return wrong


def session_losses(store: Store) -> list[str]:
    """Whether a session goes on from its last checkpoint, with all that it had there."""
    head = store.head(f"session/{SESSION}")
    if head is None:
        return []
    step = int(head.reason.split()[1])
    with sync.Session.resume(SESSION, store=store) as again:
        looked = again.execute(
            f"held = numbers\n{NUMBERS}\n"
            f"for number in range(1, {step + 1}): numbers[number * 1000] = -number\n"
            f"step == {step} and (held == numbers).all().item()"
        )
        again.checkpoint(reason=f"step {step}")
    return [] if looked.value is True else [f"the session is another one: {looked}"]


def goes_on(store: Store) -> list[str]:
    """Whether life goes on: the next checkpoints succeed, collecting works, all is well again."""
    before = {one.id for one in store.list()}
    made = {
        save(store, "state/next", f"n {SMALL} 0").id,
        save(store, "sandbox/next", f"m {LARGE} 1").id,
    }
    store.prune(Last(1000))
    wrong = losses(store, before | made)
    wrong += [f"verify: {problem}" for problem in store.verify(deep=True).problems]
    left = living(Path(store.url, "holds"))
    wrong += [f"hold {nonce.hex()} was left behind" for _, nonce in left]
    return wrong


def _differences(store: Store, one: Checkpoint) -> list[str]:
    if one.subject.kind == "session":
        return []  # what it holds is for a session to say; `verify` reads it
    wanted: Mapping[str, bytes] = content(one.reason)
    try:
        different = [part for part, data in wanted.items() if store.read(one, part) != data]
        if store.value(one, "value") != {"recipe": one.reason}:
            different.append("value")
    except HoldfastError as error:
        return [f"{error.kind}: {error}"]
    return [f"{part} differs" for part in different]
