"""numpy arrays: large ones keep their memory beside the pickle, views stay views of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.session.worker.kinds.memory import address
from holdfast.session.worker.placeholder import PlaceholderError
from holdfast.session.worker.texts import type_module

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduction

# `Any` below: numpy is the user's choice, so it is not imported for its types.

LARGE = 1 << 20  # memory of this size is kept beside the record
MANY = 8192  # objects; fewer are pickled where they are, and not in a block (`blocks.py`)
# Libraries that hand out arrays over memory which nobody else writes to, unless it is a buffer that
# anybody can have.
_PRIVATE = {"numpy", "pandas", "pyarrow", "scipy", "sklearn"}
_BUFFERS = {"Buffer", "ResizableBuffer"}  # of pyarrow
_NAME = type.__dict__["__name__"].__get__  # no metaclass is asked
_PLAIN = "biufcmM"  # kinds of items whose bytes say all


class Memory:
    """An array's memory inside a pickle: only a reference to it."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __reduce__(self) -> Reduction:
        return memory, (self.label,)


class Values(Memory):
    """An array's objects inside a pickle."""

    def __reduce__(self) -> Reduction:
        return values, (self.label,)


def memory(label: str) -> Any:
    """The bytes of a buffer that is kept beside the records."""
    raise RuntimeError("a session's record can only be read by a session that restores it")


def array(memory: Any, shape: tuple[int, ...], dtype: Any, order: Any) -> Any:
    """An array that owns its memory, with these bytes in it."""
    made = empty(shape, dtype, order)
    fill(made, memory)
    return made


def empty(shape: tuple[int, ...], dtype: Any, order: Any) -> Any:
    """An array that owns its memory, with anything in it."""
    import numpy

    return numpy.empty(shape, _one_of_a_kind(dtype), order)


def fill(array: Any, memory: Any) -> None:
    """Put bytes into an array."""
    import numpy

    flat = array.reshape(-1, order="A").view(numpy.uint8)
    flat[:] = numpy.frombuffer(memory, numpy.uint8)


def owned(data: bytes, shape: tuple[int, ...], dtype: Any, order: Any) -> Any:
    """The same for bytes that are in the record itself."""
    return array(data, shape, dtype, order)


def values(label: str) -> Any:
    """The values of an array that has them in a record of their own."""
    return memory(label)  # which explains itself


def objects(values: Any, shape: tuple[int, ...], order: Any) -> Any:
    """An array of Python objects: a list of them, or a list and the number of each."""
    import numpy

    numbers = None
    if type(values) is tuple:
        values, numbers = values
    made = numpy.empty(len(values), dtype=object)
    try:
        made[:] = values
    except PlaceholderError:  # numpy asks each value whether it is an array
        for at, value in enumerate(values):
            made[at] = value
    if numbers is not None:
        made = made[numpy.frombuffer(numbers, "<u4")]
    return made.reshape(shape, order=order)


def view(root: Any, offset: int, shape: Any, strides: Any, dtype: Any, writeable: bool) -> Any:
    """A view of the array, or of the bytes, that own the memory."""
    import numpy

    array = isinstance(root, numpy.ndarray)
    if array and writeable and not root.flags.writeable:
        # It was made before its array became read-only, and may still be written to.
        root.flags.writeable = True
        try:
            return view(root, offset, shape, strides, dtype, writeable)
        finally:
            root.flags.writeable = False
    if dtype.hasobject:
        return _view_of_objects(root, offset, shape, strides, writeable)
    plain = root.view(numpy.ndarray) if array else root
    if type(root) is bytearray and root:
        # It keeps hold of the memory: else a bytearray that grows takes it from under the array.
        plain = numpy.frombuffer(root, numpy.uint8)
    buffer = plain.T if array and not root.flags.c_contiguous else plain
    made = numpy.ndarray(shape, _one_of_a_kind(dtype), buffer, offset, strides)
    if writeable and type(root) is bytes:
        return made.copy()  # of a checkpoint that took such bytes for somebody else's
    made.flags.writeable = writeable
    return made


