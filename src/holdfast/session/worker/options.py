"""Options of libraries that a session set: only of those that are loaded, and only what differs.

Reading gives None for what nobody changed; writing None sets it back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from holdfast.session.worker import library_settings

FIGURES = "figures of pyplot"

# `Any` below: each library has forms of its own, and none of them is imported for its types.


class Option(msgspec.Struct, frozen=True):  # a named tuple takes ten times as long to define
    """How the options of a library, or something else of the process, are read and written."""

    read: Callable[[], Any]
    write: Callable[[Any], None]


def _read_numpy() -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "get_printoptions"):
        return None
    return {"errors": numpy.geterr(), "printing": numpy.get_printoptions()}


def _write_numpy(state: Any) -> None:
    if state is not None:
        import numpy

        numpy.seterr(**state["errors"])
        numpy.set_printoptions(**state["printing"])


def _pandas() -> Any:
    return sys.modules.get("pandas._config.config") if "pandas" in sys.modules else None


def _option(config: Any, key: str) -> Any:
    """What `get_option` gives, several times quicker: it looks for abbreviations, too."""
    found = config._global_config
    for step in key.split("."):
        found = found[step]
    return found


def _read_pandas() -> Any:
    config = _pandas()
    known = getattr(config, "_registered_options", {})
    plain = [key for key in known if key not in getattr(config, "_deprecated_options", {})]
    now = {key: _option(config, key) for key in plain}
    return {key: value for key, value in now.items() if value != known[key].defval} or None


def _write_pandas(state: Any) -> None:
    if state is not None:
        import pandas  # type: ignore[import-untyped]  # noqa: F401  # with its options
    config = _pandas()
    if config is None:
        return
    wanted = state or {}
    for key in (_read_pandas() or {}).keys() - wanted.keys():
        config.reset_option(key)
    for key, value in wanted.items():
        config.set_option(key, value)


def _read_matplotlib() -> Any:
    module = sys.modules.get("matplotlib")
    if not hasattr(module, "rcParamsDefault"):
        return None
    # Asked as a dict: the parameters themselves would choose a backend when asked for it.
    now, usual = dict(dict.items(module.rcParams)), module.rcParamsDefault  # type: ignore[union-attr]
    differ = {k: v for k, v in now.items() if "backend" not in k and v != dict.get(usual, k)}
    return differ or None


def _write_matplotlib(state: Any) -> None:
    if state is not None:
        import matplotlib  # noqa: F401
    module = sys.modules.get("matplotlib")
    if not hasattr(module, "rcParamsDefault"):
        return
    usual = module.rcParamsDefault  # type: ignore[union-attr]
    changed = (_read_matplotlib() or {}).keys()
    wanted = {key: dict.get(usual, key) for key in changed} | (state or {})
    module.rcParams.update(wanted)  # type: ignore[union-attr]


def _read_decimal() -> Any:
    module = sys.modules.get("decimal")
    if module is None:
        return None
    now, usual = module.getcontext().copy(), module.DefaultContext.copy()
    now.clear_flags()
    usual.clear_flags()
    return now if repr(now) != repr(usual) else None


def _write_decimal(state: Any) -> None:
    if state is not None or "decimal" in sys.modules:
        import decimal

        decimal.setcontext((state or decimal.DefaultContext).copy())


def _read_logging() -> Any:
    """Loggers that were set up: each is kept with its level, handlers and filters."""
    module = sys.modules.get("logging")
    if module is None or not hasattr(module, "Manager"):
        return None
    root = module.getLogger()
    found = [root] if root.handlers or root.filters or root.level != module.WARNING else []
    named = [each for each in root.manager.loggerDict.values() if isinstance(each, module.Logger)]
    found += [logger for logger in named if _is_set_up(logger, module)]
    own = {number: name for number, name in module._levelToName.items() if number % 10}
    if not found and not own and not root.manager.disable:
        return None
    return {"loggers": found, "levels": own, "disable": root.manager.disable}


def _is_set_up(logger: Any, module: Any) -> bool:
    """Whether somebody did more than ask for it, or keep it quiet as libraries do."""
    if logger.level or logger.disabled or logger.filters or not logger.propagate:
        return True
    return any(type(each) is not module.NullHandler for each in logger.handlers)


def _write_logging(state: Any) -> None:
    module = sys.modules.get("logging")
    if state is None and (module is None or _read_logging() is None):
        return
    import logging

    wanted = state or {"loggers": [], "levels": {}, "disable": 0}
    for logger in (_read_logging() or wanted)["loggers"]:
        if logger not in wanted["loggers"] and _is_of_the_session(logger):
            logger.handlers.clear()
            logger.filters.clear()
            logger.propagate, logger.disabled = True, False
            logger.setLevel(logging.WARNING if logger is logging.root else logging.NOTSET)
    for number, name in wanted["levels"].items():
        logging.addLevelName(number, name)
    logging.disable(wanted["disable"])


def _is_of_the_session(logger: Any) -> bool:
    """Whether no library set it up: one that came with an import stays as long as that."""
    package = logger.name.partition(".")[0]
    return logger.name in ("root", "__main__") or package not in sys.modules


def _read_socket() -> Any:
    module = sys.modules.get("socket")
    return module.getdefaulttimeout() if hasattr(module, "getdefaulttimeout") else None  # type: ignore[union-attr]


def _write_socket(state: Any) -> None:
    if state is not None or _read_socket() is not None:
        import socket

        socket.setdefaulttimeout(state)


def _read_sklearn() -> Any:
    module = sys.modules.get("sklearn._config")
    if module is None or not hasattr(sys.modules.get("sklearn"), "get_config"):
        return None
    usual = module._global_config
    differ = {k: v for k, v in module.get_config().items() if v != usual.get(k)}
    return differ or None


def _write_sklearn(state: Any) -> None:
    if state is not None:
        import sklearn  # type: ignore[import-untyped]  # noqa: F401
    module = sys.modules.get("sklearn._config")
    if module is not None and (state or _read_sklearn()):
        module.set_config(**(module._global_config | (state or {})))


def _figures() -> Any:
    return getattr(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None)


def _read_figures() -> Any:
    """What `pyplot` knows, whether a variable has it or not: the last one is the current one."""
    managers = _figures().figs.values() if _figures() else ()
    return [(each.canvas.figure, each.num) for each in managers] or None


def _write_figures(state: Any) -> None:
    """A figure that is read makes itself known; here they get their numbers and their order."""
    known = _figures()
    if not state or known is None:
        return
    # Checkpoints of the first days have figures without numbers.
    pairs = [each if type(each) is tuple else (each, None) for each in state]
    found = [(getattr(getattr(each, "canvas", None), "manager", None), n) for each, n in pairs]
    managers = [(manager, number) for manager, number in found if manager is not None]
    for manager, _ in managers:
        known.figs.pop(manager.num, None)
    for manager, number in managers:
        manager.num = manager.num if number is None else number
        known.figs[manager.num] = manager
        own = vars(manager.canvas.figure)
        own |= {name: manager.num for name in ("number", "_number") if name in own}


def take_figures() -> dict[int, Any]:
    """The managers of the figures that `pyplot` knows, by number, the current one last."""
    known = _figures()
    return dict(known.figs) if known is not None else {}


def forget() -> None:
    """Before others come back: `pyplot` would add to those that it has. They end with
    `end_figures`, or come back with `put_figures`."""
    known = _figures()
    if known is not None:
        known.figs.clear()


def put_figures(taken: dict[int, Any]) -> None:
    """Make these the ones that `pyplot` knows, after a restore that failed."""
    known = _figures()
    if known is None:
        return
    others = dict(known.figs)
    known.figs.clear()
    known.figs.update(taken)
    end_figures(others)


def end_figures(taken: dict[int, Any]) -> None:
    """Destroy those of them that `pyplot` does not know any more, as its `close` does."""
    known = _figures()
    there = {id(manager) for manager in known.figs.values()} if known is not None else set()
    for manager in taken.values():
        if id(manager) in there:
            continue
        with suppress(Exception):  # a handler of a closed window is user code
            manager.canvas.mpl_disconnect(manager._cidgcf)
            manager.destroy()


def take_loggers() -> Any:
    """How every logger is set up, whoever did that; None where `logging` is not loaded."""
    module = sys.modules.get("logging")
    if module is None or not hasattr(module, "Manager"):
        return None
    root = module.getLogger()
    named = [each for each in root.manager.loggerDict.values() if isinstance(each, module.Logger)]
    loggers = [(each, _set_up(each)) for each in (root, *named)]
    return loggers, dict(module._levelToName), dict(module._nameToLevel), root.manager.disable


def put_loggers(taken: Any) -> None:
    """Set every logger up as it was; one that is new is as `getLogger` makes it."""
    module = sys.modules.get("logging")
    if module is None or not hasattr(module, "Manager"):
        return
    root = module.getLogger()
    fresh: tuple[Any, ...] = (0, True, False, [], [])
    if taken is None:  # loaded meanwhile
        loggers, disable = [(root, (module.WARNING, *fresh[1:]))], 0
    else:
        loggers, names, levels, disable = taken
        for table, before in ((module._levelToName, names), (module._nameToLevel, levels)):
            table.clear()
            table.update(before)
    before_by_id = {id(logger): state for logger, state in loggers}
    for each in [root, *root.manager.loggerDict.values()]:
        if isinstance(each, module.Logger):
            _set_logger(each, before_by_id.get(id(each), fresh))
    root.manager.disable = disable
    root.manager._clear_cache()


def _set_up(logger: Any) -> tuple[Any, ...]:
    handlers, filters = list(logger.handlers), list(logger.filters)
    return logger.level, logger.propagate, logger.disabled, handlers, filters


def _set_logger(logger: Any, state: tuple[Any, ...]) -> None:
    logger.level, logger.propagate, logger.disabled, handlers, filters = state
    logger.handlers[:], logger.filters[:] = handlers, filters


OPTIONS = {
    "options of numpy": Option(_read_numpy, _write_numpy),
    "options of pandas": Option(_read_pandas, _write_pandas),
    "options of matplotlib": Option(_read_matplotlib, _write_matplotlib),
    "options of sklearn": Option(_read_sklearn, _write_sklearn),
    FIGURES: Option(_read_figures, _write_figures),
    "options of decimal": Option(_read_decimal, _write_decimal),
    "options of socket": Option(_read_socket, _write_socket),
    "options of logging": Option(_read_logging, _write_logging),
    **{
        f"settings of {library}": Option(
            partial(library_settings.read, library), partial(library_settings.write, library)
        )
        for library in library_settings.TABLE
    },
}
