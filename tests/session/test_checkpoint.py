"""Checkpoint, restore, rollback, fork and resume, with real workers and a real store."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.model.errors import (
    BadInput,
    CaptureFailed,
    Denied,
    HoldfastError,
    NotFound,
    UsageError,
)
from holdfast.session import Session
from holdfast.session.history import IN_MEMORY
from holdfast.store import open_store


async def value(session: Session, code: str) -> object:
    result = await session.execute(code)
    assert result.error is None, result.error.traceback
    return result.value


async def test_what_a_checkpoint_says(session: Session, store) -> None:
    await session.execute("import math\nx = [1, 2]\ndef f(): return x")
    cp = await session.checkpoint(reason="before cleaning", stage="load")
    assert (cp.reason, cp.stage, cp.serialization_method) == (
        "before cleaning",
        "load",
        "cloudpickle",
    )
    assert cp.size_bytes > 0
    assert cp.pause_ms > 0
    assert {(item.name, item.outcome) for item in cp.report.items} == {
        ("math", "rebuilt"),
        ("x", "exact"),
        ("f", "rebuilt"),
    }
    assert store.head("session/work").id == cp.id
    names = {part.name for part in store.show(cp.id).parts}
    assert names == {"environment", "sources", "report", "namespace/small"}
    environment = store.value(cp.id, "environment")
    assert environment["format"] == 1
    assert environment["execution_count"] == 1
    assert environment["python"].startswith("3.")
    created = datetime.fromisoformat(environment["created"])
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60
    assert store.value(cp.id, "report")["items"][0]["name"] == "math"


async def test_metadata(session: Session) -> None:
    await session.execute("x = 1")
    await session.execute("y = 1")
    cp = await session.checkpoint()
    assert (cp.format_version, cp.execution_count) == (1, 2)
    assert cp.python_version == await value(session, "import platform\nplatform.python_version()")
    assert abs((datetime.now(UTC) - cp.time).total_seconds()) < 60


async def test_list_show_and_diff(session: Session, store) -> None:
    await session.execute("x, y = 1, 2")
    one = await session.checkpoint(reason="one")
    await session.execute("y = 3\nz = 4")
    two = await session.checkpoint(reason="two")
    assert [cp.reason for cp in await session.list()] == ["two", "one"]
    assert [cp.reason for cp in await session.list(limit=1)] == ["two"]
    assert (await session.show()).checkpoint.id == two.id
    assert (await session.show("~1")).checkpoint.id == one.id
    assert (await session.show(one)).part("namespace/small") is not None
    found, same = await session.diff(), store.diff(one.id, two.id)
    assert found == await session.diff(one, two)
    assert (found.parts, found.values) == (same.parts, same.values)
    assert [(each.name, each.change) for each in found.variables] == [
        ("y", "changed"),
        ("z", "added"),
    ]
    memory = [await session.checkpoint(save_to_disk=False) for _ in range(2)]
    assert (await session.show(memory[0])).checkpoint.id == memory[0].id
    await session.diff(*memory)
    with pytest.raises(UsageError, match="in memory"):
        await session.diff(one, memory[0])


async def test_a_large_variable_is_a_part_of_its_own(session: Session, store) -> None:
    await session.execute("big = bytes(200_000)\nsmall = 1")
    cp = await session.checkpoint()
    assert store.show(cp.id).part("namespace/big") is not None
    await session.execute("del big")
    await session.restore(cp)
    assert await value(session, "len(big), small") == (200_000, 1)


async def test_restore_by_object_by_id_and_by_head(session: Session, store) -> None:
    await session.execute("x = 1")
    first = await session.checkpoint()
    await session.execute("x = 2\ny = 3")
    second = await session.checkpoint()
    report = await session.restore(first.id)
    assert report["x"].outcome == "exact"
    assert await value(session, "[x, 'y' in globals()]") == [1, False]
    assert store.head("session/work").id == first.id
    await session.restore(second)
    assert await value(session, "[x, y]") == [2, 3]
    await session.execute("x = 99")
    await session.restore()
    assert await value(session, "x") == 2
    await session.restore(store.list(subject="session/work")[-1])
    assert await value(session, "x") == 1
    with pytest.raises(NotFound):
        await session.restore("019a0000-0000-7000-8000-000000000000")
    assert await value(session, "x") == 1


async def test_rollback_and_rollback_again(session: Session, store) -> None:
    ids = []
    for number in range(3):
        await session.execute(f"x = {number}")
        ids.append((await session.checkpoint()).id)
    await session.rollback()
    assert await value(session, "x") == 1
    head = store.head("session/work")
    assert head.id not in ids
    await session.rollback()
    assert await value(session, "x") == 0
    await session.rollback(to=ids[2])
    assert await value(session, "x") == 2
    assert len(await session.list()) == 6


async def test_fork_is_independent(session: Session, store) -> None:
    await session.execute("class C: pass\nx = [1]\nc = C()\nc.x = x")
    other = await session.fork("other")
    try:
        assert (other.name, other.pid != session.pid) == ("other", True)
        await other.execute("x.append(2)")
        assert await value(other, "[c.x, isinstance(c, C)]") == [[1, 2], True]
        assert await value(session, "c.x") == [1]
        await other.checkpoint()
        assert len(store.list(subject="session/other")) == 2
    finally:
        await other.shutdown()
    unnamed = await session.fork()
    assert unnamed.name.startswith("work-")
    await unnamed.shutdown()


async def test_kill_and_resume_from_a_directory(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    session = await Session(name="analysis", store=url).start()
    await session.execute("import math\ndef area(r): return math.pi * r * r\nrows = [1, 2, 3]")
    await session.checkpoint(reason="loaded")
    await session.execute("rows.clear()")
    os.kill(session.pid, signal.SIGKILL)
    lost = await session.execute("while True: pass") if session.alive else None
    assert lost is None or lost.error.type == "WorkerDied"
    again = await Session.resume("analysis", store=open_store(url))
    assert await value(again, "[rows, round(area(1), 2)]") == [[1, 2, 3], 3.14]
    assert again.report is not None
    assert again.report["rows"].outcome == "exact"
    # cells go on counting where they stopped, so that names of cells stay unique
    assert (await again.execute("1")).execution_count > 1
    await again.shutdown()
    # the same object can go on, too
    await session.restore()
    assert await value(session, "rows") == [1, 2, 3]
    await session.shutdown()


async def test_resume_of_nothing() -> None:
    with pytest.raises(NotFound, match="session/nothing"):
        await Session.resume("nothing", store="memory://")


async def test_kill_during_a_checkpoint_is_capture_failed(session: Session) -> None:
    await session.execute("x = 1")
    await session.checkpoint()
    # With a thread it is captured in place, even if the first capture took long: no copy dies.
    await session.execute(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "class Bomb:\n"
        "    def __reduce__(self):\n"
        "        import os\n        os.kill(os.getpid(), 9)\n"
        "b = Bomb()"
    )
    with pytest.raises(CaptureFailed, match="SIGKILL"):
        await session.checkpoint()
    await session.restore()
    assert await value(session, "x") == 1


async def test_a_failed_capture_leaves_the_session_as_it_was(session: Session, store) -> None:
    await session.execute(
        "from holdfast.session.worker import capture\n"
        "def run(*_): raise SystemExit('no')\n"
        "whole, capture.Capture.run = capture.Capture.run, run\n"
        "x = [1]\nkept = x"
    )
    with pytest.raises(CaptureFailed, match="no"):
        await session.checkpoint()
    assert store.head("session/work") is None
    assert await value(session, "x is kept and callable(run)") is True


async def test_a_failed_restore_leaves_the_session_as_it_was(session: Session, store) -> None:
    await session.execute("def f(): return 1\nx = [1]\ny = x")
    cp = await session.checkpoint()
    owner = session._history._lease
    with store.draft("session/work", lease=owner) as draft:
        for part in store.show(cp.id).parts:
            if part.name == "environment":
                newer = {**store.value(cp.id, part.name), "format": 99}
                draft.put("environment", newer, split="structure")
            else:
                draft.keep(part.name)
        future = draft.commit()
    store.restore(cp.id, lease=owner)
    await session.execute("x.append(2)")
    with pytest.raises(HoldfastError, match="newer"):
        await session.restore(future)
    assert await value(session, "[x is y, x, f()]") == [True, [1, 2], 1]
    assert store.head("session/work").id == cp.id
    assert (await session.checkpoint()).report["f"].outcome == "rebuilt"


async def test_what_was_written_before_a_failed_restore_is_not_lost(
    session: Session, store
) -> None:
    """The host's checkpoint is the same as before, and so is what the memory is compared with."""
    await session.execute("import numpy as np\na = np.arange(400_000.0)")
    cp = await session.checkpoint()
    await session.execute(
        "a[:2] = -1\nfrom holdfast.session.worker import restore\n"
        "def run(*_): raise SystemExit('no')\n"
        "whole, restore.Restore.run = restore.Restore.run, run"
    )
    with pytest.raises(HoldfastError, match="no"):
        await session.restore(cp)
    await session.execute("restore.Restore.run = whole\na[-1] = -2\ndel whole, run, restore")
    made = await session.checkpoint()
    assert made.checkpoint.stored_bytes < 1_000_000  # a part of it
    await session.restore(made)
    assert await value(session, "[*map(int, a[:3]), int(a[-1])]") == [-1, -1, 2, -2]