def _view_of_objects(root: Any, offset: int, shape: Any, strides: Any, writeable: bool) -> Any:
    """The same for references to objects, which numpy takes from no buffer."""
    import numpy

    flat = (root if root.flags.c_contiguous else root.T).reshape(-1)
    beginning = flat[offset // root.itemsize :]
    return numpy.lib.stride_tricks.as_strided(beginning, shape, strides, writeable=writeable)


def set_read_only(made: Any, state: tuple[Any]) -> None:
    """Fill an array, if that is still to be done, and let nobody write to it."""
    if state[0] is not None:
        made.__setstate__(state[0])
    made.flags.writeable = False


def _one_of_a_kind(dtype: Any) -> Any:
    """The object that numpy has for a plain dtype; a pickle makes a copy of it."""
    import numpy

    return numpy.dtype(dtype.str) if dtype.kind in "biufc" and dtype.metadata is None else dtype


def location(obj: Any) -> int:
    """The address of an array's memory."""
    found: int = obj.__array_interface__["data"][0]
    return found


def is_array(kind: type) -> bool:
    """Whether this is numpy's own type, no subclass; numpy itself may not even be there."""
    return _NAME(kind) == "ndarray" and type_module(kind) == "numpy"


def is_subclass(kind: type) -> bool:
    """Whether this is a subclass of numpy's array."""
    return any(is_array(base) for base in type.mro(kind)[1:])


def form(obj: Any) -> tuple[object, ...] | None:
    """All that the record of a large array says, but for the label of its memory.

    None for everything else, and for arrays of which more is to be said.
    """
    if not is_array(type(obj)) or obj.base is not None:
        return None
    dtype, flags = obj.dtype, obj.flags
    if obj.nbytes < LARGE or dtype.kind not in "biufc" or dtype.isbuiltin != 1 or dtype.metadata:
        return None
    if not (flags.c_contiguous or flags.f_contiguous) or not flags.writeable:
        return None
    return obj.shape, dtype.str, "C" if flags.c_contiguous else "F"


def reduce_array(recorder: Recorder, obj: Any) -> Reduction:
    """A view goes together with what owns its memory, so that it stays a view."""
    root, owner = root_of(obj)
    if type(owner) is memoryview:
        owner = owner.obj  # `numpy.frombuffer` holds it so
    if type(owner) is bytes and root.flags.writeable:
        # numpy took them over when it read the array from a pickle: nobody else has them.
        owner = None
    if type(owner) in (bytes, bytearray) and not root.dtype.hasobject:
        return view_of(obj, owner, address(owner))
    if owner is not None and root.flags.writeable and _shows(owner):
        recorder.note("an array over memory of another object comes back with its own")
    if root is obj:
        return owner_of(recorder, obj)
    if not (root.flags.c_contiguous or root.flags.f_contiguous) or not _shown(obj, root):
        recorder.note("a view of an array comes back as a copy")
        return owner_of(recorder, obj)
    return view_of(obj, root)


def _shown(obj: Any, root: Any) -> bool:
    """Whether a view can be made again. A few of many objects are copied: each of
    the others would be pickled, too."""
    if not obj.dtype.hasobject:
        return True
    plain = obj.dtype == root.dtype == object and is_array(type(root))
    return plain and (root.size < MANY or 2 * obj.size >= root.size)


def reduce_limits(recorder: Recorder, obj: Any) -> Reduction:
    """What numpy knows about a kind of numbers: asked again."""
    return type(obj), (obj.dtype,)


def root_of(obj: Any) -> tuple[Any, Any]:
    """The array that a view is of in the end, and the object that owns its memory, if not it."""
    root, owner = obj, obj.base
    while owner is not None:
        step = owner
        while _NAME(type(step)) == "DummyArray" and type_module(type(step)).startswith("numpy."):
            step = step.base  # numpy's stride tricks hold their array through one of these
        if type(step) is memoryview:
            step = step.obj  # `numpy.frombuffer` holds it so; what it is of may be an array
        if not (is_array(type(step)) or is_subclass(type(step))):
            break
        root, owner = step, step.base
    return root, owner


def view_of(obj: Any, owner: Any, address: int | None = None) -> Reduction:
    """A part of an owner's memory, which is an array if no address is given."""
    offset = location(obj) - (location(owner) if address is None else address)
    place = (offset, obj.shape, obj.strides, obj.dtype, bool(obj.flags.writeable))
    return view, (owner, *place)


def _shows(owner: Any) -> bool:
    """Whether somebody else may see what is written to the memory of this object."""
    library = type(owner).__module__.partition(".")[0]
    return library not in _PRIVATE or _NAME(type(owner)) in _BUFFERS


def owner_of(recorder: Recorder, obj: Any) -> Reduction:
    """An array by its content, which becomes its own memory."""
    recorder.check_size(obj.nbytes)
    flags = obj.flags
    whole = flags.c_contiguous or flags.f_contiguous
    if obj.nbytes >= LARGE and whole and obj.dtype.kind in _PLAIN and obj.dtype.names is None:
        order = "C" if flags.c_contiguous else "F"
        bare = obj.view("i8") if obj.dtype.kind in "mM" else obj  # times have no buffers
        label = recorder.buffer(location(obj), obj.nbytes, bare)
        made: Reduction = (array, (Memory(label), obj.shape, obj.dtype, order))
    elif (block := _block(recorder, obj) if whole else None) is not None:
        made = (objects, (Values(block), obj.shape, "C" if flags.c_contiguous else "F"))
    else:
        made = obj.__reduce__()
        _, shape, dtype, fortran, data = made[2]
        if type(data) is bytes:
            # numpy would use these bytes as the array's memory when they are not few: such an
            # array does not own it, cannot be resized, and writes to what cannot change.
            made = (owned, (data, shape, dtype, "F" if fortran else "C")) if data else made
            if obj.dtype.kind in _PLAIN:
                recorder.raw(data)
    if not flags.writeable:
        state = made[2] if len(made) > 2 else None
        return (*made[:2], (state,), None, None, set_read_only)
    return made


def _block(recorder: Recorder, obj: Any) -> str | None:
    """The label of the values of a long array of objects, where they cannot change."""
    long = obj.dtype.kind == "O" and obj.size >= MANY and not obj.dtype.metadata
    return recorder.block(obj) if long and is_array(type(obj)) else None
