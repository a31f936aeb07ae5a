"""Trees: values being written as structure nodes, and what is remembered of them.

Whoever writes a value again pays for what changed: a member that is the same, byte for byte, keeps
the nodes it has. Nothing is concluded from a hash, a name or an object that could have changed, and
where a tree is cut depends on the value alone, never on what is remembered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate, chain, zip_longest
from operator import is_
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.msgpack import Ext
from xxhash import xxh3_64_intdigest

from holdfast.model.errors import BadInput
from holdfast.store.chunks.chunk import MAX_CHUNK
from holdfast.store.parts.structure import EMBEDDED, REFERENCE, Value, check_value, decode_value

PutChunk: TypeAlias = Callable[[bytes], bytes]

_INLINE = 512  # encoded values and nodes up to this size stand in their parent
_LEAF = 4096  # and up to this size are one chunk of their own, however nested
_LONG = 256 * 1024  # texts and byte strings beyond this are cut
_RUN_BYTES = 8192
_RUN_MASK = 7  # a run ends, on average, every 8 items
_JOIN_MASK = 15  # and a group of runs every 16
_FEW = 4  # runs; so many are named where the whole stands
_SHIFTED = 4  # members in a row that are not what they were: then they may all have moved

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
    item: Any  # what stands in the parent: the encoding itself, a reference, or a node
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

    __slots__ = ("inner", "joints", "kind", "leaves", "members", "runs", "texts")

    kind: type
    members: dict[str, Twig] | list[Twig]
    inner: int  # the members' sizes together
    texts: list[object]  # what the members of a list were made from
    leaves: list[bytes]  # the chunks of the members
    runs: list[Run]
    joints: dict[bytes, bytes]  # the chunks of nodes above the runs, by what is in them

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
    if isinstance(twig.item, Ext) and twig.item.code == REFERENCE:
        return bytes(twig.item.data), twig
    if twig is not last:  # what stands in no parent has a chunk of its own, behind all others
        if isinstance(twig.item, Ext):
            twig.chunks.append(put(bytes(twig.item.data)))
        else:
            twig.chunks.append(writer.chunk(["v", twig.item]))
    return twig.chunks[-1], twig


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
        # What is known of all members of `old` is not put together again.
        known = old if old is not None and 0 < same == len(old.members) else None
        more = twigs[same:] if known else twigs
        inner = sum([twig.size for twig in more], known.inner if known else 0)
        size = _head_size(len(twigs)) + inner
        if size <= _LEAF:  # it has become small; what a first writer of it would do
            return self._fill(Twig(), key, value, _encode(value))
        branch = Branch()
        branch.text, branch.raw, branch.copy = _NO_VALUE, None, None
        branch.kind, branch.members, branch.inner = kind, members, inner
        if kind is dict:
            branch.texts = []
        else:  # a list that cannot change tells its members better than their twigs do: one may
            # stand for an equal value of another time
            branch.texts = value if self._fixed else [twig.text for twig in twigs]
        branch.leaves = [*chain.from_iterable([twig.chunks for twig in more])]
        if known:
            branch.leaves = known.leaves + branch.leaves
        letter = "m" if kind is dict else "l"
        branch.runs, tail = self._runs(letter, twigs, old, same)
        made = [chunk for _, chunk in branch.runs]
        branch.joints = {}
        item = self._join(letter.upper(), made, tail, branch.joints, old.joints if old else {})
        chunks = [*branch.leaves, *made, *branch.joints.values()]
        return _placed(branch, key, item, chunks, size, bytes(item.data))

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
        strangers = 0  # in a row
        for member, last in zip_longest(value, before[: len(value)]):
            if last is None or type(last) is Branch:
                twig = self.twig(None, member, last)
            elif strangers < _SHIFTED and (last.text is member or _is_same(member, last)):
                twig, strangers = last, 0
            elif strangers < _SHIFTED:
                twig, strangers = self.twig(None, member, last), strangers + 1
            else:
                # Something was inserted or removed further ahead: the member may have moved.
                known = known or {_sign_of(each): each for each in before}
                twig = known.get(_sign(member)) or self.twig(None, member, last)
            members.append(twig)
        return members, 0

    def _runs(
        self, kind: str, twigs: list[Twig], old: Branch | None, same: int
    ) -> tuple[list[Run], bytes]:
        """The members in runs of one chunk each; a run that is as it was keeps its chunk. The
        first `same` members are those of `old`. The last run is a node that stands in its parent,
        where it is small: it is what changes when something is added."""
        before = old.runs if old is not None else []
        # The last one may have ended because the list did.
        ends = [*accumulate([len(members) for members, _ in before[:-1]])]
        keep = bisect_right(ends, same)
        runs, done = before[:keep], ends[keep - 1] if keep else 0
        # By the first member's address, which lasts as long as the tree does.
        known = {id(each[0][0]): each for each in before[keep:]}
        run: list[Twig] = []
        size = 0
        for at, twig in enumerate(twigs[done:], done + 1):
            run.append(twig)
            size += twig.room
            last = at == len(twigs)
            if not last and size < _RUN_BYTES and not twig.ends:
                continue
            if last and size <= _INLINE:
                return runs, _encode([kind, _items(kind, run)])
            found = known.get(id(run[0]))
            if found is None or found[0] != run:
                found = run, self.chunk([kind, _items(kind, run)])
            runs.append(found)
            run, size = [], 0
        return runs, b""

    def _join(
        self,
        kind: str,
        ids: list[bytes],
        tail: bytes,
        joints: dict[bytes, bytes],
        before: dict[bytes, bytes],
    ) -> Ext:
        """What stands for many runs and a node behind them, through as many levels as it takes.
        `joints` is filled with the chunks of these levels; those of `before` are not put again."""

        def put(node: bytes) -> bytes:
            chunk = joints[node] = before.get(node) or self._put(node)
            return chunk

        while len(ids) > _FEW:
            *groups, rest = _groups(ids)
            ids = [put(_joint(kind, each)) for each in groups]
            tail = _joint(kind, rest, tail)
            if len(tail) > _INLINE:
                ids.append(put(tail))
                tail = b""
        if len(ids) == 1 and not tail:
            return Ext(REFERENCE, ids[0])
        node = _joint(kind, ids, tail)
        return Ext(EMBEDDED, node) if len(node) <= _INLINE else Ext(REFERENCE, put(node))

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
    twig.room = len(item.data) + 2 if refers else size
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


def _groups(ids: list[bytes]) -> list[list[bytes]]:
    """Where to cut between runs; the last group is not complete, and may be empty."""
    groups: list[list[bytes]] = []
    begin = 0
    for end, chunk in enumerate(ids, 1):
        # Ids are hashes, so a byte of theirs is as good as a hash of them.
        if (not chunk[0] & _JOIN_MASK and end - begin > 1) or end - begin >= 128:
            groups.append(ids[begin:end])
            begin = end
    return [*groups, ids[begin:]]


def _joint(kind: str, ids: list[bytes], tail: bytes = b"") -> bytes:
    """A node for some runs, and what comes behind them."""
    if not ids:
        return tail
    return _encode([kind, b"".join(ids), Ext(EMBEDDED, tail)] if tail else [kind, b"".join(ids)])


def _head_size(count: int) -> int:
    return 1 if count < 16 else 3 if count < 1 << 16 else 5
