"""Looking into a session: names that could follow, and the variables that are there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Session
from holdfast.model.errors import BadInput
from holdfast.session.worker.inspection import completions, variables


class Watched:
    asked = 0
    plain = 3

    @property
    def computed(self) -> int:
        Watched.asked += 1
        raise RuntimeError("nobody may ask")

    def method(self) -> None: ...


class Hostile:
    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)

    def __dir__(self) -> list[str]:
        raise RuntimeError("no")

    def __sizeof__(self) -> int:
        raise RuntimeError("no")


SPACE: dict[str, object] = {
    "__name__": "__main__",
    "alpha": 1,
    "alphabet": "abc",
    "watched": Watched(),
    "hostile": Hostile(),
    "asyncio": asyncio,
    "_private": 0,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = alp", ("alpha", "alphabet")),
        ("impor", ("import",)),
        ("watched.pl", ("watched.plain",)),
        ("watched.comp", ("watched.computed",)),
        ("watched.computed.", ()),
        ("print(asyncio.subprocess.DEVN", ("asyncio.subprocess.DEVNULL",)),
        ("hostile.", ()),
        ("nothing.x", ()),
        ("1 + ", ()),
        ("", ()),
        ("_priv", ("_private",)),
    ],
)
def test_completions(text: str, expected: tuple[str, ...]) -> None:
    assert completions(SPACE, text) == expected
    assert Watched.asked == 0


def test_underscores_are_offered_only_when_asked_for() -> None:
    assert not any("._" in match for match in completions(SPACE, "watched."))
    assert "watched.__class__" in completions(SPACE, "watched.__cl")


def test_variables() -> None:
    import numpy as np
    import pandas as pd

    space = {
        **SPACE,
        "grid": np.zeros((2, 3)),
        "frame": pd.DataFrame({"a": [1, 2]}),
        "many": [1, 2],
    }
    found = {each.name: each for each in variables(space)}
    assert list(found) == [name for name in space if not name.startswith("_")]
    assert found["alpha"].summary == "1"
    assert found["alphabet"].type_name == "str"
    assert (found["grid"].summary, found["grid"].size_bytes) == ("2 x 3 float64", 48)
    assert found["frame"].summary.startswith("2 x 1")
    assert found["frame"].size_bytes >= 16
    assert found["many"].summary == "2 items"
    assert found["hostile"].size_bytes == 0
    assert found["asyncio"].summary == "asyncio"


async def test_a_session_is_looked_into_between_cells(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with Session(store="memory://") as session:
        await session.execute("import math\nvalues = [1, 2, 3]")
        assert await session.complete("math.flo") == ("math.floor",)
        assert [each.name for each in await session.variables()] == ["math", "values"]
        running = session.stream(
            f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
        )
        await asyncio.sleep(0.1)
        assert await session.complete("val") == ()  # it is busy
        looking = asyncio.create_task(session.variables())  # waits for the cell
        await asyncio.sleep(0.1)
        gate.touch()
        assert "time" in [each.name for each in await looking]
        await running.done
        with pytest.raises(BadInput):
            await session.complete(5)  # type: ignore[arg-type]
