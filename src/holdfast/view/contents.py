"""What is inside a checkpoint, for people: variables, definitions, a state, files, versions.

Content is looked at, never restored: nothing is unpickled, unpacked or run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.model.checkpoint import Manifest
from holdfast.model.errors import Corrupt
from holdfast.session import layout
from holdfast.store import Store
from holdfast.view.files import File, files
from holdfast.view.previews import Preview, Previews

MOST_MEMORY = 16 << 20  # bytes of one buffer that are looked at
_MOST_RECORDS = 1 << 20  # bytes of a part of records beyond the small ones
_MEMORY = "memory/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable, or a definition with its source."""

    name: str
    preview: Preview
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of what ran, in a few words: it is nobody's to read."""

    size: int
    images: int
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything there is to see. None: checkpoints of this kind have no such thing."""

    variables: tuple[Variable, ...] | None = None
    state: object = None
    has_state: bool = False
    files: tuple[File, ...] | None = None
    more_files: bool = False
    memory: Memory | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


def look(store: Store, manifest: Manifest, *, trust: bool = False) -> Contents:
    """The contents of a checkpoint. Raises Denied for a foreign one, unless it is trusted."""
    kind = manifest.checkpoint.subject.kind
    found, more = files(store, manifest, trust=trust)
    state = _state(store, manifest, trust) if kind == "state" else None
    return Contents(
        variables=_variables(store, manifest, trust) if kind == "session" else None,
        state=state,
        has_state=state is not None,
        files=found,
        more_files=more,
        memory=_memory(store, manifest, trust),
        versions=_versions(store, manifest, trust),
    )


def _value(store: Store, manifest: Manifest, part: str, trust: bool) -> object:
    found = manifest.part(part)
    if found is None or found.split != "structure":
        return None
    return store.value(manifest.checkpoint, part, trust=trust)


def _state(store: Store, manifest: Manifest, trust: bool) -> object:
    value = _value(store, manifest, "state", trust)
    return value.get("state_info", value) if isinstance(value, dict) else value


def _versions(store: Store, manifest: Manifest, trust: bool) -> dict[str, str]:
    value = _value(store, manifest, "environment", trust)
    found: dict[str, str] = {}
    for name, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, str | int | float):
            found[str(name)] = str(each)
        elif name == "libraries" and isinstance(each, dict):
            found |= {str(library): str(version) for library, version in each.items()}
    return found


# -- sessions


def _variables(store: Store, manifest: Manifest, trust: bool) -> tuple[Variable, ...]:
    records: dict[str, layout.Record] = {}
    for part in manifest.parts:
        if part.name.startswith("namespace/"):
            for record in _records(store, manifest, part.name, trust):
                for member in record.members:
                    records.setdefault(member, record)
    sources = _sources(store, manifest, trust)
    cells = {cell.number: cell.text.splitlines() for cell in sources.cells}
    names = {each.label: each.name for each in sources.definitions}

    def memory(label: str) -> bytes:
        if manifest.part(layout.BUFFERS + label) is None:
            return b""
        with store.open(manifest.checkpoint, layout.BUFFERS + label, trust=trust) as stream:
            return stream.read(MOST_MEMORY)

    previews = Previews(records, names, memory)
    found = []
    for each in sources.definitions:
        lines = cells.get(each.cell, [])[each.first - 1 : each.last]
        preview = Preview(type_name=each.kind, text=lines[0].strip() if lines else each.name)
        found += [
            Variable(name=name, preview=preview, source="\n".join(lines)) for name in each.names
        ]
    for imported in sources.imports:
        preview = Preview(type_name="module", text=imported.statement or imported.module)
        found += [Variable(name=name, preview=preview) for name in imported.names]
    told = {each.name for each in found}
    for member in records:
        name = member.removeprefix(layout.NAME)
        if member.startswith(layout.NAME) and name not in told:
            shown = previews.of(member)
            if shown is not None:
                found.append(Variable(name=name, preview=shown))
    return tuple(found)


def _records(store: Store, manifest: Manifest, part: str, trust: bool) -> Iterator[layout.Record]:
    """The records of a part; of a large one those at its beginning."""
    whole = part == layout.SMALL_PART
    with store.open(manifest.checkpoint, part, trust=trust) as stream:
        data = stream.read() if whole else stream.read(_MOST_RECORDS)
    try:
        yield from layout.decode_records(data)
    except Corrupt:
        return  # cut, or another writer's idea of a session


def _sources(store: Store, manifest: Manifest, trust: bool) -> layout.Sources:
    try:
        return msgspec.convert(_value(store, manifest, "sources", trust), layout.Sources)
    except msgspec.ValidationError:
        return layout.Sources()


# -- memory


def _memory(store: Store, manifest: Manifest, trust: bool) -> Memory | None:
    """None where no memory was kept: an engine that keeps files alone, a state, a session."""
    images = [part for part in manifest.parts if part.name.startswith(_MEMORY)]
    if not images:
        return None
    # CRIU writes an image of each address space; a sandbox's config names what ran in it.
    processes = sum(part.name.startswith(f"{_MEMORY}mm-") for part in images)
    if manifest.checkpoint.subject.kind == "sandbox":
        config = _value(store, manifest, "config", trust)
        ran = config.get("processes") if isinstance(config, dict) else None
        processes = len(ran) if isinstance(ran, list) else 0
    return Memory(size=sum(part.size for part in images), images=len(images), processes=processes)
