"""Settings that libraries keep for themselves, and how each is read and set: one table.

A library's settings are noted when it was imported, before a cell can change them. Only what
differs from that is kept; a restore sets it after the import, and sets the rest back. A setting is
found by its way from the library's module, `backends.cudnn.benchmark`. One that is gone, in a newer
library for instance, is told by its name and costs no other.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.session.worker.loading import Loading
from holdfast.session.worker.placeholder import Placeholder

# `Any` below: each library has forms of its own, and none of them is imported for its types.


class Setting(msgspec.Struct, frozen=True):
    """One setting, or a few of a kind, of a library. All three get the library's module."""

    note: Callable[[Any], Any]  # what it is at the import
    read: Callable[[Any, Any], Any]  # given that, what to keep; or `UNCHANGED`
    write: Callable[[Any, Any, Any], None]  # given that and what was kept, or `UNCHANGED`


class UnknownSettings(Exception):
    """Settings of a library that could not be set, and why."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))


UNCHANGED: Any = object()


def _value(get: Callable[[Any], Any], put: Callable[[Any, Any], None]) -> Setting:
    """A setting that is kept as it is."""

    def read(module: Any, before: Any) -> Any:
        now = get(module)
        return UNCHANGED if now == before else now

    def write(module: Any, before: Any, kept: Any) -> None:
        if kept is not UNCHANGED or get(module) != before:
            put(module, before if kept is UNCHANGED else kept)

    return Setting(get, read, write)


def _many(get: Callable[[Any], Any], put: Callable[[Any, Any], None], path: str = "") -> Setting:
    """Settings in a dict, of which those are kept that changed; `path` leads to the dict itself,
    which is compared before it is copied."""

    def read(module: Any, before: Any) -> Any:
        if path and _at(module, path) == before:
            return UNCHANGED
        now = get(module)
        if now == before:
            return UNCHANGED
        changed = {k: v for k, v in now.items() if k not in before or before[k] != v}
        return {"set": changed, "delete": [key for key in before if key not in now]}

    def write(module: Any, before: Any, kept: Any) -> None:
        if kept is not UNCHANGED:
            left = {key: value for key, value in before.items() if key not in kept["delete"]}
            # A secret that was not given again is not set.
            now = {k: v for k, v in kept["set"].items() if not isinstance(v, Placeholder)}
            put(module, left | now)
        elif get(module) != before:
            put(module, before)

    return Setting(get, read, write)


def _at(module: Any, path: str) -> Any:
    found = module
    for step in path.split(".") if path else ():
        found = getattr(found, step)
    return found


def _asked(getter: str, setter: str) -> Setting:
    """A pair of functions."""
    return _value(lambda m: _at(m, getter)(), lambda m, value: _at(m, setter)(value))


def _named(getter: str, setter: str) -> Setting:
    """A pair of functions, of which the one gives a dict and the other takes names."""
    return _value(lambda m: dict(_at(m, getter)()), lambda m, value: _at(m, setter)(**value))


def _attribute(path: str) -> Setting:
    owner, _, name = path.rpartition(".")
    return _value(lambda m: _at(m, path), lambda m, value: setattr(_at(m, owner), name, value))


def _attributes(path: str, slots: bool = False) -> Setting:
    """The attributes of an object that has nothing but settings."""

    def get(module: Any) -> dict[str, Any]:
        found = _at(module, path)
        names = type(found).__slots__ if slots else vars(found)
        return {name: _copy(getattr(found, name)) for name in names}

    def put(module: Any, value: dict[str, Any]) -> None:
        for name, each in value.items():
            setattr(_at(module, path), name, each)

    return _many(get, put)


def _entries(path: str, then: str = "") -> Setting:
    """A dict that stays the same one; `then` is called when it was changed."""

    def put(module: Any, value: dict[Any, Any]) -> None:
        owner = _at(module, path)
        for key in [key for key in owner if key not in value]:
            del owner[key]
        for key, each in value.items():
            owner[key] = _copy(each)
        if then:
            _at(module, then)()

    return _many(lambda m: {k: _copy(v) for k, v in _at(m, path).items()}, put, path)


def _items(path: str) -> Setting:
    """A list that stays the same one."""

    def put(module: Any, value: list[Any]) -> None:
        _at(module, path)[:] = value

    return _value(lambda m: list(_at(m, path)), put)


def _registry(
    path: str,
    add: Callable[[Any, str, Any], None],
    drop: Callable[[Any, str], None],
    names: str = "",
) -> Setting:
    """What was registered by name, beside what came with the library: that may only be loaded
    when it is asked for. `names` leads to the registry's own dict."""

    def read(module: Any, before: Any) -> Any:
        if _at(module, names or path).keys() == before:
            return UNCHANGED
        found = _at(module, path)
        return {name: found[name] for name in list(found) if name not in before} or UNCHANGED

    def write(module: Any, before: Any, kept: Any) -> None:
        added = {} if kept is UNCHANGED else kept
        found = _at(module, path)
        for name in [n for n in list(found) if n not in before and n not in added]:
            drop(found, name)
        for name, each in added.items():
            add(found, name, each)

    return Setting(lambda m: set(_at(m, names or path)), read, write)


