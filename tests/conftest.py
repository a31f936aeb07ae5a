"""What every test shares: a home of its own, and no deadlines on a noisy machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

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
