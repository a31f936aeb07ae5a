"""A bundle: its members are frozen together and brought back together, or not at all."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from holdfast.bundle import hooks, record
from holdfast.bundle.hooks import Hook, Inside
from holdfast.bundle.member import Distant, Member, member_of
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, HoldfastError, NotFound, UsageError
from holdfast.model.subject import Subject
from holdfast.model.tracing import span
from holdfast.sandbox.whole import whole
from holdfast.store import Store
from holdfast.store.together import Verb

log = logging.getLogger("holdfast.bundle")

List = list  # inside the class, `list` is the verb


def _order(member: Member) -> tuple[int, str]:
    return member.rank, str(member.subject)


class _Entering:
    """How far a restore has come, for the way back."""

    def __init__(self, back: list[Checkpoint]) -> None:
        self.back = back  # the members as they were
        self.members: list[Member] = []  # those that have begun to enter
        self.wanted: list[Checkpoint] = []  # what they enter
        self.made_again: list[Checkpoint] = []  # of those, what was pruned before

    async def find(self, find: Callable[[], tuple[Checkpoint, bool]]) -> None:
        found, is_new = await asyncio.to_thread(find)
        self.wanted.append(found)
        if is_new:
            self.made_again.append(found)


class Bundle:
    """Binds a state, a session, a sandbox and a container, or any of them, under one name.

    `on_restore` is called with the bundle's checkpoint when all members are back and before
    anybody may use them: to reseed, to reconnect, to fetch new tokens; `Inside` runs code in a
    member at that moment. When one raises, all members go back to where they were.

    `store` is only needed where no member says which it is: sandboxes are on their server's.
    """

    def __init__(
        self,
        name: str,
        members: Iterable[object],
        *,
        on_restore: Iterable[Hook] = (),
        store: Store | None = None,
    ) -> None:
        """Raises BadInput for what cannot be bound, and UsageError when the stores differ."""
        self.subject = Subject("bundle", name.removeprefix("bundle/"))
        # Those that take longest to stand still are paused first, and captured last; among them in
        # one order for everybody, so that no two bundles wait for each other.
        self._members = sorted((member_of(each) for each in members), key=_order)
        self._hooks = tuple(on_restore)
        self._busy = asyncio.Lock()
        names = [str(member.subject) for member in self._members]
        if not names or len(set(names)) != len(names):
            raise BadInput("a bundle binds one or more subjects, each once")
        hooks.check(self._hooks, self._members)
        self.store = self._one_store(store)
        for member in self._members:
            if isinstance(member, Distant):
                member.settle(self.store)

    def _one_store(self, given: Store | None) -> Store:
        """Where all members are, as far as they know."""
        known = [each.store for each in self._members if each.store is not None]
        known += [given] if given is not None else []
        if not known:
            raise UsageError(
                "nothing says in which store the bundle is to be",
                hint="Bundle(..., store=open_store(URL)), with the store of the sandbox's server",
            )
        for other in known:
            if other.url != known[0].url:
                raise UsageError(
                    f"the members are in {known[0].url} and in {other.url}",
                    hint="give all members of a bundle the same store",
                )
        return known[0]

    def __repr__(self) -> str:
        names = ", ".join(str(member.subject) for member in self._members)
        return f"<Bundle {self.subject}: {names}>"

    async def checkpoint(self, reason: str = "manual", stage: str | None = None) -> Checkpoint:
        """Freeze all members at one moment; durable, for all of them, when this returns.

        When it raises, no head has moved and every member goes on as it was.
        """
        async with self._alone("checkpoint"), self._paused():
            made = await self._capture(reason, stage)
            # Cancelled from here on, the heads may move all the same: a thread moves them.
            return await whole(self._bind(made, reason, stage))

    async def _bind(self, made: List[Checkpoint], reason: str, stage: str | None) -> Checkpoint:
        """Write the bundle of these and move the heads; or let go of all of them."""
        try:
            bundle = await asyncio.to_thread(
                record.write, self.store, self.subject, made, reason=reason, stage=stage
            )
            made.append(bundle)
            await self._move(made, "checkpoint")
        except BaseException as error:
            await self._discard(made, error)
            raise
        await self._arrive(made)
        return bundle

    async def restore(
        self, reference: Checkpoint | str | None = None, *, trust: bool = False
    ) -> Checkpoint:
        """Bring all members back to a checkpoint of this bundle, by default to its head.

        When it raises, every member is as it was. Raises NotFound, Corrupt or Denied, and
        UsageError when that checkpoint binds other members.
        """
        async with self._alone("restore"):
            target, bound = await asyncio.to_thread(self._find, reference, trust)
            async with self._paused():
                back = await self._capture(f"before going to {target.short}", None)
                entering = _Entering(back)
                try:
                    await self._enter(entering, target, bound, trust)
                except BaseException as error:
                    await whole(self._go_back(entering, error))
                    raise
                # Cancelled from here on, the heads may move all the same: a thread moves them.
                await whole(self._settle(entering, target))
            return target

    async def list(self, limit: int | None = None) -> List[Checkpoint]:
        """This bundle's checkpoints, newest first."""
        return await asyncio.to_thread(self.store.list, self.subject, limit=limit)

    # -- underneath ------------------------------------------------------------------------

    @asynccontextmanager
    async def _alone(self, verb: str) -> AsyncIterator[None]:
        async with self._busy:
            with span(f"bundle.{verb}", subject=str(self.subject)):
                yield

    @asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as paused:
            for member in self._members:
                await member.pause()
                paused.push_async_callback(member.resume)
            yield

    async def _capture(self, reason: str, stage: str | None) -> List[Checkpoint]:
        """Every member aside; or none. Those that cannot be kept from changing come first."""
        made: List[Checkpoint] = []

        async def capture(member: Member) -> None:
            made.append(await member.capture(reason, stage))

        try:
            for member in reversed(self._members):
                await whole(capture(member))  # what was committed has to be known here
        except BaseException as error:
            await whole(self._discard(made, error))
            raise
        return made

    async def _enter(
        self,
        entering: _Entering,
        target: Checkpoint,
        bound: Mapping[Subject, record.Bound],
        trust: bool,
    ) -> None:
        """Take all members to the target, and run the hooks."""
        for member in self._members:
            find = partial(record.find, self.store, target, bound[member.subject], member.lease)
            await whole(entering.find(find))
            entering.members.append(member)
            await member.enter(entering.wanted[-1], trust)
        for hook in self._hooks:
            if isinstance(hook, Inside):
                await hooks.find(hook, self._members).run(hook.code)
            elif inspect.isawaitable(answer := hook(target)):
                await answer

    async def _settle(self, entering: _Entering, target: Checkpoint) -> None:
        """Move the heads to what all members have entered; or take the members back."""
        try:
            await self._move([*entering.wanted, target], "restore")
        except BaseException as error:
            await self._go_back(entering, error)
            raise
        await self._arrive(entering.wanted)
        await self._discard(entering.back)

    async def _go_back(self, entering: _Entering, error: BaseException) -> None:
        """Each as it was; whoever cannot be is named in the error."""
        ways = {each.subject: each for each in entering.back}
        for member in reversed(entering.members):
            try:
                await member.enter(ways[member.subject], True)
            except HoldfastError as failure:
                error.add_note(f"{member.subject} could not be taken back: {failure}")
        await self._discard(entering.made_again, error)
        await self._discard(entering.back, error)

    async def _move(self, targets: Iterable[Checkpoint], verb: Verb) -> None:
        for member in self._members:
            if isinstance(member, Distant):
                await member.check()
        leases = [member.lease for member in self._members if member.lease is not None]
        move = partial(self.store.move_heads, *targets, verb=verb, leases=leases, trust=True)
        await asyncio.to_thread(move)

    async def _arrive(self, made: Iterable[Checkpoint]) -> None:
        """The heads have moved: all members are told, whatever one of them says to that."""
        by_subject = {each.subject: each for each in made}
        lost: List[HoldfastError] = []
        for member in self._members:
            try:
                await member.arrive(by_subject[member.subject])
            except HoldfastError as error:
                error.add_note(f"the heads have moved; {member.subject} comes back from its own")
                lost.append(error)
        if lost:
            raise lost[0]

    async def _discard(self, made: List[Checkpoint], error: BaseException | None = None) -> None:
        """Delete what nothing will descend from. What stays is only space, so it is no error."""
        leases = {str(member.subject): member.lease for member in self._members}
        for each in made:
            try:
                lease = leases.get(str(each.subject))
                await asyncio.to_thread(self.store.delete, each, lease=lease)
            except HoldfastError as failure:
                log.warning("%s of %s stays: %s", each.short, each.subject, failure)
                if error is not None:
                    error.add_note(f"{each.short} of {each.subject} was left behind: {failure}")

    def _find(
        self, reference: Checkpoint | str | None, trust: bool
    ) -> tuple[Checkpoint, dict[Subject, record.Bound]]:
        """The checkpoint that is meant, and what it binds."""
        if reference is None:
            found = self.store.head(self.subject)
            if found is None:
                raise NotFound(f"{self.subject} has no checkpoint")
        else:
            found = self.store.resolve(reference)
        if found.subject != self.subject:
            raise UsageError(f"{found.short} is a checkpoint of {found.subject}")
        bound = {
            Subject.parse(each.subject): each
            for each in record.read(self.store, found, trust).members
        }
        ours = {member.subject for member in self._members}
        if bound.keys() != ours:
            others = ", ".join(sorted(map(str, bound)))
            raise UsageError(
                f"{found.short} binds {others}, not what this bundle has",
                hint="make a Bundle of just these members",
            )
        return found, bound
