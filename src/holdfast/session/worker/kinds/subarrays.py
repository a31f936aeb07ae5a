"""What is like a numpy array and shares memory as one: subclasses, rows of records, mapped files.

numpy's own pickles of these forget the attributes of a subclass, whose memory it was, and the
file behind a `memmap`.
"""

from __future__ import annotations

import os
from typing import Any

from holdfast.session.worker.kinds import arrays
from holdfast.session.worker.kinds.contract import Recorder, Reduction
from holdfast.session.worker.kinds.files import remap
from holdfast.session.worker.kinds.formulas import refuses
from holdfast.session.worker.kinds.memory import address

# `Any` below: numpy is the user's choice, so it is not imported for its types.

_OWN_WAY = ("__reduce__", "__reduce_ex__", "__setstate__")


class _Part:
    """An array that is nobody's variable, inside a pickle."""

    def __init__(self, reduction: Reduction) -> None:
        self.reduction = reduction

    def __reduce__(self) -> Reduction:
        return self.reduction


def subclass(kind: Any, plain: Any) -> Any:
    """An array of a subclass over the memory of a plain one; its attributes come later."""
    return plain.view(kind)


def set_subclass(made: Any, attributes: dict[str, object]) -> None:
    made.__dict__.update(attributes)


def row(plain: Any) -> Any:
    """A record of a structured array, which still shows that array's memory."""
    return plain[()]


def reduce_subclass(recorder: Recorder, obj: Any) -> Reduction:
    """A plain array or view, and what the subclass adds."""
    import numpy

    kind = type(obj)
    bases = (numpy.ndarray, numpy.ma.MaskedArray)
    own = any(all(getattr(kind, n) is not getattr(b, n) for b in bases) for n in _OWN_WAY)
    own = own and not refuses(kind)
    if own or obj.dtype.hasobject or kind is numpy.ma.core.MaskedConstant:
        return recorder.plain(obj)
    root, _ = arrays.root_of(obj)
    if issubclass(kind, numpy.memmap):
        if root is obj:
            return _mapped(recorder, obj)
        return subclass, (kind, _Part(arrays.view_of(obj, root)))
    own_memory = root is obj or not (root.flags.c_contiguous or root.flags.f_contiguous)
    if own_memory and root is not obj:
        recorder.note("a view of an array comes back as a copy")
    bare = obj.view(numpy.ndarray)
    plain = _Part(arrays.owner_of(recorder, bare) if own_memory else arrays.view_of(obj, root))
    attributes = dict(getattr(obj, "__dict__", None) or {})
    return subclass, (kind, plain), attributes or None, None, None, set_subclass


def reduce_row(recorder: Recorder, obj: Any) -> Reduction:
    """A record that shows an array's memory, or one of its own."""
    if obj.base is None or obj.dtype.hasobject:
        return recorder.plain(obj)
    root, _ = arrays.root_of(obj)
    if root is obj or type(root) is type(obj):
        return recorder.plain(obj)
    place = (address(obj) - arrays.location(root), (), (), obj.dtype, bool(obj.flags.writeable))
    return row, (_Part((arrays.view, (root, *place))),)


def _mapped(recorder: Recorder, obj: Any) -> Reduction:
    """A file in memory: mapped again, not copied. A private copy of one is only memory."""
    if obj.filename is None or obj.mode == "c" or not os.path.isfile(obj.filename):
        recorder.note("a mapped file comes back as an array, no longer tied to the file")
        return arrays.owner_of(recorder, obj.view(_plain_type()))
    found = os.stat(obj.filename)
    known = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    mode = "r" if obj.mode == "r" else "r+"
    order = "C" if obj.flags.c_contiguous else "F"
    recorder.note("mapped again from its file")
    path = os.path.abspath(obj.filename)
    return remap, (path, mode, known, obj.dtype, int(obj.offset), obj.shape, order)


def _plain_type() -> Any:
    import numpy

    return numpy.ndarray
