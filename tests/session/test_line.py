"""A session's own line: whose child a checkpoint is when others move the head, too."""

from __future__ import annotations

import asyncio
import os
from functools import partial

import pytest

from holdfast.model.errors import BadInput, Conflict, HoldfastError, LeaseLost, NotFound
from holdfast.session import Session, history
from holdfast.testing.waiting import until


async def value(session: Session, code: str) -> object:
    result = await session.execute(code)
    assert result.error is None, result.error.traceback
    return result.value


async def step(session: Session, number: object) -> str:
    await session.execute(f"x = {number!r}")
    return (await session.checkpoint(reason=str(number))).id


async def nobody_owns(store) -> None:
    await until(lambda: store.owner("session/work") is None, "nobody owns session/work")


async def test_a_running_session_owns_its_name(session: Session, store) -> None:
    one = await step(session, 1)
    owner = store.owner("session/work")
    assert owner is not None
    for other in (
        Session("work", store=store, fresh=True).start,
        lambda: Session.resume("work", store=store),
        Session("work", store=store).restore,
    ):
        with pytest.raises(Conflict, match=f"session/work is in use by {owner.name}"):
            await other()
    for move in (
        lambda: store.restore(one),
        lambda: store.rollback("session/work", one),
        lambda: store.delete(one),
    ):
        with pytest.raises(Conflict, match="in use"):
            move()
    await step(session, 2)
    await session.shutdown()
    assert store.owner("session/work") is None
    store.restore(one)


async def test_a_session_with_a_name_of_its_own_opens_no_store(tmp_path) -> None:
    async with Session(store=str(tmp_path / "store")) as session:
        await session.execute("x = 1")
        assert not (tmp_path / "store").exists()
        await session.checkpoint()
        assert session.store.owner(session.subject) is not None
    assert session.store.owner(session.subject) is None


