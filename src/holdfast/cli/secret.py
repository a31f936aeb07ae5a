"""Secrets of encrypted stores on the command line: from an option, the environment, or a person."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from holdfast.store.slots import Secret

F = TypeVar("F", bound=Callable[..., object])

_TRIES = 3


def secret_options(what: str = "") -> Callable[[F], F]:
    """`--passphrase-file` and `--key-file`; with `what`, such as `new`,
    `--new-passphrase-file` and so on."""

    def add(function: F) -> F:
        prefix = f"{what}-" if what else ""
        which = {"new": "a new", "from": "SRC's", "to": "DST's"}.get(what, "the")
        made = " It is made if it is missing." if what in ("", "new") else ""
        for name, text in (
            ("key-file", f"A file with {which} key.{made}"),
            ("passphrase-file", f"A file whose first line is {which} passphrase."),
        ):
            function = click.option(
                f"--{prefix}{name}", type=click.Path(dir_okay=False, path_type=Path), help=text
            )(function)
        return function

    return add


def ask(new: bool) -> Secret | None:
    """Ask a person for a passphrase; None when nobody is there. stdin and stdout may be pipes."""
    if not _someone_is_there():
        return None
    from getpass import getpass

    from holdfast.model.errors import BadInput
    from holdfast.store.slots import Secret

    text = getpass("New passphrase: " if new else "Passphrase: ")
    for _ in range(_TRIES if new else 0):
        if text and getpass("The same again: ") == text:
            return Secret.passphrase(text)
        print("empty, or not the same; once more", file=sys.stderr)
        text = getpass("New passphrase: ")
    if new:
        raise BadInput("no passphrase was typed twice")
    return Secret.passphrase(text)


def from_files(passphrase_file: Path | None, key_file: Path | None, *, new: bool) -> Secret | None:
    """The secret that an option names; a key file that is missing is made where one is wanted."""
    from holdfast.model.errors import UsageError
    from holdfast.store.slots import Secret, new_key_file

    if passphrase_file is not None and key_file is not None:
        raise UsageError(
            "a passphrase and a key file", hint="one now; `holdfast key add` adds the other"
        )
    if passphrase_file is not None:
        return Secret.passphrase_file(passphrase_file)
    if key_file is not None:
        if new and not key_file.exists():
            return new_key_file(key_file)
        return Secret.key_file(key_file)
    return None


def wanted(secret: Secret | None, *, new: bool) -> Secret:
    """The secret that was named, or a person's; raises UsageError when there is none."""
    from holdfast.model.errors import UsageError

    found = secret or ask(new)
    if found is None:
        which = "a new passphrase or key file" if new else "a passphrase or a key file"
        option = "--new-passphrase-file or --new-key-file" if new else "HOLDFAST_PASSPHRASE"
        raise UsageError(f"{which} is needed", hint=f"give {option}, or run it in a terminal")
    return found


def _someone_is_there() -> bool:
    if not sys.stderr.isatty():
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
