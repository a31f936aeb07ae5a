"""Deriving a class without `await` from one with it: by rule, so that the two cannot drift.

A coroutine method becomes a method, an async context manager a context manager, an async
iterator an iterator. Results that are instances of a derived class's twin are wrapped as well.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from holdfast.sync.portal import portal

_ATTRIBUTE = "_holdfast_async"
_END = object()


_derived: dict[type, type] = {}  # each async class and its twin


def wrap(value: Any) -> Any:
    """A result as it is used without `await`."""
    for source, twin in _derived.items():
        if isinstance(value, source):
            made: Any = object.__new__(twin)
            setattr(made, _ATTRIBUTE, value)
            return made
    if type(value) is list:
        return [wrap(each) for each in value]
    if hasattr(value, "__aiter__"):
        return Iteration(value)
    return Block(value) if hasattr(value, "__aenter__") else value


def unwrap(value: Any) -> Any:
    """An argument as the async class takes it."""
    if type(value) in (list, tuple):
        return type(value)(map(unwrap, value))
    return vars(value)[_ATTRIBUTE] if type(value) in _derived.values() else value


def unwrapped(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call with the arguments as the async class takes them."""
    return function(*map(unwrap, args), **{name: unwrap(each) for name, each in kwargs.items()})


class Block:
    """An async context manager, entered from outside its loop; its attributes are still there."""

    def __init__(self, over: Any) -> None:
        self._over = over

    def __enter__(self) -> Any:
        entered = portal().run(self._over.__aenter__())
        return self if entered is self._over else wrap(entered)

    def __exit__(self, *error: Any) -> Any:
        return portal().run(self._over.__aexit__(*error))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._over, name)


class Iteration:
    """An async iterable, iterated from outside its loop; its attributes are still there."""

    def __init__(self, over: Any) -> None:
        self._over = over

    def __iter__(self) -> Iterator[Any]:
        iterator: AsyncIterator[Any] = self._over.__aiter__()

        async def step() -> Any:
            return await anext(iterator, _END)

        while (event := portal().run(step())) is not _END:
            yield event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._over, name)

    def __repr__(self) -> str:
        return repr(self._over)


# `Any`: what is derived depends on the class that is given, which no signature can say.
def derive(source: type) -> Any:
    """The class without `await` for an async class."""

    def on_loop(function: Callable[..., Any]) -> Callable[..., Any]:
        """Call on the loop's thread, where the async class expects to be called."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = unwrapped(function, args, kwargs)
            return await result if inspect.isawaitable(result) else result

        @functools.wraps(function)
        def caller(*args: Any, **kwargs: Any) -> Any:
            return wrap(portal().run(call(*args, **kwargs)))

        return caller

    def method(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def caller(self: Any, *args: Any, **kwargs: Any) -> Any:
            return on_loop(getattr(getattr(self, _ATTRIBUTE), name))(*args, **kwargs)

        return caller

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        setattr(self, _ATTRIBUTE, on_loop_plain(source)(*args, **kwargs))

    def on_loop_plain(function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return unwrapped(function, args, kwargs)

        return lambda *args, **kwargs: portal().run(call(*args, **kwargs))

    def enter(self: Any) -> Any:
        portal().run(getattr(self, _ATTRIBUTE).__aenter__())
        return self

    def leave(self: Any, *error: Any) -> Any:
        return portal().run(getattr(self, _ATTRIBUTE).__aexit__(*error))

    def attribute(self: Any, name: str) -> Any:
        if name == _ATTRIBUTE:
            raise AttributeError(name)
        found = getattr(getattr(self, _ATTRIBUTE), name)
        return wrap(found) if type(found) in _derived else found

    def iterate(self: Any) -> Iterator[Any]:
        return iter(Iteration(getattr(self, _ATTRIBUTE)))

    def represent(self: Any) -> str:
        # One whose __init__ raised has nothing behind it.
        return repr(vars(self)[_ATTRIBUTE]) if _ATTRIBUTE in vars(self) else f"<{source.__name__}>"

    body: dict[str, Any] = {
        "__doc__": source.__doc__,
        "__module__": "holdfast.sync",
        "__init__": functools.wraps(source.__init__)(initialise),  # type: ignore[misc]
        "__getattr__": attribute,
        "__repr__": represent,
    }
    if hasattr(source, "__aenter__"):
        body.update(__enter__=enter, __exit__=leave)
    if hasattr(source, "__aiter__"):
        body["__iter__"] = iterate
    for name, member in vars(source).items():
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod):
            body[name] = staticmethod(on_loop(getattr(source, name)))
        elif inspect.isfunction(member):
            body[name] = method(name, member)
    derived = _derived[source] = type(source.__name__, (), body)
    return derived
