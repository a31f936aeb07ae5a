"""Logs: lines of text for people, or of JSON for programs, each with the request it belongs to."""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.model.tracing import HEADER, incoming, new_id, request, request_id, span, usable
from holdfast.view.words import printable

log = logging.getLogger("holdfast.requests")
# What every record has; the rest was given with `extra` and belongs into the line.
_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One object per line: time, level, logger, message, request_id, and what came with it."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id.get():
            told["request_id"] = request_id.get()
        told.update((name, value) for name, value in vars(record).items() if name not in _KNOWN)
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class TextLines(logging.Formatter):
    """`warning: words`; what others wrote cannot act on the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{record.levelname.lower()}: {printable(record.getMessage())}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up(form: str) -> None:
    """Write what the server has to say to stderr. As JSON that includes every request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    for name in ("holdfast", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
    logging.getLogger("holdfast").setLevel("INFO" if form == "json" else "WARNING")
    logging.getLogger("uvicorn").setLevel("WARNING")


class Requests:
    """ASGI middleware: an id for each request, in the answer and in every line about it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        began = time.perf_counter()
        outcome: int | None = None

        async def noted(message: Message) -> None:
            nonlocal outcome
            if message["type"] == "http.response.start":
                outcome = message["status"]
                MutableHeaders(scope=message)[HEADER] = identity
            elif message["type"] == "websocket.close":
                outcome = message.get("code", 1000)
            await send(message)

        given = usable(headers.get(HEADER)) or new_id()
        kind, path = scope.get("method", "WEBSOCKET"), scope["path"]
        with request(given) as identity, incoming(headers), span("request", method=kind, path=path):
            try:
                await self._app(scope, receive, noted)
            finally:
                # The path only: a query may hold a token.
                fields = {
                    "method": kind,
                    "path": path,
                    "outcome": outcome,
                    "ms": round((time.perf_counter() - began) * 1000, 1),
                }
                log.info("%(method)s %(path)s", fields, extra=fields)
