"""What every test shares: a home of its own, and no deadlines on a noisy machine."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from holdfast.testing.servers import SeaweedServer, Server

# Examples are slow now and then where two cores are shared; pytest-timeout catches real hangs.
settings.register_profile("holdfast", deadline=None, print_blob=True)
settings.load_profile("holdfast")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def holdfast_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """`HOLDFAST_HOME`, new for each test, so that none touches the user's own checkpoints."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    for name in (
        "HOLDFAST_STORE",
        "HOLDFAST_KEY",
        "HOLDFAST_KEY_FILE",
        "HOLDFAST_TOKEN",
        "HOLDFAST_PASSPHRASE",
        "HOLDFAST_PASSPHRASE_FILE",
        "HOLDFAST_ENCRYPTION_KEY_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real object store; it has a bucket of any name that is written to."""
    server = SeaweedServer(tmp_path_factory.mktemp("seaweed"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def prefix() -> str:
    """A part of the bucket that is this test's own."""
    return secrets.token_hex(8)


@pytest.fixture
def on_s3(s3: Server, prefix: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new store in a real object store, for whoever this process starts, too."""
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{prefix}"
