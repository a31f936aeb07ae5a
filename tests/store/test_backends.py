"""The conformance suite, on every backend there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store.backends.contract import Backend
from holdfast.store.backends.local import LocalBackend
from holdfast.store.backends.memory import MemoryBackend
from holdfast.testing.backends import BackendSuite


class TestMemory(BackendSuite):
    @pytest.fixture
    def place(self) -> MemoryBackend:
        return MemoryBackend()

    def open(self, place: MemoryBackend) -> Backend:
        return place  # a store in memory is its own place


class TestLocal(BackendSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "store"

    def open(self, place: Path) -> Backend:
        return LocalBackend(place)