async def test_in_memory(session: Session, store) -> None:
    await session.execute("x = 1")
    cp = await session.checkpoint(save_to_disk=False)
    assert not cp.saved_to_disk
    assert store.list() == []
    await session.execute("x = 2")
    await session.restore(cp.id)
    assert await value(session, "x") == 1
    await session.execute(f"import os\nbig = os.urandom({IN_MEMORY + 1})")
    large = await session.checkpoint(save_to_disk=False)
    assert large.saved_to_disk
    assert store.head("session/work").id == large.id


async def test_only_its_own_checkpoints(session: Session, make, store) -> None:
    other = await make("other")
    cp = await other.checkpoint()
    with pytest.raises(UsageError, match="session/other"):
        await session.restore(cp)


async def test_foreign_checkpoints_need_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "store")
    async with Session(name="theirs", store=url) as session:
        await session.execute("x = 1")
        await session.checkpoint()
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "another home"))
    with pytest.raises(Denied):
        await Session.resume("theirs", store=open_store(url))
    session = await Session.resume("theirs", store=open_store(url), trust=True)
    assert await value(session, "x") == 1
    await session.shutdown()


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np\nlarge = np.zeros(1_000_000)",  # told ahead
        "large = [str(i) * 10 for i in range(60_000)]",  # only when it has been captured
    ],
)
async def test_size_limit_of_a_checkpoint(make, store, code: str) -> None:
    session = await make("limited", max_checkpoint_bytes=1_000_000)
    await session.execute("small = [1]")
    first = await session.checkpoint()
    await session.execute(code, check=True)
    with pytest.raises(CaptureFailed, match=r"max_checkpoint_bytes.*the largest: large \(") as told:
        await session.checkpoint()
    assert told.value.hint is not None
    assert "max_item_bytes" in told.value.hint
    assert [each.id for each in store.list("session/limited")] == [first.id]
    assert await value(session, "len(large) > 0 and small") == [1]  # as it was
    await session.execute("del large", check=True)
    assert (await session.checkpoint()).parents == (first.id,)


