"""Memoryviews over the object whose memory they show, so that a write is still seen there, and
C's data, if its memory is its own."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction


class _Buffer(ctypes.Structure):
    """`Py_buffer` of the C API, which begins so in all versions with a stable ABI."""

    _fields_ = (
        ("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    )  # fmt: skip


_FULL_RO = 0x11C  # PyBUF_FULL_RO: any memory, only to be looked at


def address(obj: Any) -> int:
    """Where an object's memory begins. Raises BufferError or TypeError."""
    buffer = _Buffer()
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
    release.argtypes = [ctypes.POINTER(_Buffer)]
    release.restype = None
    get(obj, ctypes.byref(buffer), _FULL_RO)
    try:
        return int(buffer.buf or 0)
    finally:
        release(ctypes.byref(buffer))


def view(owner: Any, offset: int, size: int, form: str, shape: Any, readonly: bool) -> memoryview:
    """A view of a part of an object's memory."""
    whole: Any = memoryview(owner).cast("B")
    made: memoryview = whole[offset : offset + size].cast(form, shape)
    return made.toreadonly() if readonly else made


def released() -> memoryview:
    """A view that shows nothing any more."""
    made = memoryview(b"")
    made.release()
    return made


def _view(recorder: Recorder, obj: memoryview) -> Reduction:
    try:
        owner = obj.obj
    except ValueError:
        return released, ()
    if not obj.c_contiguous or len(obj.format) != 1 or obj.ndim == 0 or obj.nbytes == 0:
        return recorder.hole(obj, "only views of memory in one piece are brought back")
    whole = memoryview(owner)
    if not whole.c_contiguous:
        return recorder.hole(obj, "the memory behind it is not in one piece")
    offset = address(obj) - address(owner)
    readonly = obj.readonly and not whole.readonly
    return view, (owner, offset, obj.nbytes, obj.format, obj.shape, readonly)


def _structure(recorder: Recorder, obj: Any) -> Reduction:
    if not obj._b_needsfree_:
        return recorder.hole(obj, "its memory belongs to another object")
    return recorder.plain(obj)


EXACT: dict[type, Reduce] = {memoryview: _view}
FAMILIES: list[tuple[type, Reduce]] = [(ctypes.c_int.__mro__[2], _structure)]  # all of C's data
