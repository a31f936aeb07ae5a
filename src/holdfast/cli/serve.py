"""`holdfast serve`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.extra import extra
from holdfast.cli.invocation import Invocation
from holdfast.cli.quantities import Port
from holdfast.cli.settings import (
    AUTHS,
    CHECKPOINTS,
    EGRESS,
    ENGINES,
    LOG_FORMATS,
    NETWORK,
    SESSIONS,
)

if TYPE_CHECKING:
    from holdfast.sandbox.admission import Tenant
    from holdfast.sandbox.contract import Engine
    from holdfast.sandbox.settings import Settings
    from holdfast.server.drills import Schedule
    from holdfast.server.sandboxes import Sandboxes
    from holdfast.store import Store


@click.command("serve")
@click.option("--host", metavar="HOST", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=Port(), metavar="PORT", help="0 takes a free one.  [default: 8787]")
@click.option(
    "--engine", type=click.Choice(ENGINES), help="What sandboxes run in.  [default: auto]"
)
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="NAME=PATH",
    help="A root for sandboxes: a folder, a tar or an OCI layout; may be repeated.",
)
@click.option(
    "--auth",
    type=click.Choice(AUTHS),
    help="`none` asks for no token, on loopback only.  [default: token]",
)
@click.option(
    "--sessions",
    type=click.Choice(SESSIONS),
    help="Whether it runs sessions, as its own user; `auto`: on loopback.  [default: auto]",
)
@click.option(
    "--session-idle-timeout",
    metavar="SECONDS",
    help="When a session that nobody types into is frozen and ended.  [default: 3600]",
)
@click.option(
    "--drill-every",
    metavar="HOURS",
    help="How often checkpoints are proved by bringing them back; 0: never.  [default: 0]",
)
@click.option("--drill-most", metavar="N", help="How many of them each time.  [default: 10]")
@click.option(
    "--drill-subjects",
    metavar="PATTERNS",
    help="Whose, e.g. `session/*,state/plan`.  [default: *]",
)
@click.option(
    "--advertise",
    metavar="URL",
    help="Where other servers of the store reach this one.  [default: its address]",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="Where browsers reach it, through a proxy with TLS.  [default: its address]",
)
@click.option(
    "--log-format", type=click.Choice(LOG_FORMATS), help="How it logs to stderr.  [default: text]"
)
@click.option(
    "--checkpoints",
    type=click.Choice(CHECKPOINTS),
    help="Whether new sandboxes may ask for checkpoints.  [default: on]",
)
@click.option("--max-sandboxes", metavar="N", help="More than so many are refused.  [default: 64]")
@click.option("--pool", metavar="N", help="Sandboxes that stand ready.  [default: 1]")
@click.option(
    "--tokens",
    metavar="FILE",
    help="Further tokens, with a quota and limits each; they lead to sandboxes only.",
)
@click.option("--quota", metavar="N", help="Sandboxes of such a token, if the file does not say.")
@click.option("--max-starting", metavar="N", help="Sandboxes being made at once.  [default: 4]")
@click.option("--max-waiting", metavar="N", help="In line for that, of one token.  [default: 16]")
@click.option(
    "--max-wait", metavar="SECONDS", help="The longest that one waits in line.  [default: 30]"
)
@click.option(
    "--template",
    "templates",
    multiple=True,
    metavar="NAME",
    help="Have sandboxes of this template ready from the beginning; may be repeated.",
)
@click.option(
    "--network",
    type=click.Choice(NETWORK),
    help="Whether a sandbox may ask for the host's network.  [default: on]",
)
@click.option(
    "--egress",
    type=click.Choice(EGRESS),
    help="What an allow-list of a sandbox may lead to.  [default: public]",
)
@click.option(
    "--idle-timeout",
    metavar="SECONDS",
    help="For sandboxes whose client does not say.  [default: 300]",
)
@click.option(
    "--sandbox-memory", metavar="SIZE", help="The most memory of a sandbox.  [default: 2GiB]"
)
@click.option("--sandbox-disk", metavar="SIZE", help="The most it may write.  [default: 2GiB]")
@click.option("--sandbox-cpus", metavar="N", help="The most processors of one.  [default: 2]")
@click.option("--sandbox-processes", metavar="N", help="The most processes in one.  [default: 256]")
@click.option(
    "--sandbox-seconds",
    metavar="SECONDS",
    help="The longest that an execution may take.  [default: 3600]",
)
@click.pass_obj
def command(
    invocation: Invocation,
    /,
    images: tuple[str, ...],
    templates: tuple[str, ...],
    **options: object,
) -> None:
    """Start the server: pages for people, JSON for programs.

    It prints its address and its token, which is HOLDFAST_TOKEN when that is set and a new one
    otherwise. It ends on Ctrl-C or SIGTERM, after the requests under way.
    """
    from holdfast.model.errors import UsageError

    with extra("server", "the server"):
        from holdfast.dashboard.site import Site
        from holdfast.server.app import create_app
        from holdfast.server.drills import Drills
        from holdfast.server.guard import is_loopback
        from holdfast.server.listen import address, bind, serve
        from holdfast.server.logs import set_up
        from holdfast.server.sessions import Sessions

    invocation.options.update(options)
    settings = {name: each.value for name, each in invocation.settings().items()}
    place = str(settings["host"])
    if settings["auth"] == "none" and not is_loopback(place):
        raise UsageError(
            f"--auth none is for loopback addresses, and {place} is not one",
            hint="leave --auth away to ask for the token, or listen on 127.0.0.1",
        )
    set_up(str(settings["log_format"]))
    token = _token(invocation, settings["token"]) if settings["auth"] == "token" else None
    tenants = _tenants(settings)
    with invocation.store(create=True) as store:
        listener = bind(place, int(str(settings["port"])))
        url = address(listener)
        store.announce(str(settings["advertise"] or url))
        if token is None:
            invocation.warn("no token is asked for: everybody on this machine may come in")
        elif not is_loopback(place):
            invocation.warn("the token crosses the network unencrypted; put TLS in front")
        sessions = Sessions(
            store,
            _no_sessions(str(settings["sessions"]), is_loopback(place)),
            idle_seconds=float(str(settings["session_idle_timeout"])),
        )
        kept = _kept(settings, images, templates, url)
        engine = str(settings["engine"])
        with _sandboxes(invocation, store, engine, kept, tenants=bool(tenants)) as sandboxes:
            app = create_app(
                store,
                token,
                sandboxes=sandboxes,
                sessions=sessions,
                site=Site.find(),
                drills=Drills(store, _schedule(settings)),
                tenants=tenants,
                public=None if settings["public_url"] is None else str(settings["public_url"]),
            )
            made = token is not None and settings["token"] is None
            serve(app, listener, ready=lambda: _tell(invocation, url, token, store.url, made))
    invocation.tell("stopped")


def _tenants(settings: Mapping[str, object]) -> dict[str, Tenant]:
    """Those who have tokens of their own."""
    from holdfast.model.errors import UsageError
    from holdfast.server.tenants import read

    if settings["tokens"] is None:
        return {}
    if settings["auth"] == "none":
        raise UsageError("--tokens means nothing with --auth none", hint="leave one of them away")
    quota = settings["quota"]
    return read(Path(str(settings["tokens"])), quota if isinstance(quota, int) else None)


def _no_sessions(wanted: str, loopback: bool) -> str | None:
    """Why the server runs no sessions, if so: whoever has its token would run code as its user,
    and that is more than a sandbox lets them do."""
    if wanted == "on" or (wanted == "auto" and loopback):
        return None
    why = "it was told not to" if wanted == "off" else "it does not listen on loopback"
    return f"{why}; `holdfast serve --sessions on` lets it"


def _schedule(settings: Mapping[str, object]) -> Schedule:
    from holdfast.server.drills import Schedule

    patterns = [each.strip() for each in str(settings["drill_subjects"]).split(",")]
    return Schedule(
        hours=float(str(settings["drill_every"])),
        most=int(str(settings["drill_most"])),
        patterns=tuple(each for each in patterns if each),
    )


def _kept(
    settings: Mapping[str, object], images: tuple[str, ...], templates: tuple[str, ...], url: str
) -> Settings:
    """How sandboxes are kept, as far as that was said."""
    from holdfast.sandbox.contract import Limits
    from holdfast.sandbox.settings import Settings

    def number(name: str) -> float:
        return float(str(settings[name]))

    return Settings(
        most=int(number("max_sandboxes")),
        warm=int(number("pool")),
        starting=int(number("max_starting")),
        waiting=int(number("max_waiting")),
        wait_seconds=number("max_wait"),
        idle_timeout=number("idle_timeout"),
        checkpoints=settings["checkpoints"] == "on",
        network=settings["network"] == "on",
        limits=Limits(
            memory_bytes=int(number("sandbox_memory")),
            cpus=number("sandbox_cpus"),
            processes=int(number("sandbox_processes")),
            disk_bytes=int(number("sandbox_disk")),
            seconds=number("sandbox_seconds"),
        ),
        images=_images(images),
        templates=templates,
        egress=settings["egress"],  # type: ignore[arg-type]  # one of the words
        url=str(settings["advertise"] or url),
    )


@contextmanager
def _sandboxes(
    invocation: Invocation, store: Store, engine: str, settings: Settings, *, tenants: bool
) -> Iterator[Sandboxes]:
    """Sandboxes on the engine that was asked for. Where `auto` finds none, the server runs without
    them and says so; one that was named must work."""
    from holdfast.model.errors import Unsupported
    from holdfast.model.home import home
    from holdfast.sandbox.choice import Ground, choose, sweep
    from holdfast.sandbox.fleet import Fleet
    from holdfast.server.sandboxes import Sandboxes

    try:
        chosen = choose(engine)
    except Unsupported as trouble:
        if engine != "auto":
            raise
        invocation.warn(f"no sandboxes: {trouble}")
        yield Sandboxes(None, trouble)
        return
    if not chosen.capabilities.boundary:
        invocation.warn(_no_boundary(chosen, tenants=tenants))
    runs = home() / "run"
    sweep(runs)
    ground = Ground(runs)
    try:
        fleet = Fleet(store, chosen, ground.folder, settings)
        yield Sandboxes(fleet)
    finally:
        ground.release()


def _no_boundary(engine: Engine, *, tenants: bool) -> str:
    """What is said before any code is taken, where that is not held."""
    from holdfast.model.errors import Unsupported
    from holdfast.sandbox.choice import choose

    told = f"the engine {engine.name} is no security boundary: run only code that you trust"
    if tenants:
        told += ", and give tokens only to people who trust each other"
    try:
        choose("gvisor")
    except Unsupported as trouble:
        return f"{told}; gVisor, which is one, cannot run here: {trouble}"
    return f"{told}; gVisor, which is one, can run here: --engine gvisor"


def _images(given: tuple[str, ...]) -> tuple[tuple[str, Path], ...]:
    from holdfast.model.errors import UsageError
    from holdfast.sandbox.keeping import check_name

    found: dict[str, Path] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not equals or not path or name in found:
            raise UsageError(f"not an image: {each!r}", hint="--image NAME=PATH, each name once")
        check_name(name)
        found[name] = Path(path)
    return tuple(found.items())


def _token(invocation: Invocation, given: object) -> str:
    """Raises BadInput for one that nobody could send."""
    import secrets

    from holdfast.model.addresses import check_token
    from holdfast.server.tenants import SHORTEST

    if not isinstance(given, str):
        return secrets.token_urlsafe(32)
    check_token(given, "HOLDFAST_TOKEN")
    if len(given) < SHORTEST:
        invocation.warn(
            f"HOLDFAST_TOKEN has less than {SHORTEST} characters and may be guessed:"
            " `openssl rand -hex 32` makes one"
        )
    return given


def _tell(invocation: Invocation, url: str, token: str | None, store: str, made: bool) -> None:
    """Say where the server is. Whoever waits for these lines may use it, or stop it, at once."""
    lines = [f"holdfast is at {url}", f"store: {store}", *([f"token: {token}"] if token else [])]
    invocation.show({"address": url, "token": token, "store": store}, lambda: "\n".join(lines))
    sys.stdout.flush()
    if made and sys.stderr.isatty():  # a log wants no advice
        invocation.tell("the token is new at each start; set HOLDFAST_TOKEN to keep it")
