"""`holdfast container finalize` and `watch`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation

if TYPE_CHECKING:
    from holdfast.oci.finalizing import Report, Result

_PARTIAL = 9
_DEADLINE = click.option(
    "--deadline",
    type=click.FloatRange(min=1),
    default=90,
    show_default=True,
    help="Seconds until the node may be gone.",
)
_JOBS = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=None,
    help="How many to save at once; by default two for each processor.",
)
_LEAVE = click.option(
    "--leave-running", is_flag=True, help="Save them and let them go on: a drill."
)


@click.command("finalize")
@_DEADLINE
@_JOBS
@_LEAVE
@click.option("--dry-run", is_flag=True, help="Say in which order, and do nothing.")
@click.pass_obj
def finalize(
    invocation: Invocation, deadline: float, jobs: int | None, leave_running: bool, dry_run: bool
) -> None:
    """Save and stop every container that opted in, before this node goes away.

    The most valuable first (`holdfast.value`), several at once. A container is stopped only when
    its checkpoint has been kept and read again; one that could not be saved goes on running. The
    exit code is 0 when nothing is lost if the node goes away now, and 9 otherwise.
    """
    from holdfast.oci.finalizing import Finalizer

    if dry_run:
        plan = [each.subject for each in Finalizer(invocation.environ).plan()]
        invocation.show({"order": plan}, lambda: "\n".join(plan))
        return
    _run(invocation, deadline, jobs, leave_running)


@click.command("watch")
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="It is time when this file is there; may be repeated.",
)
@click.option(
    "--command",
    "commands",
    multiple=True,
    help="It is time when this command succeeds and says something; may be repeated.",
)
@click.option(
    "--expect", default=r"\S", show_default=True, help="What the command's output must match."
)
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=5,
    show_default=True,
    help="Seconds between two looks.",
)
@_DEADLINE
@_JOBS
@click.pass_obj
def watch(
    invocation: Invocation,
    files: tuple[Path, ...],
    commands: tuple[str, ...],
    expect: str,
    every: float,
    deadline: float,
    jobs: int | None,
) -> None:
    """Wait until this node is about to go away, then finalize.

    It is time when SIGTERM comes, as it does when a machine shuts down, when a file appears, or
    when a command says so, such as one that asks the cloud for its reclaim notice. Ends with the
    exit code of `finalize`.
    """
    from holdfast.oci.finalizing import Finalizer
    from holdfast.oci.triggers import CommandTrigger, Trigger, file_trigger, wait_for

    Finalizer(invocation.environ)  # what is wrong with the node is said now, not then
    triggers: list[Trigger] = [
        *(file_trigger(path) for path in files),
        *(CommandTrigger.parse(line, expect) for line in commands),
    ]
    reason = wait_for(triggers, every)
    invocation.tell(f"it is time: {reason}")
    _run(invocation, deadline, jobs, trigger=reason)


def _run(
    invocation: Invocation,
    deadline: float,
    jobs: int | None,
    leave_running: bool = False,
    trigger: str | None = None,
) -> None:
    from holdfast.oci.finalizing import Finalizer

    workers = jobs or 2 * (os.cpu_count() or 1)
    report = Finalizer(invocation.environ).run(
        deadline,
        jobs=workers,
        leave_running=leave_running,
        done=lambda result: invocation.tell(_line(result)),
    )
    invocation.show({**_document(report), "trigger": trigger}, lambda: _summary(report))
    if not report.complete:
        click.get_current_context().exit(_PARTIAL)


def _line(result: Result) -> str:
    from holdfast.view.words import size

    match result.outcome:
        case "saved":
            cost = ""
            if result.frozen_ms is not None:
                written = size(result.written_bytes or 0)
                cost = f": {written} written, frozen {result.frozen_ms:.0f} ms"
            seconds = f"in {result.seconds:.1f} s"
            return f"{result.subject}: saved as {result.checkpoint} {seconds}{cost}"
        case "ended":
            return f"{result.subject}: has ended by itself"
        case "running":
            return f"{result.subject}: NOT saved, still running: {result.reason}"


def _summary(report: Report) -> str:
    saved = sum(each.outcome == "saved" for each in report.results)
    running = sum(each.outcome == "running" for each in report.results)
    tail = f", {running} not saved and still running" if running else ""
    return f"{saved} saved{tail}, in {report.seconds:.1f} s"


def _document(report: Report) -> dict[str, object]:
    return {
        "complete": report.complete,
        "seconds": round(report.seconds, 3),
        "containers": [
            {
                "subject": each.subject,
                "outcome": each.outcome,
                "id": each.checkpoint,
                "reason": each.reason,
                "frozen_ms": each.frozen_ms,
                "written_bytes": each.written_bytes,
                "seconds": each.seconds,
            }
            for each in report.results
        ],
    }
