"""Templates: sandboxes kept with what runs in them, from which new ones begin where those stood.

A template is a checkpoint of `sandbox/templates/<name>`. The server that is asked for one lays a
copy of it on its own disk and, from then on, has bodies of it ready, as it has plain ones.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
from collections import OrderedDict
from functools import partial
from pathlib import Path

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, Conflict, HoldfastError, NotFound, Unsupported
from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest
from holdfast.sandbox import keeping, languages
from holdfast.sandbox.admission import OWNER, Tenant
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.catalogue import Catalogue
from holdfast.sandbox.chores import Chores
from holdfast.sandbox.coming import Moment
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.freezing import Freezer
from holdfast.sandbox.keeping import Kept
from holdfast.sandbox.live import Frozen, LiveSandbox
from holdfast.sandbox.pool import Pool, over
from holdfast.sandbox.settings import Settings
from holdfast.sandbox.whole import in_thread, in_thread_or_undone, whole

log = logging.getLogger("holdfast.sandbox")
MOST = 8  # templates of which bodies stand ready; the one not asked for the longest goes first


class Stock:
    """One template as this server has it: a copy on its disk, and bodies that stand ready."""

    def __init__(self, kept: Kept, place: Path) -> None:
        self.kept = kept
        self.files = place / "files.tar"
        self.image = place / "image"
        self.place = place
        self.pool: Pool[Body]
        self.making = 0

    def clear(self) -> None:
        """Blocking."""
        shutil.rmtree(self.place, ignore_errors=True)


class Templates:
    """The templates of one store, as far as this server has been asked for them."""

    def __init__(
        self,
        freezer: Freezer,
        workshop: Workshop,
        catalogue: Catalogue,
        settings: Settings,
        folder: Path,
        chores: Chores,
    ) -> None:
        self._freezer = freezer
        self._store = freezer.store
        self._workshop = workshop
        self._catalogue = catalogue
        self._settings = settings
        self._folder = folder / "templates"
        self._chores = chores
        self._stocks: OrderedDict[str, Stock] = OrderedDict()
        self._stocking = asyncio.Lock()

    def ready(self, name: str) -> int:
        """Bodies of a template that stand ready."""
        stock = self._stocks.get(name)
        return 0 if stock is None else len(stock.pool)

    async def begin(self) -> None:
        """Stand ready with the templates that whoever started the server named."""
        for name in self._settings.templates:
            try:
                (await self._stock(name)).pool.fill()
            except HoldfastError as error:
                log.warning("the template %s cannot be kept ready: %s", name, error)

    # -- keeping

    async def save(self, sandbox: LiveSandbox, name: str, tenant: str = "") -> Checkpoint:
        """Keep a sandbox that goes on as a template of a tenant. Raises HoldfastError."""
        keeping.check_name(name)
        name = keeping.stored_name(name, tenant)
        engine = self._workshop.engine
        engine.capabilities.need("snapshot", engine.name)
        return await whole(self._save(sandbox, name))

    async def _save(self, sandbox: LiveSandbox, name: str) -> Checkpoint:
        engine = self._workshop.engine
        async with sandbox.work:
            if sandbox.executing:
                raise Conflict(
                    "an execution is running", hint="a template is taken of a sandbox at rest"
                )
            await self._freezer.ready(sandbox, during_execution=False)
            frozen, _ = await self._freezer.moment(sandbox)
        request = CreateRequest(image=sandbox.request.image, network=sandbox.request.network)
        config = keeping.config_of(request, "", frozen.epoch, [], sandbox.session, frozen.running)
        root = sandbox.body.build.root
        try:
            made = await in_thread(
                keeping.save,
                self._store,
                keeping.template_subject(name),
                Moment(config, frozen.files, frozen.image),
                reason=f"template of {sandbox.identity}",
                environment={**engine.environment(), "root": root.digest},
            )
            try:
                await self._shelve(name, made, frozen)
            except (HoldfastError, OSError) as error:
                # It is durable: whoever asks for it next fetches it.
                log.warning("the template %s is not kept at hand: %s", name, error)
            return made
        finally:
            await in_thread(frozen.discard)

    async def _shelve(self, name: str, made: Checkpoint, frozen: Frozen) -> None:
        """What was just frozen need not be fetched."""
        kept = await in_thread(keeping.read, self._store, made)
        place = self._folder / made.id

        def move() -> None:
            try:
                place.mkdir(parents=True)
                frozen.files.rename(place / "files.tar")
                if frozen.image.is_dir():
                    frozen.image.rename(place / "image")
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise

        async with self._stocking:
            await in_thread(move)
            self._put(name, Stock(kept, place)).pool.fill()

    async def delete(self, name: str) -> None:
        """Forget a template, here and in the store. Raises NotFound."""
        await whole(self._forget(name))

    async def _forget(self, name: str) -> None:
        await in_thread(self._delete, name)
        stock = self._stocks.pop(name, None)
        if stock is not None:
            self._chores.begin(self._retire(stock))

    def _delete(self, name: str) -> None:
        keeping.check_name(name)
        found = self._store.list(keeping.template_subject(name))
        if not found:
            raise NotFound(f"there is no template {name!r:.100}")
        self._store.delete(*(each.id for each in found))

    # -- bodies

    async def body(self, request: CreateRequest, tenant: Tenant = OWNER) -> tuple[Body, Kept]:
        """A body in which everything is as the template has it. Raises HoldfastError."""
        stock = await self._stock(str(request.template), tenant)
        kept = stock.kept
        tenant.allowance.check(kept.request, self._workshop.engine.name)
        if kept.request.network and not self._settings.network:
            raise Unsupported("the template has the host's network", hint="serve --network on")
        if request.image not in (None, kept.request.image or "default"):
            raise BadInput("the template has another image", hint="leave the image away")
        if request.network and not kept.request.network:
            raise BadInput("the template has no network", hint="make it in a sandbox that has one")
        if request.limits is None and (ready := stock.pool.take()) is not None:
            return ready, kept
        return await self._make(stock, self._settings.limits.capped(request.limits)), kept

    async def _stock(self, asked: str, tenant: Tenant = OWNER) -> Stock:
        """The newest of a template, on this machine. Raises NotFound, Unsupported..."""
        keeping.check_name(asked)
        async with self._stocking:
            try:
                name, kept = await in_thread(self._look, asked, tenant)
            except NotFound:
                raise NotFound(
                    f"there is no template {asked!r:.100}", hint="holdfast template create"
                ) from None
            held = self._stocks.get(name)
            if held is not None and held.kept.checkpoint == kept.checkpoint:
                self._stocks.move_to_end(name)
                return held
            root = self._catalogue.find(kept.request.image)
            kept.check(self._workshop.engine, root.digest)
            stock = Stock(kept, self._folder / f"{kept.checkpoint}-{secrets.token_hex(4)}")
            await in_thread_or_undone(lambda _: stock.clear(), self._fetch, stock)
            return self._put(name, stock)

    def _look(self, name: str, tenant: Tenant) -> tuple[str, Kept]:
        make = keeping.template_subject
        found = keeping.find_name(self._store, make, name, tenant.name, tenant.shared)
        return found, keeping.look(self._store, make(found))

    def _fetch(self, stock: Stock) -> None:
        try:
            stock.place.mkdir(parents=True)
            if stock.kept.memory:
                keeping.fetch_memory(self._store, stock.kept, stock.image)
            keeping.copy_files(self._store, stock.kept.checkpoint, stock.files)
        except BaseException:
            stock.clear()
            raise

    def _put(self, name: str, stock: Stock) -> Stock:
        make = partial(self._make, stock, self._settings.limits)
        stock.pool = Pool(make, self._settings.warm, self._chores)
        old = self._stocks.pop(name, None)
        self._stocks[name] = stock
        gone = [old] if old is not None else []
        while len(self._stocks) > MOST:
            gone.append(self._stocks.popitem(last=False)[1])
        for each in gone:
            self._chores.begin(self._retire(each))
        return stock

    async def _make(self, stock: Stock, limits: Limits) -> Body:
        return await whole(self._made(stock, limits), undo=Body.give_up)

    async def _made(self, stock: Stock, limits: Limits) -> Body:
        kept = stock.kept
        root = self._catalogue.find(kept.request.image)
        exact = self._workshop.engine.capabilities.exact_checkpoint
        stock.making += 1
        try:
            body = await self._workshop.make(
                root,
                limits,
                network=kept.request.network,
                fill=partial(keeping.unpack_files, stock.files),
                image=stock.image if exact else None,
            )
        finally:
            stock.making -= 1
        try:
            if exact:
                await body.line.resume(kept.epoch, secrets.token_hex(16), kept.running)
            elif kept.session:
                await _begin_session(body)
        except BaseException:
            await body.give_up()
            raise
        return body

    async def _retire(self, stock: Stock) -> None:
        for body in await stock.pool.close():
            self._chores.begin(over(body))
        while stock.making:
            await asyncio.sleep(0.1)  # somebody's body is just being made of it
        await in_thread(stock.clear)

    async def close(self) -> None:
        stocks, self._stocks = list(self._stocks.values()), OrderedDict()
        for stock in stocks:
            await self._retire(stock)


async def _begin_session(body: Body) -> None:
    """Where memory does not come back, the session inside begins again from what it wrote down,
    before anybody waits for it."""
    build = body.build
    nothing = ExecuteRequest(language="python", code="", session=True, stdin=False)
    start = languages.plan(nothing, build.root, build.limits, "session").start
    process = await body.line.start(start)
    how = await process.wait()
    if how.code != 0:
        raise HoldfastError("the session of the template could not begin")