async def test_what_nothing_runs_nobody_owns(
    session: Session, store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session whose worker died may go on elsewhere; then it may not go on here."""
    await step(session, 1)
    os.kill(session.pid, 9)
    with monkeypatch.context() as patient:
        patient.setattr(history, "_MAKE_WAY", 60.0)  # the machine may stand still meanwhile
        other = await Session.resume("work", store=store)
    assert (await session.execute("x")).error.type == "WorkerDied"
    told = (await session.execute("x")).error
    assert told is not None
    assert "in use" in told.message
    with pytest.raises(Conflict, match="in use"):
        await session.restore()
    await step(other, 2)
    await other.shutdown()
    assert await value(session, "x") == 1  # its own last checkpoint, not the head
    await session.restore()
    assert await value(session, "x") == 2


async def test_a_lease_that_was_lost(session: Session, store) -> None:
    await step(session, 1)
    session._history._lease.release()  # as if it could not be renewed in time
    other = store.lease("session/work")
    with pytest.raises(LeaseLost):
        await step(session, 2)
    other.release()
    assert await value(session, "x") == 2


async def test_a_worker_that_does_not_start_leaves_no_owner(store) -> None:
    with pytest.raises(HoldfastError):
        await Session("work", store=store, python="/bin/false").start()
    assert store.owner("session/work") is None
    with pytest.raises(NotFound):
        await Session.resume("nobody", store=store)
    assert store.owner("session/nobody") is None


async def test_the_head_moved_while_nothing_ran(session: Session, store) -> None:
    one, two = await step(session, 1), await step(session, 2)
    os.kill(session.pid, 9)
    assert (await session.execute("x")).error.type == "WorkerDied"
    await nobody_owns(store)
    store.restore(one)
    assert await value(session, "x") == 2  # it goes on from its own last checkpoint
    assert store.resolve(await step(session, 3)).parents == (two,)
    os.kill(session.pid, 9)
    assert (await session.execute("x")).error.type == "WorkerDied"
    await nobody_owns(store)
    store.restore(one)
    await session.restore()  # the head, which was moved elsewhere
    assert await value(session, "x") == 1
    assert store.resolve(await step(session, 5)).parents == (one,)


async def test_the_last_checkpoint_was_deleted(session: Session, store) -> None:
    # `prune` may do this beside a running session; for `delete` only the owner has the right.
    delete = partial(store.delete, lease=session._history._lease)
    one, two, three = [await step(session, number) for number in range(3)]
    delete(three)
    four = await step(session, 4)
    assert store.resolve(four).parents == (two,)
    delete(four)
    await session.rollback()
    assert await value(session, "x") == 1
    delete(*store.list("session/work"))
    assert store.resolve(await step(session, 6)).parents == ()
    with pytest.raises(NotFound):
        await session.rollback(to=one)


async def test_nothing_to_go_back_to(session: Session, store) -> None:
    with pytest.raises(NotFound, match="no checkpoint"):
        await session.rollback()
    one = await step(session, 1)
    with pytest.raises(NotFound, match="first checkpoint"):
        await session.rollback()
    assert store.head("session/work").id == one
    assert [move.verb for move in store.history("session/work")] == ["checkpoint"]


async def test_a_resumed_line_goes_on(session: Session, store) -> None:
    await step(session, 1)
    two = await step(session, 2)
    await session.shutdown()
    again = await Session.resume("work", store=store)
    three = await step(again, 3)
    assert store.resolve(three).parents == (two,)
    await again.rollback()
    assert await value(again, "x") == 2
    await again.shutdown()


async def test_a_fork_leaves_its_origin_where_it_was(session: Session, store) -> None:
    await step(session, 1)
    two = await step(session, 2)
    await session.execute("x = 'forked'")
    other = await session.fork("other")
    (first,) = await other.list()
    assert (first.parents, first.reason) == ((two,), "fork of session/work")
    assert await value(other, "x") == "forked"
    assert store.resolve(await step(other, "later")).parents == (first.id,)
    await other.rollback()
    assert await value(other, "x") == "forked"
    await other.shutdown()
    assert store.head("session/work").id == two
    await session.rollback()  # as if there had been no fork
    assert await value(session, "x") == 1


async def test_a_fork_to_a_taken_name_changes_nothing(session: Session, make, store) -> None:
    taken = await step(await make("taken"), 0)
    one = await step(session, 1)
    with pytest.raises(Conflict, match="session/taken"):
        await session.fork("taken")
    assert store.head("session/taken").id == taken
    assert [cp.id for cp in await session.list()] == [one]
    assert len(store.history("session/work")) == 1


async def test_of_two_forks_to_one_name_one_wins(make, store) -> None:
    a, b = await make("a"), await make("b")
    await step(a, "a")
    await step(b, "b")
    done = await asyncio.gather(a.fork("both"), b.fork("both"), return_exceptions=True)
    (won,) = [each for each in done if isinstance(each, Session)]
    assert [isinstance(each, Conflict) for each in done if each is not won] == [True]
    (only,) = store.list("session/both")
    assert store.head("session/both").id == only.id
    assert only.reason == f"fork of session/{await value(won, 'x')}"
    await won.shutdown()


async def test_a_name_that_has_checkpoints_is_taken(session: Session, store) -> None:
    one = await step(session, 1)
    await session.shutdown()
    again = Session("work", store=store)
    with pytest.raises(Conflict, match="session/work exists already") as caught:
        await again.start()
    assert caught.value.hint == (
        "Session.resume('work') goes on with it; fresh=True begins a new line"
    )
    assert not again.alive
    with pytest.raises(Conflict):
        async with again:
            pytest.fail("it started")
    await again.restore()  # says what it goes on with
    assert store.resolve(await step(again, 2)).parents == (one,)
    await again.shutdown()


async def test_fresh_begins_a_new_line(session: Session, make, store) -> None:
    one = await step(session, 1)
    await session.shutdown()
    anew = await make("work", fresh=True)
    assert await value(anew, "'x' in globals()") is False
    two = await step(anew, 2)
    assert store.resolve(two).parents == ()
    with pytest.raises(NotFound, match="first checkpoint"):
        await anew.rollback()
    assert store.head("session/work").id == two
    assert {cp.id for cp in await anew.list()} == {one, two}


async def test_a_name_may_say_its_kind_but_no_other(session: Session, make, store) -> None:
    named = await make("session/team/a")
    assert (named.name, str(named.subject)) == ("team/a", "session/team/a")
    other = await named.fork("session/copy")
    assert str(other.subject) == "session/copy"
    await other.shutdown()
    resumed = await Session.resume("session/copy", store=store)
    await resumed.shutdown()
    for name in ("state/a", "sandbox/a", "session/session/a", "container/default/tc"):
        with pytest.raises(BadInput, match="kind"):
            Session(name, store=store)
        with pytest.raises(BadInput):
            await Session.resume(name, store=store)
    with pytest.raises(BadInput):
        await session.fork("state/a")
    assert await session.list() == []
