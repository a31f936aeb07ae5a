"""Keeping sandboxes in the store, and finding them there. Blocking; called in threads."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.model.checkpoint import Checkpoint, Split
from holdfast.model.errors import BadInput, Corrupt, NotFound, Unsupported, UsageError
from holdfast.model.subject import Subject
from holdfast.oci.memory import stored
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.sandbox import upper
from holdfast.sandbox.coming import Coming, Moment
from holdfast.sandbox.contract import Engine
from holdfast.sandbox.upper import Fill, LayOut
from holdfast.store import Store
from holdfast.store.leases import Lease

if TYPE_CHECKING:  # whoever only looks at checkpoints does not wait for what a line needs
    from holdfast.sandbox.line import Running

FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PRINTED = re.compile(r"(.*?)(?:#([0-9a-f]{16}))?", re.DOTALL)  # a root, and its fingerprint
SNAPSHOTS = "snapshots/"  # names of files that were kept without the rest
KILLED = "killed"  # a tag: the sandbox was ended on purpose, its checkpoints stay
TEMPLATES = "templates/"  # before the name, in the subject of a template
CONFIG, ENVIRONMENT, FILES, MEMORY = "config", "environment", "files/upper", "memory/"


def subject_of(sandbox_id: str) -> Subject:
    return Subject("sandbox", sandbox_id)


def snapshot_subject(name: str) -> Subject:
    return Subject("sandbox", SNAPSHOTS + name)


def template_subject(name: str) -> Subject:
    return Subject("sandbox", f"{TEMPLATES}{name}")


def stored_name(name: str, tenant: str) -> str:
    """What a tenant's snapshot or template is called in the store: names belong to whoever gave
    them. Those of the owner, whose name is empty, are as they were given."""
    if not tenant:
        return name
    if not _NAME.fullmatch(tenant):  # a name that fits has no such sign
        tenant = f"={hashlib.sha256(tenant.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    return f"{tenant}/{name}"


def find_name(
    store: Store, make: Callable[[str], Subject], name: str, tenant: str, shared: Sequence[str]
) -> str:
    """What a snapshot or a template is called that a tenant means: its own, or one of the owner's
    that is shared with it. Its own, where there is neither."""
    own = stored_name(name, tenant)
    if own != name and name in shared and store.head(make(own)) is None:
        return name
    return own


def check_name(name: str) -> None:
    """Names that become part of a subject. Raises BadInput."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"bad name: {name!r:.100}", hint="letters, digits and any of . _ -, at most 100"
        )


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def fits(token: str, kept: str) -> bool:
    return hmac.compare_digest(token_hash(token), kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A sandbox as a checkpoint has it, without its bytes."""

    checkpoint: str
    request: CreateRequest
    token: str
    epoch: int
    executions: Sequence[Mapping[str, Any]]
    environment: Mapping[str, Any]
    memory: tuple[str, ...]
    layer: int  # bytes of its files as they are packed
    session: bool = False  # whether there is a session among its files
    tenant: str = ""  # whose it is; empty: the owner's
    running: Sequence[Running] = ()  # executions, and what belongs to none

    def check(self, engine: Engine, root_digest: str) -> None:
        """Raises Unsupported, in words, when this machine cannot bring it back."""
        here = {**engine.environment(), "root": root_digest}
        troubles = []
        for name, there in sorted(self.environment.items()):
            if name == "cpu":
                lacking = sorted(set(there) - set(_words(here.get("cpu"))))
                troubles += [f"this processor lacks {', '.join(lacking)}"] if lacking else []
            elif name == "root" and is_same_root(there, root_digest, memory=bool(self.memory)):
                continue
            elif here.get(name) != there:
                troubles.append(f"{name} was {there!r:.80} and is {here.get(name)!r:.80} here")
        if troubles:
            raise Unsupported(
                f"the checkpoint cannot be restored here: {'; '.join(troubles)}",
                hint="restore it where it was made, or start anew from a snapshot of its files",
            )


def is_same_root(there: object, here: str, *, memory: bool) -> bool:
    """Whether files of a sandbox belong over a root. Memory belongs over the same libraries, too;
    what was kept by an earlier version says nothing of them."""
    was, before = _PRINTED.fullmatch(str(there)).groups()  # type: ignore[union-attr]  # all do
    now, after = _PRINTED.fullmatch(here).groups()  # type: ignore[union-attr]
    return bool(was == now and (not memory or before is None or before == after))


def save(
    store: Store,
    subject: Subject,
    moment: Moment | Coming,
    *,
    reason: str,
    environment: Mapping[str, object],
    lease: Lease | None = None,
    stage: str | None = None,
    aside: bool = False,
) -> Checkpoint:
    """Write a checkpoint; durable when this returns. Raises CaptureFailed for a moment that was
    coming, and never was there."""
    # Whoever waits for this waits longer for compression than for the disk; a network is slower
    # than both.
    split: Split = "segment" if store.traffic is None else "pages"
    with store.draft(subject, reason=reason, lease=lease, stage=stage, aside=aside) as draft:
        # It is in the file cache as the engine wrote it, and is restored from there.
        put = partial(draft.put, split=split, moved=True, passing=True)
        done: set[str] = set()
        if isinstance(moment, Coming):
            for growing in moment.growing():
                put(MEMORY + growing.path.name, growing)
                done.add(growing.path.name)
            moment = moment.moment()
        draft.put(CONFIG, {"format": FORMAT, **moment.config}, split="structure")
        draft.put(ENVIRONMENT, dict(environment), split="structure")
        draft.put(FILES, moment.files, split="content")
        image = moment.image
        if image is not None and image.is_dir():
            done |= stored.put(draft, image, MEMORY, _before(store, subject), split)
            for name in sorted(set(os.listdir(image)) - done):
                put(MEMORY + name, image / name)
        return draft.commit()


def _before(store: Store, subject: Subject) -> Callable[[str], bytes | None]:
    """How to read a part of the last checkpoint of a subject, where it has one of that name."""

    @cache
    def last() -> tuple[Checkpoint | None, frozenset[str]]:
        head = store.head(subject)
        parts = store.show(head).parts if head is not None else ()
        return head, frozenset(part.name for part in parts)

    def read_part(name: str) -> bytes | None:
        head, there = last()
        return store.read(head, name) if head is not None and name in there else None

    return read_part


def warm(store: Store) -> None:
    """Do once what a first checkpoint would otherwise wait for. Nothing of it is kept."""
    with store.draft(subject_of("0" * 32), reason="never committed", new=True) as draft:
        draft.put(CONFIG, {"format": FORMAT}, split="structure")
        draft.put(FILES, bytes(range(256)) * 1024, split="content")
        draft.put(MEMORY + "image", bytes(range(256)) * 1024, split="segment")


def fork(store: Store, origin: Checkpoint, identity: str, token: str) -> Checkpoint:
    """The first checkpoint of a copy: its origin's content under an id and a token of its own."""
    config = {**store.value(origin, CONFIG), "token": token}
    reason = f"fork of {origin.subject}"
    with store.draft(subject_of(identity), origin, reason=reason, new=True) as draft:
        draft.put(CONFIG, config, split="structure")
        for part in store.show(origin).parts:
            if part.name != CONFIG:
                draft.keep(part.name)
        return draft.commit()


def begin_copy(store: Store, origin: Checkpoint) -> tuple[str, str]:
    """A sandbox with the content of another's checkpoint, for whoever attaches to it: its id and
    its token. Raises UsageError."""
    name = origin.subject.name
    if origin.subject.kind != "sandbox":
        raise UsageError(f"{origin.short} is a checkpoint of {origin.subject}, not of a sandbox")
    if name.startswith(SNAPSHOTS):
        raise UsageError(
            f"{origin.short} holds the files of a sandbox, and no sandbox",
            hint=f"create one with filesystem_snapshot_name={name.removeprefix(SNAPSHOTS)!r}",
        )
    identity, token = secrets.token_hex(16), secrets.token_urlsafe(32)
    fork(store, origin, identity, token_hash(token))
    return identity, token


def check_copy(origin: Checkpoint, name: str) -> None:
    """Whether a checkpoint may be forked under a name that somebody chose. Raises UsageError: a
    sandbox is found by its id and opened by its token, and a copy needs ones of its own."""
    if origin.subject.kind != "sandbox":
        return
    old, new = origin.subject.name, name.removeprefix("sandbox/")
    for prefix in (SNAPSHOTS, TEMPLATES):
        if old.startswith(prefix):
            if new.startswith(prefix):
                check_name(new.removeprefix(prefix))
                return
            raise UsageError(f"it would not be found as {new!r}", hint=f"{prefix}{new}")
    raise UsageError(
        "a copy of a sandbox has no name: it gets an id and a token of its own",
        hint=f"holdfast fork {origin.short}, without a name; then attach to what that says",
    )


def config_of(
    request: CreateRequest,
    token: str,
    epoch: int,
    executions: Sequence[Mapping[str, object]],
    session: bool = False,
    running: Sequence[Running] = (),
    tenant: str = "",
) -> dict[str, object]:
    return {
        **({"tenant": tenant} if tenant else {}),
        "request": msgspec.json.decode(msgspec.json.encode(request)),  # lists, no tuples
        "token": token,
        "epoch": epoch,
        "processes": [dict(each) for each in executions],
        "session": session,
        "running": [list(each) for each in running],
    }


def look(store: Store, subject: Subject) -> Kept:
    """The head of a sandbox, as far as it can be judged without its bytes.
    Raises NotFound, Corrupt, Denied (foreign) or Unsupported."""
    head = store.head(subject)
    if head is None:
        raise NotFound(f"there is no {subject}")
    return read(store, head)


def read(store: Store, checkpoint: Checkpoint) -> Kept:
    """What a checkpoint says about itself. Raises as `look`."""
    config = store.value(checkpoint, CONFIG)
    environment = store.value(checkpoint, ENVIRONMENT)
    if not isinstance(config, dict) or not isinstance(environment, dict):
        raise Corrupt("a sandbox's config cannot be read")
    if config.get("format") != FORMAT:
        raise Unsupported(
            f"the checkpoint has format {config.get('format')!r}; this version reads {FORMAT}"
        )
    sizes = {part.name: part.size for part in store.show(checkpoint).parts}
    try:
        return Kept(
            checkpoint=checkpoint.id,
            request=msgspec.convert(config["request"], CreateRequest),
            token=str(config["token"]),
            epoch=int(config["epoch"]),
            executions=list(config["processes"]),
            environment=environment,
            session=config.get("session") is True,
            tenant=str(config.get("tenant", "")),
            running=[(str(identity), int(owed)) for identity, owed in config.get("running", ())],
            memory=tuple(name.removeprefix(MEMORY) for name in sizes if name.startswith(MEMORY)),
            layer=sizes[FILES],
        )
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise Corrupt(f"a sandbox's config cannot be read: {error}") from None


def mark_killed(store: Store, identity: str) -> None:
    head = store.head(subject_of(identity))
    if head is not None:
        store.tag(head, KILLED)


def filling(store: Store, kept: Kept) -> Fill:
    """How to lay out the files of a checkpoint."""
    return partial(fetch_files, store, kept.checkpoint)


def fetch_files(store: Store, checkpoint: str, into: Path, lay_out: LayOut = upper.unpack) -> None:
    """Lay out the files of a checkpoint, in an empty upper unless it is done otherwise."""
    with store.steady(), store.open(checkpoint, FILES) as stream:
        lay_out(stream, into)


def copy_files(store: Store, checkpoint: str, into: Path) -> None:
    """The packed layer of a checkpoint, as a file of this machine."""
    with store.open(checkpoint, FILES) as stream, open(into, "xb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)


def unpack_files(files: Path, into: Path, lay_out: LayOut = upper.unpack) -> None:
    """The same from a packed layer on this machine."""
    with open(files, "rb") as stream:
        lay_out(stream, into)


def fetch_memory(store: Store, kept: Kept, image: Path) -> None:
    """Write the engine's images; every byte is verified on the way."""
    image.mkdir(parents=True)
    with store.steady():
        _fetch_images(store, kept, image)
    stored.arrange(image)


def _fetch_images(store: Store, kept: Kept, image: Path) -> None:
    for name in kept.memory:
        last = name.removeprefix(stored.SLOTS)
        if "/" in last or last in ("", ".", ".."):
            raise Corrupt(f"an image of an impossible name: {name!r}")
        (image / name).parent.mkdir(exist_ok=True)
        fd = os.open(image / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            store.copy_part(kept.checkpoint, MEMORY + name, fd)
        finally:
            os.close(fd)


def fetch(
    store: Store, kept: Kept, image: Path, into: Path, lay_out: LayOut = upper.unpack
) -> None:
    """Everything of a checkpoint, files and memory at the same time: the one is many small things
    to be made, the other a few large ones to be copied. Anew where that was tried before."""
    shutil.rmtree(image, ignore_errors=True)
    with ThreadPoolExecutor(1) as beside:
        memory = beside.submit(fetch_memory, store, kept, image) if kept.memory else None
        fetch_files(store, kept.checkpoint, into, lay_out)
        if memory is not None:
            memory.result()


def _words(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