async def test_shared_data_counts_once(make) -> None:
    session = await make("limited", max_checkpoint_bytes=1_000_000)
    await session.execute("a = [b'x' * 600_000]\nb = a\nc = {'a': a}", check=True)
    await session.checkpoint()


async def test_an_item_that_is_left_out_does_not_count(make) -> None:
    session = await make("limited", max_checkpoint_bytes=500_000, max_item_bytes=100_000)
    await session.execute("a = b'x' * 600_000\nb = 1", check=True)
    assert (await session.checkpoint()).report["a"].outcome == "placeholder"


async def test_size_limit_of_one_item(make) -> None:
    session = await make("limited", max_item_bytes=10_000)
    await session.execute("small = 1\nlarge = list(range(100_000))")
    cp = await session.checkpoint()
    assert cp.report["large"].outcome == "placeholder"
    assert "limit" in cp.report["large"].reason
    assert cp.serialization_method == "placeholder"
    await session.restore(cp)
    error = (await session.execute("len(large)")).error
    assert error is not None
    assert "PlaceholderError" in error.type
    assert await value(session, "small") == 1


async def test_cancelling_cuts_nothing_in_the_middle(session: Session) -> None:
    await session.execute("big = bytes(range(256)) * 100_000\nx = 1")
    cp = await session.checkpoint()
    await session.execute("x = 2")
    for call in (lambda: session.restore(cp), session.checkpoint, session.rollback):
        task = asyncio.create_task(call())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, NotFound)):
            await task
        assert await value(session, "len(big)") == 25_600_000
        # Either it had been done by then, or nothing of it was.
        assert await value(session, "x") in (1, 2)


async def test_many_checkpoints_and_random_kills(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    done = 0
    for _ in range(3):
        session = (
            await Session.resume("steps", store=url)
            if done
            else await Session(name="steps", store=url).start()
        )
        for _ in range(5):
            await session.execute("step = globals().get('step', 0) + 1")
            await session.checkpoint()
            done += 1
        await session.execute("step = -1")
        os.kill(session.pid, signal.SIGKILL)
        await session.shutdown()
    session = await Session.resume("steps", store=url)
    assert await value(session, "step") == done == 15
    await session.shutdown()
    assert open_store(url).verify(deep=True).ok


async def test_looking_at_a_file_imports_nothing(session: Session, tmp_path: Path) -> None:
    await session.execute("x = 1")
    await session.checkpoint()
    path = tmp_path / "an.archive"
    await session.export(path)
    others = open_store("memory://")
    async with Session("work", store=others) as apart:
        await apart.execute("x = 2")
        await apart.checkpoint()
        for look in (apart.show(path), apart.diff(path), apart.diff("~0", str(path))):
            with pytest.raises(BadInput, match="only a checkpoint of the store") as raised:
                await look
            assert raised.value.hint is not None
            assert raised.value.hint.startswith(f"`holdfast import {path}` takes it")
        assert len(others.list()) == 1
