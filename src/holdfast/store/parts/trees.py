"""Trees: values being written as structure nodes, and what is remembered of them.

Whoever writes a value again pays for what changed: a member that is the same, byte for byte, keeps
the nodes it has. Nothing is concluded from a hash, a name or an object that could have changed, and
where a tree is cut depends on the value alone, never on what is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, zip_longest
from operator import is_
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.msgpack import Ext
from xxhash import xxh3_64_intdigest

from holdfast.model.errors import BadInput
from holdfast.store.chunks.chunk import ID_SIZE, MAX_CHUNK
from holdfast.store.parts.structure import REFERENCE, Value, check_value, decode_value

PutChunk: TypeAlias = Callable[[bytes], bytes]

_INLINE = 512  # encoded values up to this size stand in their parent
_LEAF = 4096  # and up to this size are one chunk of their own, however nested
_LONG = 256 * 1024  # texts and byte strings beyond this are cut
_RUN_BYTES = 8192
_RUN_MASK = 7  # a run ends, on average, every 8 items
_REFERENCE_SIZE = ID_SIZE + 2

_encode = msgspec.msgpack.Encoder().encode
_NO_VALUE = object()
_CONTAINERS = (dict, list)
_SCALARS = frozenset((str, bytes, int, float, bool, type(None)))
_T = TypeVar("_T", bound="Twig")


class Plain:
    """A value that its maker vouches for: it is JSON-like all through, and neither it nor anything
    in it is ever changed. So nobody looks, and what is the very same object is the same value."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class Twig:
    """What stands for one value in the tree. Never changed once it is made."""

    __slots__ = ("chunks", "copy", "ends", "item", "key", "raw", "room", "size", "text")

    text: object  # what it was made from, where that cannot change and so is its own witness
    raw: bytes | None  # the plain encoding of anything else that is not a branch
    copy: Callable[[], Value] | None  # makes another one, where that is quicker than decoding
    item: Any  # what stands in the parent: the encoding itself, or a reference
    chunks: list[bytes]  # every chunk that the value needs
    key: str | None  # under which it stands in a map
    size: int  # of the plain encoding, with the key's
    room: int  # what it takes in a run
    ends: bool  # whether a run ends behind it

    def build(self) -> Value:
        """The value, as new as if it had been read."""
        if self.raw is None:
            return self.text
        return decode_value(self.raw) if self.copy is None else self.copy()


Run: TypeAlias = tuple[list[Twig], bytes]  # members that are one chunk, and its id


class Branch(Twig):
    """What stands for a map or a list that is too large for one chunk."""

    __slots__ = ("kind", "members", "runs", "texts")

    kind: type
    members: dict[str, Twig] | list[Twig]
    texts: list[object]  # of the members of a list
    runs: list[Run]

    def build(self) -> Value:
        if isinstance(self.members, dict):
            return {key: twig.build() for key, twig in self.members.items()}
        return [twig.build() for twig in self.members]


def write_value(value: Value, put: PutChunk) -> tuple[bytes, int]:
    """Store a value; returns the root's id and the size of its plain encoding. Raises BadInput."""
    root, twig = write_tree(value, put)
    return root, twig.size


def write_tree(value: Value | Plain, put: PutChunk, last: Twig | None = None) -> tuple[bytes, Twig]:
    """Store a value of which `last` may be an earlier form; returns the root's id and the tree.

    Only what `last` does not have is put. Raises BadInput for what is not JSON-like.
    """
    fixed = isinstance(value, Plain)
    plain = value.value if isinstance(value, Plain) else check_value(value)
    writer = _Writer(put, fixed)
    twig = writer.twig(None, plain, last)
    if isinstance(twig.item, Ext):
        return bytes(twig.item.data), twig
    if twig is last:
        return twig.chunks[0], twig
    root = writer.chunk(["v", twig.item])
    twig.chunks = [root]
    return root, twig


