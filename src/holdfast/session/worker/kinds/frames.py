"""pandas' frames, series and indexes: what pandas copies for a pickle keeps its label, or is not
copied at all, and what waits to be copied until it is written to goes on waiting.

With Copy-on-Write, a column, a slice or a shallow copy has the memory of the frame that it came
from. Each block of columns, and each index, has an object that lists weakly who else has that
memory; pandas copies the memory before a write when somebody else is in the list. pandas' own
pickles leave the lists out, while our arrays still share their memory, so each list comes back as
an object of its own that all who were in it enter again.
"""

from __future__ import annotations

from typing import Any

from holdfast.session.worker.kinds import arrays
from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction
from holdfast.session.worker.missing import Missing, set_later

# `Any` below: pandas is the user's choice, so it is not imported for its types.


class Copied:
    """An array that was made for the pickle, inside of it."""

    def __init__(self, made: Any, label: str) -> None:
        self._made = made
        self._label = label

    def __reduce__(self) -> Reduction:
        order = "C" if self._made.flags.c_contiguous else "F"
        memory = arrays.Memory(self._label)
        return arrays.array, (memory, self._made.shape, self._made.dtype, order)


def set_block(made: Any, state: tuple[Any]) -> None:
    """Enter a block of columns in the list of those that share its memory."""
    if isinstance(made, Missing):
        set_later(made, set_block, state)
        return
    made.refs = state[0]
    state[0].add_reference(made)


def set_series(made: Any, state: tuple[Any, Any]) -> None:
    """Fill the manager of a series, and enter its block in the list."""
    if isinstance(made, Missing):
        set_later(made, set_series, state)
        return
    made.__setstate__(state[0])
    set_block(made.blocks[0], (state[1],))


def set_index(made: Any, state: tuple[Any]) -> None:
    """Enter an index in the list of those that share its memory."""
    if isinstance(made, Missing):
        set_later(made, set_index, state)
        return
    made._references = state[0]
    state[0].add_index_reference(made)


def reduce_block(recorder: Recorder, obj: Any) -> Reduction:
    """Columns of one type. Of some rows of a frame pandas makes a copy, another one each time."""
    reduced = recorder.plain(obj)
    if type(reduced) is not tuple or type(reduced[1]) is not tuple or not reduced[1]:
        return reduced
    made, *rest = reduced[1]
    if made is not obj.values and arrays.form(made) is not None:
        recorder.check_size(made.nbytes)
        return (reduced[0], (Copied(made, recorder.copied(made)), *rest), *reduced[2:])
    shared = _shared(obj.refs)
    if shared is None or len(reduced) > 2:
        return reduced
    return (*reduced, (shared,), None, None, set_block)


def reduce_references(recorder: Recorder, obj: Any) -> Reduction:
    """Who shares memory: those of them that come back enter again by themselves."""
    return type(obj), ()


def reduce_index(recorder: Recorder, obj: Any) -> Reduction:
    """An index. A series or a column may have its memory, and be written to."""
    reduced = recorder.plain(obj)
    shared = _shared(getattr(obj, "_references", None))
    if shared is None or type(reduced) is not tuple or any(reduced[2:]):
        return reduced
    return (*reduced[:2], (shared,), None, None, set_index)


def _shared(references: Any) -> Any:
    """The list of who shares memory; None where nobody could notice a write."""
    noted = getattr(references, "referenced_blocks", None)  # older versions have none
    if noted is None or len(noted) < 2:
        return None
    living = [each for reference in list(noted) if (each := reference()) is not None]
    # Indexes are not written to: among themselves they may share whatever they like.
    return references if len(living) > 1 and any(map(_is_block, living)) else None


def _is_block(obj: Any) -> bool:
    return hasattr(type(obj), "mgr_locs")


def reduce_texts(recorder: Recorder, obj: Any) -> Reduction:
    """A column that Arrow keeps. Pandas would put its pieces together, or copy the only one, in
    another place each time; as they are they come back as they were."""
    reduced = recorder.plain(obj)
    if type(reduced) is tuple and len(reduced) > 2 and type(reduced[2]) is dict:
        pieces = object.__getattribute__(obj, "_pa_array")
        if "_pa_array" in reduced[2] and (pieces.num_chunks > 1 or _fills(pieces)):
            return (*reduced[:2], {**reduced[2], "_pa_array": pieces}, *reduced[3:])
    return reduced


def _fills(pieces: Any) -> bool:
    """Whether a column is most of its memory: of a few rows of a long one a copy is small."""
    whole: int = pieces.get_total_buffer_size()
    return whole <= 2 * pieces.nbytes  # type: ignore[no-any-return]


def reduce_frame(recorder: Recorder, obj: Any) -> Reduction:
    """A frame or a series. A list of its class is in what pandas pickles: all frames would seem to
    have something in common, and after a restore none would have it in common with its class."""
    reduced = recorder.plain(obj)
    if type(reduced) is not tuple or len(reduced) < 3 or type(reduced[2]) is not dict:
        return reduced
    own = getattr(type(obj), _CLASS_HAS, None)
    state = {k: v for k, v in reduced[2].items() if k != _CLASS_HAS or v is not own}
    return (*reduced[:2], state, *reduced[3:])


def reduce_series(recorder: Recorder, obj: Any) -> Reduction:
    """What a series holds. After `del series[label]` and `pop` pandas' own note of the values'
    places still has the last one, which is no more, and pandas fails to pickle it."""
    (block,), index = obj.blocks, obj.axes[0]
    shared = _shared(block.refs)
    noted, every = block.mgr_locs, slice(0, len(index), 1)
    if len(block.values) == len(index) and not (noted.is_slice_like and noted.as_slice == every):
        obj = type(obj)(block.make_block_same_class(block.values, type(noted)(every)), index)
    reduced = recorder.plain(obj)
    if type(reduced) is not tuple or len(reduced) < 3 or type(reduced[2]) is not tuple:
        return reduced
    # The first three parts are for pandas of long ago. They hold a slice of the index, made for
    # the pickle, which would stand in the index's list and in the record.
    state = ([], [], [], *reduced[2][3:])
    if shared is None:
        return (*reduced[:2], state, *reduced[3:])
    return (*reduced[:2], (state, shared), None, None, set_series)


_CLASS_HAS = "_metadata"
_ARROW = [
    ("pandas.core.arrays.arrow.array", "ArrowExtensionArray"),
    ("pandas.core.arrays.string_arrow", "ArrowStringArray"),
    ("pandas.core.arrays.string_arrow", "ArrowStringArrayNumpySemantics"),
    ("pandas.arrays", "ArrowExtensionArray"),  # as pandas 3 calls them
    ("pandas.arrays", "ArrowStringArray"),
]
_FRAMES = [("pandas", "DataFrame"), ("pandas.core.frame", "DataFrame")]
_FRAMES += [("pandas", "Series"), ("pandas.core.series", "Series")]
_INDEX = [("pandas", "Index"), ("pandas.core.indexes.base", "Index")]
BASES: dict[tuple[str, str], Reduce] = {
    **dict.fromkeys(_INDEX, reduce_index),
    ("pandas.core.internals.blocks", "Block"): reduce_block,
}
NAMED: dict[tuple[str, str], Reduce] = {
    **dict.fromkeys(_FRAMES, reduce_frame),
    ("pandas.core.internals.managers", "SingleBlockManager"): reduce_series,
    ("pandas._libs.internals", "BlockValuesRefs"): reduce_references,
    **dict.fromkeys(_ARROW, reduce_texts),
    **dict.fromkeys(_INDEX, reduce_index),
}
