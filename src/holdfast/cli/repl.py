"""`holdfast repl`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import trust_option

if TYPE_CHECKING:
    from holdfast.session import Session
    from holdfast.store import Store


@click.command("repl")
@click.argument("name", default="main")
@click.option("--fresh", is_flag=True, help="Begin with nothing; what was there stays in the log.")
@trust_option
@click.pass_obj
def command(invocation: Invocation, name: str, fresh: bool, trust: bool) -> None:
    """Open a Python prompt whose every cell is checkpointed.

    However it ends, the same command goes on with the session NAME where it was. Lines that begin
    with % are commands to the prompt: %help lists them. What IPython has besides (df?, !ls,
    %timeit) is in IPython: HOLDFAST_SESSION=NAME ipython --ext holdfast.
    """
    with invocation.store(create=True) as store:
        asyncio.run(_prompt(invocation, store, name, fresh, trust))


async def _prompt(
    invocation: Invocation, store: Store, name: str, fresh: bool, trust: bool
) -> None:
    from holdfast.cli.prompt.loop import Loop
    from holdfast.cli.prompt.terminal import reader_for
    from holdfast.model.home import home
    from holdfast.session.door import Door

    door = Door(store)
    session, number = await _open(invocation, store, name, fresh, trust)
    try:
        async with door.open(session):
            await Loop(session, reader_for(session, home() / "repl-history"), number).run()
    finally:
        await session.shutdown()
    if await asyncio.to_thread(store.head, session.subject) is not None:
        invocation.tell(f"{session.subject} is kept; holdfast repl {session.name} goes on")


async def _open(
    invocation: Invocation, store: Store, name: str, fresh: bool, trust: bool
) -> tuple[Session, int]:
    """The session, and the number of its next cell."""
    from holdfast.session import Session
    from holdfast.view.session import came_back, next_cell

    wanted = Session(name, store=store, fresh=True, auto_checkpoint="cell")
    head = await asyncio.to_thread(store.head, wanted.subject)
    if head is None or fresh:
        invocation.tell(f"{wanted.subject}, new; %help lists the commands")
        return await wanted.start(), 1
    session = await Session.resume(name, store=store, trust=trust, auto_checkpoint="cell")
    invocation.tell(f"{session.subject}, from {head.short} ({head.reason})")
    for line in came_back(session.report) if session.report is not None else []:
        invocation.tell(line)
    return session, await asyncio.to_thread(next_cell, store, head, trust)
