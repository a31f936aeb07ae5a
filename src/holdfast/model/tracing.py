"""Whose work is being done: one id from the client to the engine, and a span for each step.

Spans need OpenTelemetry, and cost nothing where nobody uses it: it is never loaded from here.
A program that loads it (itself, or by `opentelemetry-instrument`) has every span from then on.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

HEADER = "X-Request-Id"
ATTRIBUTE = "holdfast.request_id"
Value = str | int | float | bool
_GIVEN = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_NOTHING: AbstractContextManager[None] = nullcontext()

# Whose request is being worked on; tasks and threads that it starts inherit it.
request_id: ContextVar[str] = ContextVar("request_id", default="")


def usable(given: object) -> str | None:
    """An id that somebody else gave, if it can be one: it goes to logs and headers."""
    return given if isinstance(given, str) and _GIVEN.fullmatch(given) else None


def new_id() -> str:
    return secrets.token_hex(8)


@contextmanager
def request(given: object = None) -> Iterator[str]:
    """Work on one request: the given id, the one that is there already, or a new one."""
    identity = usable(given) or request_id.get() or new_id()
    mark = request_id.set(identity)
    try:
        yield identity
    finally:
        request_id.reset(mark)


def span(name: str, /, **attributes: Value | None) -> AbstractContextManager[object]:
    """A step of the work, as a span `holdfast.NAME` where OpenTelemetry is in use."""
    if not _in_use():
        return _NOTHING
    from opentelemetry import trace

    told = {f"holdfast.{key}": value for key, value in attributes.items() if value is not None}
    if request_id.get():
        told[ATTRIBUTE] = request_id.get()
    return trace.get_tracer("holdfast").start_as_current_span(f"holdfast.{name}", attributes=told)


def outgoing(carrier: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """Put the request's id and the trace it belongs to into headers, or what travels like them."""
    if request_id.get():
        carrier[HEADER] = request_id.get()
    if _in_use():
        from opentelemetry import propagate

        propagate.inject(carrier)
    return carrier


@contextmanager
def incoming(carrier: Mapping[str, str]) -> Iterator[None]:
    """Belong to the trace that a request's headers name, as far as they name one."""
    if not _in_use() or "traceparent" not in carrier:
        yield
        return
    from opentelemetry import context, propagate

    mark = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(mark)


def _in_use() -> bool:
    return "opentelemetry.trace" in sys.modules
