"""Sessions with real workers, on a store in memory unless a test needs a directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast.session import Session
from holdfast.store import Store, open_store

Make = Callable[..., Awaitable[Session]]


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
async def make(store: Store) -> AsyncIterator[Make]:
    """Start sessions that end with the test."""
    made: list[Session] = []

    async def start(name: str | None = None, **options: object) -> Session:
        session = Session(name, store=options.pop("store", store), **options)
        made.append(session)
        return await session.start()

    yield start
    for session in made:
        await session.shutdown()


@pytest.fixture
async def session(make: Make) -> Session:
    return await make("work")
