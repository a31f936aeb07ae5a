"""How checkpoints and subjects are named on the command line, and completed by the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from holdfast.cli.invocation import Invocation

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.subject import Subject
    from holdfast.store import Store

trust_option = click.option(
    "--trust", is_flag=True, help="Accept a checkpoint that an unknown key has signed."
)


files_option = click.option(
    "--files", is_flag=True, help="Only look among states that are kept as files."
)


_ALL = "`holdfast subjects` shows all there are"


def find(store: Store, text: str) -> Checkpoint:
    """The checkpoint that is meant. Raises NotFound, with the subjects that are called alike."""
    from holdfast.model.errors import NotFound

    try:
        return store.resolve(text)
    except NotFound as error:
        alike = _alike(store, text.partition("~")[0])
        if not alike:
            raise
        raise NotFound(str(error), hint=alike) from None


def find_subject(store: Store, text: str, hint: str = "its subject is {subject}") -> Subject:
    """The subject that is meant. Raises NotFound, or BadInput for what is no subject at all;
    `hint` is what to say to somebody who named a checkpoint."""
    from holdfast.model.errors import BadInput, NotFound
    from holdfast.model.subject import Subject

    if "/" not in text:
        checkpoint = _checkpoint(store, text)
        if checkpoint is not None:
            raise BadInput(
                f"{text!r} is a checkpoint, and a subject is needed here",
                hint=hint.format(subject=checkpoint.subject, id=text),
            )
        alike = _alike(store, text)
        if alike:
            raise BadInput(f"not a subject: {text!r}", hint=alike)
    name, tilde, _ = text.partition("~")
    if tilde and "/" in name:
        raise BadInput(
            f"{text!r} means a checkpoint, and a subject is needed here",
            hint=hint.format(subject=name, id=text),
        )
    subject = Subject.parse(text)
    if not store.history(subject):
        raise NotFound(
            f"there is no subject {subject}",
            hint=_as_files(subject) or _alike(store, text) or _ALL,
        )
    return subject


def _as_files(subject: Subject) -> str | None:
    """What to say of a state that is there, but not in the store."""
    from holdfast.model.errors import HoldfastError
    from holdfast.model.home import home
    from holdfast.state import finding

    if subject.kind != "state":
        return None
    try:
        finding.find_session(subject.name, home())
    except HoldfastError:
        return None
    return "it is kept as files, which `list`, `show`, `diff`, `rollback` and `fork` know"


def _checkpoint(store: Store, text: str) -> Checkpoint | None:
    from holdfast.model.errors import BadInput, NotFound

    try:
        return store.resolve(text)
    except (BadInput, NotFound):
        return None


def _alike(store: Store, text: str) -> str | None:
    """`did you mean state/training?`, when there is something like it."""
    from difflib import get_close_matches

    from holdfast.view.words import printable

    subjects = [each.subject for each in store.subjects()]
    name = text.rpartition("/")[2]
    # Only the last word of the name is compared: the kinds are alike enough to mislead.
    close = get_close_matches(name, {each.name.rpartition("/")[2] for each in subjects}, n=3)
    found = [str(each) for each in subjects if each.name.rpartition("/")[2] in close][:3]
    if not found or text in found:
        return None
    return f"did you mean {printable(' or '.join(found))}?"


def complete_subject(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The subjects in the store."""
    return [item for item in _items(ctx) if "/" in item.value and item.value.startswith(incomplete)]


def complete_reference(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The subjects and the short ids in the store."""
    return [item for item in _items(ctx) if item.value.startswith(incomplete)]


def _items(ctx: click.Context) -> list[CompletionItem]:
    from holdfast.view.words import count, printable

    invocation = ctx.ensure_object(Invocation)
    try:
        place = str(invocation.settings()["store"].value)
        with invocation.open(place, create=False, asking=False) as store:
            subjects = [
                CompletionItem(str(each.subject), help=count(each.count, "checkpoint"))
                for each in store.subjects()
            ]
            checkpoints = [
                CompletionItem(each.short, help=f"{each.subject} {printable(each.reason)}")
                for each in store.list(limit=100)
            ]
    except Exception:  # noqa: BLE001  a person who presses TAB wants words or silence, no error
        return []
    return subjects + checkpoints