class _Writer:
    def __init__(self, put: PutChunk, fixed: bool) -> None:
        self._put = put
        self._fixed = fixed  # whether the containers cannot change either

    def twig(self, key: str | None, value: Value, old: Twig | None) -> Twig:
        """What stands for the value: `old` itself when that was the same."""
        kind = type(value)
        if old is not None and old.text is value:
            return old
        if kind is str or kind is bytes:
            if old is not None and type(old.text) is kind and old.text == value:
                return old
        elif type(old) is Branch and old.kind is kind:
            return self._branch(key, value, kind, old)
        raw = _encode(value)
        if old is not None and old.raw == raw:
            return old
        if len(raw) > _LEAF and (kind is dict or kind is list):
            return self._branch(key, value, kind, None)
        return self._fill(Twig(), key, value, raw)

    def _fill(self, twig: Twig, key: str | None, value: Value, raw: bytes) -> Twig:
        """A twig of something that is no branch."""
        kind = type(value)
        fixed = kind is str or kind is bytes
        twig.text = value if fixed or (self._fixed and kind in _CONTAINERS) else _NO_VALUE
        twig.raw = None if fixed else raw
        twig.copy = None
        if self._fixed and (kind is dict or kind is list):
            members = value.values() if kind is dict else value
            if _SCALARS.issuperset(map(type, members)):
                twig.copy = value.copy
        item: Any
        chunks: list[bytes] = []
        if len(raw) <= _INLINE:
            item = msgspec.Raw(raw)
        elif fixed and len(raw) > _LONG:
            item, chunks = self._long(kind, value)
        else:
            chunks = [self.chunk(["v", msgspec.Raw(raw)])]
            item = Ext(REFERENCE, chunks[0])
        return _placed(twig, key, item, chunks, len(raw), raw)

    def _branch(self, key: str | None, value: Value, kind: type, old: Branch | None) -> Twig:
        """A map or a list, member by member."""
        if kind is dict:
            members: dict[str, Twig] | list[Twig] = self._map(value, old)
            twigs, same = list(members.values()), 0  # type: ignore[union-attr]  # a dict's
        else:
            twigs, same = self._list(value, old)
            members = twigs
        if old is not None and twigs == _twigs(old) and key == old.key:
            return old
        size = _head_size(len(twigs)) + sum([twig.size for twig in twigs])
        if size <= _LEAF:  # it has become small; what a first writer of it would do
            return self._fill(Twig(), key, value, _encode(value))
        branch = Branch()
        branch.text, branch.raw, branch.copy = _NO_VALUE, None, None
        branch.kind, branch.members = kind, members
        branch.texts = [] if kind is dict else [twig.text for twig in twigs]
        branch.runs = self._runs("m" if kind is dict else "l", twigs, old, same)
        run_ids = [chunk for _, chunk in branch.runs]
        root, joints = self._join("M" if kind is dict else "L", run_ids)
        chunks = [*chain.from_iterable([twig.chunks for twig in twigs])]
        chunks += run_ids
        chunks += joints
        return _placed(branch, key, Ext(REFERENCE, root), chunks, size, root)

    def _map(self, value: dict[str, Value], old: Branch | None) -> dict[str, Twig]:
        before = old.members if old is not None and isinstance(old.members, dict) else {}
        find, twig = before.get, self.twig
        return {key: twig(key, member, find(key)) for key, member in value.items()}

    def _list(self, value: list[Value], old: Branch | None) -> tuple[list[Twig], int]:
        """The members, and how many at the beginning are surely what they were."""
        before = old.members if old is not None and isinstance(old.members, list) else []
        if old is not None and before and all(map(is_, value, old.texts)):
            # As a list that grows at its end: one step, however long it is.
            same = min(len(value), len(before))
            return before[:same] + [self.twig(None, each, None) for each in value[same:]], same
        members: list[Twig] = []
        known: dict[object, Twig] = {}
        for member, last in zip_longest(value, before[: len(value)]):
            if last is None or type(last) is Branch:
                twig = self.twig(None, member, last)
            elif not known and (last.text is member or _is_same(member, last)):
                twig = last
            else:
                # Something was inserted or removed further ahead: the member may have moved.
                known = known or {_sign_of(each): each for each in before}
                twig = known.get(_sign(member)) or self.twig(None, member, last)
            members.append(twig)
        return members, 0

    def _runs(self, kind: str, twigs: list[Twig], old: Branch | None, same: int) -> list[Run]:
        """The members in runs of one chunk each; a run that is as it was keeps its chunk. The
        first `same` members are those of `old`."""
        before = old.runs if old is not None else []
        runs: list[Run] = []
        done = 0
        # The last one may have ended because the list did.
        for each in before[:-1]:
            if done + len(each[0]) > same:
                break
            done += len(each[0])
            runs.append(each)
        # By the first member's address, which lasts as long as the tree does.
        known = {id(each[0][0]): each for each in before[len(runs) :]}
        run: list[Twig] = []
        size = 0
        for twig in [*twigs[done:], None]:
            if twig is not None:
                run.append(twig)
                size += twig.room
                if size < _RUN_BYTES and not twig.ends:
                    continue
            if not run:
                break
            found = known.get(id(run[0]))
            if found is None or found[0] != run:
                found = run, self.chunk([kind, _items(kind, run)])
            runs.append(found)
            run, size = [], 0
        return runs

    def _join(self, kind: str, ids: list[bytes]) -> tuple[bytes, list[bytes]]:
        """One node for many runs, through as many levels as it takes; and the nodes of these."""
        made: list[bytes] = []
        while len(ids) > 1:
            level: list[bytes] = []
            group: list[bytes] = []
            for chunk in ids:
                group.append(chunk)
                # Ids are hashes, so a byte of theirs is as good as a hash of them.
                if len(group) >= 128 or (len(group) > 1 and not chunk[0] & 15):
                    level.append(self.chunk([kind, b"".join(group)]))
                    group = []
            if group:
                level.append(self.chunk([kind, b"".join(group)]))
            made += level
            ids = level
        return ids[0], made

    def _long(self, kind: type, value: str | bytes) -> tuple[Ext, list[bytes]]:
        data = value.encode() if isinstance(value, str) else value
        pieces = [self._put(data[at : at + _LONG]) for at in range(0, len(data), _LONG)]
        node = self.chunk(["s" if kind is str else "b", b"".join(pieces)])
        return Ext(REFERENCE, node), [*pieces, node]

    def chunk(self, node: list[Value]) -> bytes:
        data = _encode(node)
        if len(data) > MAX_CHUNK:
            raise BadInput(f"a key or a number is longer than {MAX_CHUNK} bytes")
        return self._put(data)


