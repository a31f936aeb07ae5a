"""What libraries for learning keep outside of Python: by their own ways to write it down.

xgboost's, lightgbm's and catboost's data, torch's optimizers, scripted and parametrized modules and
loaders in the middle of an epoch, keras' metrics and optimizers. None of them is imported here
before a checkpoint holds one.
"""

from __future__ import annotations

import copyreg
import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduction

# `Any` below: objects of libraries that only some sessions load.


def _through_a_file(write: Callable[[str], object]) -> bytes:
    """What a library writes, where it writes only to files."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data")
        write(path)
        return Path(path).read_bytes()


def _from_a_file(data: bytes, read: Callable[[str], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data")
        Path(path).write_bytes(data)
        return read(path)


# -- xgboost, lightgbm, catboost -----------------------------------------------------------


def matrix(data: bytes) -> Any:
    """xgboost's `DMatrix`."""
    import xgboost  # type: ignore[import-not-found,unused-ignore]

    return _from_a_file(data, lambda path: xgboost.DMatrix(path))


def reduce_matrix(recorder: Recorder, obj: Any) -> Reduction:
    """By its own binary form."""
    return matrix, (_through_a_file(lambda path: obj.save_binary(path, silent=True)),)


def dataset(data: bytes, params: dict[str, Any], raw: Any, names: Any) -> Any:
    """lightgbm's `Dataset`, constructed."""
    import lightgbm  # type: ignore[import-not-found,unused-ignore]

    made = _from_a_file(data, lambda path: lightgbm.Dataset(path, params=params).construct())
    made.data = raw
    made.feature_name = names
    return made


def reduce_dataset(recorder: Recorder, obj: Any) -> Reduction:
    """By its own binary form, once it is constructed; before that it is plain."""
    if obj._handle is None:
        return recorder.plain(obj)
    if obj.reference is not None or obj.used_indices is not None:
        return recorder.hole(obj, "it belongs to another Dataset; make it again from its data")
    data = _through_a_file(obj.save_binary)
    raw = None if isinstance(obj.data, str | Path) else obj.data
    return dataset, (data, dict(obj.params or {}), raw, obj.feature_name)


def pool(features: Any, label: Any, names: Any, weight: Any) -> Any:
    """catboost's `Pool`."""
    import catboost  # type: ignore[import-not-found,unused-ignore]

    return catboost.Pool(features, label, feature_names=names, weight=weight)


def reduce_pool(recorder: Recorder, obj: Any) -> Reduction:
    """By what it can be asked for: numbers, labels, names and weights."""
    import numpy

    special = (obj.get_cat_feature_indices(), obj.get_text_feature_indices())
    if any(special) or obj.is_quantized() or obj.num_pairs():
        return recorder.hole(obj, "it has more than numbers; make it again from its data")
    label = numpy.asarray(obj.get_label()) if obj.has_label() else None
    weight = obj.get_weight()
    weights = None if all(each == 1 for each in weight) else numpy.asarray(weight)
    return pool, (obj.get_features(), label, obj.get_feature_names(), weights)


# -- torch -----------------------------------------------------------------------------------


def optimizer(kind: type) -> Any:
    """An optimizer of torch, still without its state."""
    return object.__new__(kind)


def set_optimizer(made: Any, state: tuple[Any, dict[str, Any]]) -> None:
    """Its own state, and what its own way of being pickled leaves out."""
    own, more = state
    made.__setstate__(own)
    for name, value in more.items():
        made.__dict__.setdefault(name, value)


def reduce_optimizer(recorder: Recorder, obj: Any) -> Reduction:
    """torch keeps only `defaults`, `state` and `param_groups`."""
    own = obj.__getstate__()
    more = {name: value for name, value in vars(obj).items() if name not in own}
    step = more.pop("step", None)  # a scheduler puts a wrapper of its own there
    more = {n: v for n, v in more.items() if not n.startswith("_optimizer_") and n != "_profile"}
    if step is not None and getattr(step, "_wrapped_by_lr_sched", False):
        more["step"] = step
    return optimizer, (type(obj),), (own, more), None, None, set_optimizer


def parametrized(kind: type) -> Any:
    """A module of torch with parametrizations, still without its parts."""
    return object.__new__(kind)


def set_parametrized(made: Any, state: dict[str, Any]) -> None:
    """Its parts, and the class that gives the parametrized ones."""
    from torch.nn.utils import parametrize

    made.__dict__.update(state)
    parametrize._inject_new_class(made)
    for name in made.parametrizations:
        parametrize._inject_property(made, name)


