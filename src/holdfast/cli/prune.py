"""`holdfast prune`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.quantities import Duration, Number, Size, brief, parse_count
from holdfast.cli.reference import complete_subject, find_subject

if TYPE_CHECKING:
    from holdfast.model.subject import Subject
    from holdfast.store import Store
    from holdfast.store.collect import PruneReport
    from holdfast.store.retention import Policy

_COUNT = Number(1)


@click.command("prune")
@click.option("--keep-last", type=_COUNT, metavar="N", help="Keep the newest N.")
@click.option("--keep-within", type=Duration(), help="Keep those not older than this, e.g. 7d.")
@click.option("--keep-every", type=Duration(), help="Keep one in each stretch of this length.")
@click.option("--keep-hourly", type=_COUNT, metavar="N", help="Keep the last of each of N hours.")
@click.option("--keep-daily", type=_COUNT, metavar="N", help="Keep the last of each of N days.")
@click.option("--keep-weekly", type=_COUNT, metavar="N", help="Keep the last of each of N weeks.")
@click.option("--keep-best", type=_COUNT, metavar="N", help="Keep the N best by the tag of --by.")
@click.option("--by", metavar="TAG", help="For --keep-best: the tag that holds the number.")
@click.option("--lowest", is_flag=True, help="For --keep-best: low numbers are better.")
@click.option("--keep-tagged", is_flag=True, help="Keep everything that has a tag.")
@click.option(
    "--keep-reason",
    multiple=True,
    metavar="REASON=N",
    help="Keep the newest N with this reason; may be repeated.",
)
@click.option(
    "--max-bytes", type=Size(), help="Keep no more than fits in this when stored, e.g. 10GB."
)
@click.option(
    "--subject", shell_complete=complete_subject, metavar="SUBJECT", help="Only this subject."
)
@click.option("--dry-run", is_flag=True, help="Show the plan and do nothing.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Go on although the log is damaged, and give up what it can no longer say.",
)
@click.pass_obj
def command(
    invocation: Invocation,
    keep_last: int | None,
    keep_within: timedelta | None,
    keep_every: timedelta | None,
    keep_hourly: int | None,
    keep_daily: int | None,
    keep_weekly: int | None,
    keep_best: int | None,
    by: str | None,
    lowest: bool,
    keep_tagged: bool,
    keep_reason: tuple[str, ...],
    max_bytes: int | None,
    subject: str | None,
    dry_run: bool,
    accept_loss: bool,
) -> None:
    """Remove the checkpoints that no policy keeps, and free their bytes.

    A checkpoint stays when any of the --keep policies wants it, within --max-bytes when that is
    given. The newest of each subject, its head and what is pinned always stay. Without a policy,
    the last 50 of each subject and everything tagged stay.

    Of a subject that something is running now nothing is removed.

    While the log is damaged nothing is removed: what cannot be read may have been a pin, or have
    named bytes that now seem to belong to nobody.
    """
    from holdfast.cli.progress import bar
    from holdfast.server import shapes
    from holdfast.store import retention

    best = _best(keep_best, by, lowest)
    policies: list[Policy | None] = [
        retention.Last(keep_last) if keep_last else None,
        retention.Within(keep_within) if keep_within else None,
        retention.Every(keep_every.total_seconds()) if keep_every else None,
        retention.Hourly(keep_hourly) if keep_hourly else None,
        retention.Daily(keep_daily) if keep_daily else None,
        retention.Weekly(keep_weekly) if keep_weekly else None,
        best,
        retention.Tagged() if keep_tagged else None,
        *(_reason(each) for each in keep_reason),
    ]
    keep = _combined(
        [each for each in policies if each],
        retention.MaxBytes(max_bytes) if max_bytes is not None else None,
    )
    with invocation.store() as store:
        only = find_subject(store, subject) if subject else None
        if by is not None:
            _check_scores(store, only, by)
        with bar("moving what stays", quiet=invocation.json or dry_run) as progress:
            report = store.prune(
                keep=keep,
                subject=only,
                dry_run=dry_run,
                accept_loss=accept_loss,
                progress=progress,
            )
    invocation.show(shapes.pruning(report), lambda: _page(report, stored=max_bytes is not None))


def _check_scores(store: Store, subject: Subject | None, tag: str) -> None:
    """Raise NotFound when no checkpoint can be the best: a policy that keeps nothing would
    remove everything."""
    from holdfast.model.errors import NotFound
    from holdfast.view.words import printable

    checkpoints = store.list(subject)
    scores = {name for each in checkpoints for name, text in each.tags.items() if _is_number(text)}
    if checkpoints and tag not in scores:
        known = f"tags with numbers: {', '.join(sorted(scores))}" if scores else None
        raise NotFound(
            f"no checkpoint has a number in the tag {tag!r}",
            hint=printable(known or "`holdfast tag ID NAME=NUMBER` sets one"),
        )


def _is_number(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return number == number


def _best(count: int | None, tag: str | None, lowest: bool) -> Policy | None:
    from holdfast.store.retention import Best

    if count is None:
        if tag is not None or lowest:
            raise click.UsageError("--by and --lowest belong to --keep-best")
        return None
    if tag is None:
        raise click.UsageError("--keep-best needs --by TAG")
    return Best(count, tag, lowest)


def _reason(text: str) -> Policy:
    from holdfast.store.retention import ForReason

    # The last `=`: a reason may have one in it, a number has not.
    reason, _, number = text.rpartition("=")
    try:
        if reason:
            return ForReason(reason, parse_count(number, 1))
    except ValueError:
        pass
    raise click.BadParameter(f"{brief(text)} is not REASON=N", param_hint="--keep-reason")


def _combined(policies: list[Policy], budget: Policy | None) -> Policy | None:
    """All that any policy wants, as far as the budget goes; None means the default."""
    if not policies:
        return budget
    either = policies[0]
    for policy in policies[1:]:
        either = either | policy
    return either & budget if budget else either


def _page(report: PruneReport, stored: bool) -> str:
    """The plan or the deed; with `stored`, the bytes that each checkpoint added to the store,
    which is what --max-bytes counts."""
    from holdfast.model.moment import now
    from holdfast.view.table import Column, table
    from holdfast.view.words import age, count, size

    time = now()
    rows = [("remove", each, "no policy wants it") for each in report.removed]
    if report.dry_run:
        rows += [("keep", each, why) for each, why in report.kept]
    plan = table(
        (
            Column("PLAN" if report.dry_run else "DONE", "cyan"),
            Column("ID", "yellow"),
            Column("SUBJECT", "bold", cut=2),
            Column("REASON", cut=1),
            Column("WHEN", "dim"),
            Column("STORED" if stored else "SIZE", justify="right"),
            Column("WHY", "dim", cut=1),
        ),
        (
            (
                verb,
                each.short,
                str(each.subject),
                each.reason,
                age(each.time, time),
                size(each.stored_bytes if stored else each.size_bytes),
                why,
            )
            for verb, each, why in rows
        ),
    )
    would = "would be " if report.dry_run else ""
    pending = f", {size(report.pending_bytes)} later" if report.pending_bytes else ""
    if report.log_bytes:
        pending += f", {size(report.log_bytes)} when the log is folded"
    summary = (
        f"{count(len(report.removed), 'checkpoint')} {would}removed, {len(report.kept)} kept;"
        f" {size(report.reclaimed_bytes)} {would}reclaimed{pending}"
    )
    if report.problems:
        what = "needs --accept-loss" if report.dry_run else "what it said there was given up"
        summary += f"\nthe log is damaged ({report.problems[0]}): {what}"
    if report.owned:
        summary += (
            f"\n{count(len(report.owned), 'subject')} left alone, because something runs there"
            f" ({report.owned[0]}): its owner prunes it"
        )
    if report.damaged:
        summary += (
            f"\n{count(len(report.damaged), 'volume')} left in place, because not all in them can"
            f" be read ({report.damaged[0]}): `holdfast verify --deep` names the checkpoints"
        )
    return f"{plan}\n{summary}" if rows else summary