def _placed(
    twig: _T, key: str | None, item: Any, chunks: list[bytes], size: int, content: bytes
) -> _T:
    """The twig with what it is to its parent. A run of a map ends by its keys, of a list by what
    stands in it."""
    refers = isinstance(item, Ext)
    twig.key, twig.item, twig.chunks, twig.size = key, item, chunks, size
    twig.room = _REFERENCE_SIZE if refers else size
    if key is not None:
        twig.room += len(key)
        twig.size += len(_encode(key))
        content = key.encode()
    elif refers:
        content = bytes(item.data)
    twig.ends = not xxh3_64_intdigest(content) & _RUN_MASK
    return twig


def _is_same(value: Value, twig: Twig) -> bool:
    if twig.raw is not None:
        return twig.raw == _encode(value)
    return type(twig.text) is type(value) and twig.text == value


def _sign_of(twig: Twig) -> object:
    return _sign(twig.text) if twig.raw is None and type(twig) is Twig else twig.raw


def _sign(value: Value) -> object:
    """What tells one member from another: a text itself, and the encoding of all else."""
    return value if type(value) is str else _encode(value)


def _twigs(branch: Branch) -> list[Twig]:
    members = branch.members
    return list(members.values()) if isinstance(members, dict) else members


def _items(kind: str, run: Iterable[Twig]) -> list[Value]:
    if kind == "l":
        return [twig.item for twig in run]
    return [part for twig in run for part in (twig.key, twig.item)]


def _head_size(count: int) -> int:
    return 1 if count < 16 else 3 if count < 1 << 16 else 5
