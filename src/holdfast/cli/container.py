"""`holdfast container`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.compact import compact
from holdfast.cli.finalize import finalize, watch
from holdfast.cli.invocation import Invocation
from holdfast.cli.podman import export, import_

if TYPE_CHECKING:
    from holdfast.oci.installation import Plan
    from holdfast.oci.registration import EngineName

_ROOT = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    show_default=True,
    help="Work on the files below this directory, e.g. of a machine's image.",
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would change and do nothing.")


@click.group("container")
def command() -> None:
    """Freeze and revive containers under containerd, Docker or Podman.

    A container opts in with the annotation `holdfast.checkpoint=1` or the environment variable
    HOLDFAST_CHECKPOINT=1; everything else goes to runc untouched.
    """


@command.command("install")
@click.option(
    "--engine",
    "engines",
    type=click.Choice(["containerd", "docker", "podman"]),
    multiple=True,
    help="Register with this engine; may be repeated. Without it: all that are here.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Also place a systemd unit that saves all containers before the machine goes away.",
)
@_ROOT
@_DRY_RUN
@click.pass_obj
def install(
    invocation: Invocation,
    engines: tuple[EngineName, ...],
    watch: bool,
    root: Path,
    dry_run: bool,
) -> None:
    """Register the runtime `holdfast` with the engines of this node.

    Only their configuration changes; runc stays where and what it is. Running it again is harmless.
    """
    from holdfast.model.errors import NotFound
    from holdfast.oci.installation import SCRIPT, plan_install, present
    from holdfast.oci.trampoline import Trampoline, bake, compile_quick
    from holdfast.runtime import engines as found_engines

    runc = found_engines.find("runc", invocation.environ)
    if runc is None:
        raise NotFound("there is no runc to stand in front of", hint="run `holdfast doctor`")
    program = str(runc.program)
    # Compiled for this machine alone: an image may be for one with other libraries.
    quick = compile_quick(program, f"/{SCRIPT}", invocation.environ) if root == Path("/") else None
    trampoline = Trampoline(bake(sys.executable, program), quick)
    plan = plan_install(root, engines or present(root), trampoline, watch=watch)
    _finish(invocation, plan, dry_run)
    if root == Path("/") and quick is None:
        invocation.tell("there is no C compiler: each `create` takes about a millisecond longer")
    if not dry_run:
        invocation.tell(f"the runtime `holdfast` is registered with {', '.join(plan.engines)}")


@command.command("uninstall")
@_ROOT
@_DRY_RUN
@click.option("--force", is_flag=True, help="Also while containers that opted in are there.")
@click.pass_obj
def uninstall(invocation: Invocation, root: Path, dry_run: bool, force: bool) -> None:
    """Undo `install`: every file is as it was before.

    Where somebody edited a file since, only what is Holdfast's is taken out. Checkpoints stay.
    """
    from holdfast.model.errors import Conflict
    from holdfast.oci.installation import plan_uninstall
    from holdfast.oci.state import all_states, run_path

    plan = plan_uninstall(root)
    running = [state.folder.name[1:] for state in all_states(run_path(invocation.environ))]
    if running and not (force or dry_run) and root == Path("/"):
        raise Conflict(
            f"containers still need holdfast-runc: {', '.join(running)}",
            hint="remove them first: their engine cannot delete them without it; or use --force",
        )
    _finish(invocation, plan, dry_run)


@command.command("list")
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List the containers that opted in: those that are here, and those that are only frozen."""
    from holdfast.model.moment import now, to_text
    from holdfast.oci.overview import Overview
    from holdfast.view.table import Column, table
    from holdfast.view.words import age, size

    lines = Overview(invocation.environ).lines()
    time = now()
    invocation.show(
        {
            "containers": [
                {
                    "subject": line.subject,
                    "container_id": line.id,
                    "status": line.status,
                    "checkpoint_count": line.checkpoints,
                    "newest": to_text(line.newest) if line.newest else None,
                    "size_bytes": line.size_bytes,
                    "restored_from": line.restored_from,
                    "cold": line.cold,
                }
                for line in lines
            ]
        },
        lambda: table(
            (
                Column("SUBJECT", "bold", cut=2),
                Column("ID", "yellow"),
                Column("STATUS"),
                Column("CHECKPOINTS", justify="right"),
                Column("NEWEST", "dim"),
                Column("SIZE", justify="right"),
                Column("NOTES", "cyan", cut=1),
            ),
            (
                (
                    line.subject,
                    _shown(line.id or ""),
                    line.status,
                    str(line.checkpoints),
                    age(line.newest, time) if line.newest else "",
                    size(line.size_bytes),
                    f"started cold: {line.cold}"
                    if line.cold
                    else f"restored from {line.restored_from}"
                    if line.restored_from
                    else "",
                )
                for line in lines
            ),
        ),
    )
    if not lines:
        invocation.tell("no container has opted in here")


