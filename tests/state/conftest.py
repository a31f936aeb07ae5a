"""What the tests of the state level share: the two places a state can be kept in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.store import open_store


@pytest.fixture(params=["files", "store"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Where the state is kept, as arguments for a StateManager."""
    if request.param == "files":
        yield {"directory": tmp_path / "sessions"}
    else:
        with open_store(str(tmp_path / "store")) as store:
            yield {"store": store}
