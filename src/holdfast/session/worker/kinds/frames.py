"""pandas' frames: what pandas copies for a pickle keeps its label, or is not copied at all."""

from __future__ import annotations

from typing import Any

from holdfast.session.worker.kinds import arrays
from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

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


def reduce_block(recorder: Recorder, obj: Any) -> Reduction:
    """Columns of one type. Of some rows of a frame pandas makes a copy, another one each time."""
    reduced = recorder.plain(obj)
    if type(reduced) is not tuple or type(reduced[1]) is not tuple or not reduced[1]:
        return reduced
    made, *rest = reduced[1]
    if made is obj.values or arrays.form(made) is None:
        return reduced
    recorder.check_size(made.nbytes)
    return (reduced[0], (Copied(made, recorder.copied(made)), *rest), *reduced[2:])


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
    noted, every = block.mgr_locs, slice(0, len(index), 1)
    if len(block.values) == len(index) and not (noted.is_slice_like and noted.as_slice == every):
        obj = type(obj)(block.make_block_same_class(block.values, type(noted)(every)), index)
    return recorder.plain(obj)


_CLASS_HAS = "_metadata"
_BLOCKS = "pandas.core.internals.blocks"
_ARROW = [
    ("pandas.core.arrays.arrow.array", "ArrowExtensionArray"),
    ("pandas.core.arrays.string_arrow", "ArrowStringArray"),
    ("pandas.core.arrays.string_arrow", "ArrowStringArrayNumpySemantics"),
    ("pandas.arrays", "ArrowExtensionArray"),  # as pandas 3 calls them
    ("pandas.arrays", "ArrowStringArray"),
]
_FRAMES = [("pandas", "DataFrame"), ("pandas.core.frame", "DataFrame")]
_FRAMES += [("pandas", "Series"), ("pandas.core.series", "Series")]
NAMED: dict[tuple[str, str], Reduce] = {
    **dict.fromkeys(_FRAMES, reduce_frame),
    ("pandas.core.internals.managers", "SingleBlockManager"): reduce_series,
    **{(_BLOCKS, name): reduce_block for name in ("NumpyBlock", "NumericBlock")},
    **dict.fromkeys(_ARROW, reduce_texts),
}