def reduce_module(recorder: Recorder, obj: Any) -> Reduction:
    """torch refuses modules whose class it made for their parametrizations."""
    kind = type(obj)
    if kind.__module__ != "torch.nn.utils.parametrize" or "parametrizations" not in obj._modules:
        return recorder.plain(obj)
    state = dict(vars(obj))
    return parametrized, (kind.__mro__[1],), state, None, None, set_parametrized


def scripted(data: bytes) -> Any:
    """What torch has compiled."""
    import torch

    return torch.jit.load(io.BytesIO(data))


def reduce_scripted(recorder: Recorder, obj: Any) -> Reduction:
    """By torch's own form."""
    import torch

    file = io.BytesIO()
    torch.jit.save(obj, file)
    return scripted, (file.getvalue(),)


def reduce_loading(recorder: Recorder, obj: Any) -> Reduction:
    """A loader in the middle of an epoch, if it loads in the session itself."""
    return copyreg.__newobj__, (type(obj),), dict(vars(obj))  # type: ignore[attr-defined]


def nested(parts: list[Any], dtype: Any, layout: Any) -> Any:
    """A nested tensor."""
    import torch

    return torch.nested.nested_tensor(parts, dtype=dtype, layout=layout)


# -- keras -----------------------------------------------------------------------------------


def counted(made: Any, values: list[Any]) -> Any:
    """A metric or an optimizer of keras, with the values of its variables."""
    for variable, value in zip(made.variables, values, strict=False):
        variable.assign(value)
    return made


class _Plain:
    """An object as its own pickling has it."""

    def __init__(self, obj: Any) -> None:
        self._obj = obj

    def __reduce__(self) -> Reduction:
        return self._obj.__reduce__()


def reduce_counted(recorder: Recorder, obj: Any) -> Reduction:
    """keras keeps how it was made, but not what it has counted."""
    import numpy

    values = [numpy.asarray(each) for each in obj.variables]
    return counted, (_Plain(obj), values)


# -- jax -------------------------------------------------------------------------------------


def device(platform: str, index: int) -> Any:
    """One of jax's devices."""
    import jax  # type: ignore[import-not-found,unused-ignore]

    return next(each for each in jax.devices(platform) if each.id == index)


def reduce_device(recorder: Recorder, obj: Any) -> Reduction:
    """By its platform and number."""
    return device, (obj.platform, obj.id)


def jitted(function: Any, numbers: list[int], names: list[str], donated: Any) -> Any:
    """A function that jax compiles when it is called."""
    import jax

    options = {"static_argnums": tuple(numbers), "static_argnames": tuple(names)}
    return jax.jit(function, donate_argnums=tuple(donated), **options)


def reduce_jitted(recorder: Recorder, obj: Any) -> Reduction:
    """By its function; it is compiled again."""
    state = obj.__getstate__()
    key = state.get("global_cache_key")
    shardings = [getattr(key, f"{side}_shardings_leaves", ()) for side in ("in", "out")]
    if any(type(each).__name__ != "UnspecifiedValue" for leaves in shardings for each in leaves):
        return recorder.hole(obj, "it has shardings: make it again with jax.jit")
    donated = getattr(key, "donate_argnums", ())
    return jitted, (state["fun"], state["static_argnums"], state["static_argnames"], donated)


def registry() -> Any:
    """The types that jax knows as trees."""
    import jax

    return jax.tree_util.default_registry


def reduce_registry(recorder: Recorder, obj: Any) -> Reduction:
    """There is one for all."""
    import jax

    if obj is not jax.tree_util.default_registry:
        return recorder.hole(obj, "it is not jax's own registry")
    return registry, ()


# -- numba -----------------------------------------------------------------------------------


def typed_list(item: Any) -> Any:
    """numba's typed list, still empty."""
    from numba import typed  # type: ignore[import-not-found,unused-ignore]

    return typed.List() if item is None else typed.List.empty_list(item)


def set_list(made: Any, items: list[Any]) -> None:
    """Fill it."""
    for each in items:
        made.append(each)


def reduce_list(recorder: Recorder, obj: Any) -> Reduction:
    """By its type and its items."""
    item = obj._list_type.item_type if obj._typed else None
    return typed_list, (item,), [*obj] if item is not None else None, None, None, set_list


def typed_dict(key: Any, value: Any) -> Any:
    """numba's typed dict, still empty."""
    from numba import typed

    return typed.Dict() if key is None else typed.Dict.empty(key, value)


def set_dict(made: Any, items: list[tuple[Any, Any]]) -> None:
    """Fill it."""
    for key, value in items:
        made[key] = value


def reduce_dict(recorder: Recorder, obj: Any) -> Reduction:
    """By its types and its items."""
    key, value = obj._dict_type.keyvalue_type if obj._typed else (None, None)
    items = [*obj.items()] if key is not None else None
    return typed_dict, (key, value), items, None, None, set_dict