def _shown(identity: str) -> str:
    """An id as its engine shows it: of the 64 digits of Docker's and Podman's, twelve."""
    return identity[:12] if len(identity) == 64 else identity


@command.command("checkpoint")
@click.argument("container")
@click.option("--stop", is_flag=True, help="End the container once its checkpoint is safe.")
@click.option("--reason", default="manual", show_default=True, help="Why, in a few words.")
@click.pass_obj
def checkpoint(invocation: Invocation, container: str, stop: bool, reason: str) -> None:
    """Freeze a running container for a moment and keep it.

    CONTAINER is its id or the beginning of that, its subject, or the last part of it. Should
    anything fail, the container goes on as before.
    """
    take(invocation, container, reason=reason, stop=stop)


@command.command("preflight")
@click.argument("container")
@click.pass_obj
def preflight(invocation: Invocation, container: str) -> None:
    """Say what in a running container cannot be frozen, before anybody tries.

    CONTAINER is named as for `checkpoint`. What can be helped by telling CRIU about it is, at each
    checkpoint. The exit code is 0 when nothing stands in the way, and 9 otherwise.
    """
    from holdfast.oci.overview import Overview

    record, found = Overview(invocation.environ).preflight(container)
    invocation.show(
        {
            "subject": record.subject,
            "clear": found.clear,
            "findings": [
                {"name": each.name, "detail": each.detail, "stops": each.stops}
                for each in found.findings
            ],
            "options": [*found.options, *found.lines],
        },
        lambda: "\n".join(
            f"{'cannot be frozen' if each.stops else 'note'}: {each.detail}"
            for each in found.findings
        ),
    )
    if not found.findings:
        invocation.tell("nothing stands in the way")
    if not found.clear:
        click.get_current_context().exit(9)


command.add_command(compact)
command.add_command(finalize)
command.add_command(watch)
command.add_command(export)
command.add_command(import_)


def take(invocation: Invocation, container: str, *, reason: str, stop: bool) -> None:
    """Take a checkpoint of a container and tell about it."""
    from holdfast.oci.overview import Overview
    from holdfast.view.words import size

    taken = Overview(invocation.environ).checkpoint(
        container, reason=reason, leave_running=not stop
    )
    saved = taken.saved
    invocation.show(
        {
            "id": saved.id,
            "subject": str(saved.subject),
            "size_bytes": saved.size_bytes,
            "written_bytes": saved.written_bytes,
            "frozen_ms": round(taken.frozen_ms, 3),
        },
        lambda: (
            f"{saved.id} {saved.subject}: {size(saved.written_bytes or saved.size_bytes)} written, "
            f"frozen {taken.frozen_ms:.0f} ms"
        ),
    )


def _finish(invocation: Invocation, plan: Plan, dry_run: bool) -> None:
    import os

    from holdfast.model.errors import Denied
    from holdfast.oci.installation import carry_out

    if not dry_run:
        if os.geteuid() != 0:
            raise Denied(
                "changing a node's configuration needs root", hint="see it first with --dry-run"
            )
        carry_out(plan)
    changes = [change for change in plan.changes if change.verb != "leave"]
    invocation.show(
        {
            "changes": [{"path": str(each.path), "change": each.verb} for each in changes],
            "notes": list(plan.notes),
            "dry_run": dry_run,
        },
        lambda: "\n".join(
            f"{'would ' if dry_run else ''}{each.verb} {each.path}" for each in changes
        ),
    )
    if not changes:
        invocation.tell("nothing to change")
    for note in plan.notes:
        invocation.tell(f"then: {note}" if note.startswith("systemctl") else note)
