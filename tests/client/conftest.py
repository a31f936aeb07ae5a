"""A real server for the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.conftest import Server, Starter, start

__all__ = ["start"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with the process engine for all tests of a module."""
    folder = str(tmp_path_factory.mktemp("home"))
    with Starter(HOLDFAST_HOME=folder, XDG_CONFIG_HOME=folder) as starter:
        yield starter("--engine", "process")