def _copy(value: Any) -> Any:
    """Dicts, lists and sets as they are at the moment; all else is the same object."""
    if type(value) is dict:
        return {key: _copy(each) for key, each in value.items()}
    if type(value) is list:
        return [_copy(each) for each in value]
    return set(value) if type(value) is set else value


def _deterministic(torch: Any) -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _set_deterministic(torch: Any, value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _update_jax(jax: Any, value: dict[str, Any]) -> None:
    now = jax.config.values
    for name, each in value.items():
        if name not in now or now[name] != each:
            jax.config.update(name, each)


def _networkx(networkx: Any) -> dict[str, Any]:
    return {name: _copy(networkx.config[name]) for name in networkx.config}


def _set_networkx(networkx: Any, value: dict[str, Any]) -> None:
    for name, each in value.items():
        setattr(networkx.config, name, each)


def _read_progress(tqdm: Any, before: Any) -> Any:
    """With which bar and options `tqdm.pandas` gave frames their `progress_apply`."""
    now = _progress()
    if now is None or now is before:
        return UNCHANGED
    names = dict(zip(now.__code__.co_freevars, now.__closure__, strict=True))
    return names["cls"].cell_contents, names["tqdm_kwargs"].cell_contents


def _write_progress(tqdm: Any, before: Any, kept: Any) -> None:
    if kept is not UNCHANGED:
        kept[0].pandas(**kept[1])
    elif _progress() is not None and before is None:
        for module, names in _PROGRESS.items():
            for name in names:
                kind = getattr(sys.modules.get(module), name, None)
                for each in [n for n in vars(kind or object) if n.startswith("progress_")]:
                    delattr(kind, each)


def _progress() -> Any:
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
    return vars(frame).get("progress_apply") if frame is not None else None


_PROGRESS = {
    "pandas.core.frame": ("DataFrame",), "pandas.core.series": ("Series",),
    "pandas.core.groupby.generic": ("DataFrameGroupBy", "SeriesGroupBy"),
    "pandas.core.groupby.groupby": ("GroupBy",), "pandas.core.window.rolling": ("Rolling",),
    "pandas.core.window.expanding": ("Expanding",),
}  # fmt: skip


def _plugins(path: str) -> Setting:
    """A registry of altair: which plugin is used, with which options, and the session's own."""

    def get(module: Any) -> dict[str, Any]:
        found = _at(module, path)
        own = {name: each for name, each in found._plugins.items() if _is_own(each)}
        return {
            "own": own, "active": found.active, "options": dict(found.options),
            "settings": dict(found._global_settings),
        }  # fmt: skip

    def put(module: Any, value: dict[str, Any]) -> None:
        registry = _at(module, path)
        for name in get(module)["own"].keys() - value["own"].keys():
            registry.register(name, None)
        for name, plugin in value["own"].items():
            registry.register(name, plugin)
        registry.enable(value["active"], **value["options"])
        registry._global_settings.update(value["settings"])

    return _value(get, put)


def _is_own(plugin: Any) -> bool:
    return getattr(plugin, "__module__", "") == "__main__"


def _polars(polars: Any) -> dict[str, Any]:
    """What polars keeps outside of the environment, which comes back by itself."""
    return {name: get() for name, get in polars.config._POLARS_CFG_DIRECT_VARS.items()}


def _set_polars(polars: Any, value: dict[str, Any]) -> None:
    for name, each in value.items():
        getattr(polars.Config, name)(each)


def _add_colormap(colormaps: Any, name: str, value: Any) -> None:
    colormaps.register(value, name=name, force=True)


def _add_item(registry: Any, name: str, value: Any) -> None:
    registry[name] = value


def _drop_item(registry: Any, name: str) -> None:
    del registry[name]


# By the module that has them, which is looked for among those that are loaded.
TABLE: dict[str, dict[str, Setting]] = {
    "torch": {
        "default_dtype": _asked("get_default_dtype", "set_default_dtype"),
        "default_device": _asked("get_default_device", "set_default_device"),
        "deterministic_algorithms": _value(_deterministic, _set_deterministic),
        "printing": _attributes("_tensor_str.PRINT_OPTS"),
        "num_threads": _asked("get_num_threads", "set_num_threads"),
        "num_interop_threads": _asked("get_num_interop_threads", "set_num_interop_threads"),
        "grad": _asked("is_grad_enabled", "set_grad_enabled"),
        "anomalies": _asked("is_anomaly_enabled", "autograd.set_detect_anomaly"),
        "warn_always": _asked("is_warn_always_enabled", "set_warn_always"),
        "matmul_precision": _asked(
            "get_float32_matmul_precision", "set_float32_matmul_precision"
        ),
        "cudnn.enabled": _attribute("backends.cudnn.enabled"),
        "cudnn.benchmark": _attribute("backends.cudnn.benchmark"),
        "cudnn.deterministic": _attribute("backends.cudnn.deterministic"),
        "cudnn.allow_tf32": _attribute("backends.cudnn.allow_tf32"),
        "cuda.matmul.allow_tf32": _attribute("backends.cuda.matmul.allow_tf32"),
        "mkldnn.enabled": _attribute("backends.mkldnn.enabled"),
        "quantized.engine": _attribute("backends.quantized.engine"),
        "sharing_strategy": _asked(
            "multiprocessing.get_sharing_strategy", "multiprocessing.set_sharing_strategy"
        ),
    },
    "plotly.io": {
        "templates": _registry("templates", _add_item, _drop_item, "templates._templates"),
        "templates.default": _attribute("templates.default"),
        "renderers.default": _attribute("renderers.default"),
        "defaults": _attributes("defaults"),
    },
    "plotly.express": {"defaults": _attributes("defaults", slots=True)},
    "altair": {
        "theme": _plugins("theme._themes"),
        "data_transformers": _plugins("data_transformers"),
        "renderers": _plugins("renderers"),
    },
    "dask.config": {"config": _entries("config")},
    "xarray.core.options": {"OPTIONS": _entries("OPTIONS")},
    "polars": {"Config": _many(_polars, _set_polars)},
    "keras": {
        name: _asked(f"config.{name}", f"config.set_{name}")
        for name in ("floatx", "epsilon", "image_data_format", "dtype_policy")
    },
    "jax": {"config": _many(lambda m: dict(m.config.values), _update_jax)},
    "spacy.tokens.underscore": {
        name: _entries(f"Underscore.{name}")
        for name in ("doc_extensions", "span_extensions", "token_extensions")
    },
    "sympy.printing.printer": {"settings": _entries("Printer._global_settings")},
    "mpmath": {"prec": _attribute("mp.prec"), "pretty": _attribute("mp.pretty")},
    "tqdm.std": {"pandas": Setting(lambda m: _progress(), _read_progress, _write_progress)},
    "nltk.data": {"path": _items("path")},
    "networkx": {"config": _many(_networkx, _set_networkx)},
    "numpy": {
        "errcall": _asked("geterrcall", "seterrcall"),
        "bufsize": _asked("getbufsize", "setbufsize"),
    },
    "scipy.special": {"errors": _named("geterr", "seterr")},
    "matplotlib.colors": {"names": _entries("_colors_full_map", "_colors_full_map.cache.clear")},
    "matplotlib.cm": {
        "colormaps": _registry(
            "_colormaps", _add_colormap, lambda found, n: found.unregister(n), "_colormaps._cmaps"
        ),
    },
    "matplotlib.style": {"library": _registry("library", _add_item, _drop_item)},
    "pyarrow": {
        "cpu_count": _asked("cpu_count", "set_cpu_count"),
        "io_thread_count": _asked("io_thread_count", "set_io_thread_count"),
    },
    "cv2": {"threads": _asked("getNumThreads", "setNumThreads")},
    "transformers.utils.logging": {"verbosity": _asked("get_verbosity", "set_verbosity")},
}  # fmt: skip

_noted: dict[str, dict[str, Any]] = {}  # by library and setting, what it was at the import


def note(*_: object) -> None:
    """Note the settings of libraries that were loaded since, and wait for the others."""
    for library in TABLE.keys() - _noted.keys():
        module = sys.modules.get(library)
        if module is None:
            # A part of a library that is loaded when it is asked for.
            if library.partition(".")[0] in sys.modules:
                _loading.wait_for({library})
            continue
        # One that is being imported at this moment may lack anything.
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            continue
        noted = _noted[library] = {}
        for name, setting in TABLE[library].items():
            try:
                noted[name] = setting.note(module)
            except Exception:  # noqa: BLE001, S112  # this version of the library has no such setting
                continue


_loading = Loading(note)


def read(library: str) -> Any:
    """What differs in a loaded library; a placeholder for what cannot be read any more."""
    module, found = sys.modules.get(library), {}
    for name, before in _noted.get(library, {}).items():
        try:
            kept = TABLE[library][name].read(module, before)
        except Exception as error:  # noqa: BLE001  # a library may refuse in any way
            kept = Placeholder("setting", f"{name}: {_line(error)}")
        if kept is not UNCHANGED:
            found[name] = kept
    return found or None


def write(library: str, state: Any) -> None:
    """Set a library as it was, all else as it was at the import. Raises UnknownSettings after all
    that can be set, ImportError for a library that is not there."""
    if state is not None:
        importlib.import_module(library)
        note()
    elif library not in _noted:
        return
    module, state, failed = sys.modules.get(library), state or {}, {}
    noted = _noted.get(library, {})
    for name in dict.fromkeys([*noted, *state]):
        kept = state.get(name, UNCHANGED)
        try:
            if name not in noted:
                raise LookupError("this version of the library has no such setting")
            if isinstance(kept, Placeholder):
                raise ValueError("it could not be kept")
            TABLE[library][name].write(module, noted[name], kept)
        except Exception as error:  # noqa: BLE001  # a library may refuse in any way
            failed[name] = _line(error)
    if failed:
        raise UnknownSettings(failed)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
