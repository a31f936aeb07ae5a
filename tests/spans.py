"""Spans as a program sees them that uses OpenTelemetry: the real SDK, and exporters of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

# Read by every Python that has its folder in PYTHONPATH: spans go to a file, one line each.
_STARTER = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

if os.environ.get("SPANS_TO"):
    out = open(os.environ["SPANS_TO"], "a", buffering=1)
    line = lambda span: span.to_json(indent=None) + "\\n"
    exporter = ConsoleSpanExporter(out=out, formatter=line)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
"""


@cache
def _exporter() -> InMemorySpanExporter:
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)  # a process has one for ever
    return made


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """The spans of this process from here on."""
    made = _exporter()
    made.clear()
    return made


@dataclass(frozen=True, slots=True)
class Exported:
    """A span that another process exported."""

    name: str
    trace: str
    id: str
    parent: str | None
    attributes: dict[str, Any]


def starter(folder: Path) -> str:
    """A folder for PYTHONPATH; a program's spans go to the file that its SPANS_TO names."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_STARTER)
    return str(folder)


def exported(path: Path) -> list[Exported]:
    """The spans that a program has written to its file."""
    return [_read(line) for line in path.read_text().splitlines()]


def here(spans: InMemorySpanExporter) -> list[Exported]:
    """The spans of this process, in the same form."""
    return [_read(each.to_json(indent=None)) for each in spans.get_finished_spans()]


def _read(line: str) -> Exported:
    told = json.loads(line)
    context = told["context"]
    return Exported(
        told["name"], context["trace_id"], context["span_id"], told["parent_id"], told["attributes"]
    )
