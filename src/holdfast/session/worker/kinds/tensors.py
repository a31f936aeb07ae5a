"""torch's tensors: those that share memory go on doing so, and large memory lies beside the pickle.

torch's own way copies the memory for each tensor, and leaves out gradients.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from holdfast.session.worker.kinds.arrays import LARGE, Memory, location
from holdfast.session.worker.kinds.memory import address
from holdfast.session.worker.missing import Missing, also_given
from holdfast.session.worker.texts import type_module

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduction

# `Any` below: torch is the user's choice, so it is not imported for its types.


def reduce_tensor(recorder: Recorder, obj: Any) -> Reduction:
    """Where it lies in its storage, which is an object of its own that others may have."""
    import torch

    if obj.is_nested:
        from holdfast.session.worker.kinds import models

        return models.nested, ([*obj.unbind()], obj.dtype, obj.layout)
    plain = obj.layout is torch.strided and obj.device.type == "cpu" and not obj.is_quantized
    named = any(getattr(obj, "names", ()))  # older versions have names for dimensions
    if not plain or named or obj.is_conj() or obj.is_neg() or obj.is_shared():
        return recorder.plain(obj)
    if obj.grad_fn is not None:
        recorder.note("a tensor comes back without how it was computed")
    form = obj.dtype, obj.storage_offset(), tuple(obj.shape), obj.stride(), obj.requires_grad
    parameter = isinstance(obj, torch.nn.Parameter)
    grad = obj.grad if obj.is_leaf else None  # torch warns of others, which have none of their own
    made: Reduction = (tensor, (obj.untyped_storage(), *form, parameter, grad))
    attributes = vars(obj)
    return (*made, attributes, None, None, set_attributes) if attributes else made


def reduce_storage(recorder: Recorder, obj: Any) -> Reduction:
    """The memory of tensors."""
    if obj.device.type != "cpu" or obj.is_shared():
        return recorder.plain(obj)
    size = obj.nbytes()
    recorder.check_size(size)
    if not obj.resizable() and (array := _array_over(recorder, obj, size)) is not None:
        return shared_storage, (array,)
    if not obj.resizable():  # torch says so of what was made of an array, or was given out as one
        recorder.note("a tensor no longer shares its memory with an array")
    flat = over(obj)
    if size >= LARGE:
        return storage, (Memory(recorder.buffer(location(flat), size, flat)), size)
    data = flat.tobytes()
    recorder.raw(data)
    return storage, (data, size)


def _array_over(recorder: Recorder, storage: Any, size: int) -> Any:
    """The session's own array with the same memory, if a variable holds it."""
    import numpy

    for value in list(recorder.namespace.values()):
        if type(value) is not numpy.ndarray or value.nbytes != size:
            continue
        whole = value.flags.owndata and value.flags.c_contiguous
        if whole and location(value) == storage.data_ptr():
            return value
    return None


def shared_storage(array: Any) -> Any:
    """The memory of an array, as torch's own."""
    import torch

    return torch.from_numpy(array.reshape(-1).view("u1")).untyped_storage()


def lasting_id(obj: object) -> int:
    """What tells an object from others in all copies of a process: torch makes the object that
    stands for a storage when it is asked for, perhaps in a copy only."""
    if type(obj).__name__ == "UntypedStorage" and type_module(type(obj)) == "torch.storage":
        found: int = obj._cdata  # type: ignore[attr-defined]
        return found
    return id(obj)


def tensor(
    storage: Any,
    dtype: Any,
    offset: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    parameter: bool,
    grad: Any,
    attributes: dict[str, object] | None = None,
) -> Any:
    """A tensor over a storage."""
    import torch

    made = torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, shape, stride)
    if parameter:
        made = torch.nn.Parameter(made, requires_grad)
    else:
        made.requires_grad_(requires_grad)
    made.grad = grad
    vars(made).update(attributes or {})
    return made


def set_attributes(made: Any, attributes: dict[str, object]) -> None:
    """Give a tensor what somebody has set on it."""
    if isinstance(made, Missing):
        also_given(made, attributes=attributes)
    else:
        vars(made).update(attributes)


def storage(memory: Any, size: int) -> Any:
    """Memory of torch's own, with these bytes in it."""
    import torch

    made = torch.empty(size, dtype=torch.uint8, device="cpu").untyped_storage()
    ctypes.memmove(made.data_ptr(), address(memory), size)
    return made


def over(storage: Any) -> Any:
    """An array over all the bytes of a storage. `Tensor.numpy` would do, but from then on torch
    would not let the storage grow."""
    import numpy
    import torch

    return numpy.from_dlpack(torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage))
