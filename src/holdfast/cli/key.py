"""`holdfast key`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from holdfast.cli.invocation import Invocation


@click.group("key")
def command() -> None:
    """Show, export or import the key that signs checkpoints.

    The key lives outside the store. Who has it can sign as you do: treat it as a password.
    """


@command.command("show")
@click.pass_obj
def show(invocation: Invocation) -> None:
    """Show the ids of the signing key and of the imported keys, never a secret."""
    from holdfast.cli.table import Column, table
    from holdfast.model.home import home
    from holdfast.store.keys import load_keyring

    signing = load_keyring(invocation.environ).signing
    mine = signing.id.hex() if signing else None
    folder = home(invocation.environ) / "keys"
    imported = sorted(path.stem for path in folder.glob("*.key"))
    invocation.show(
        {"signing": mine, "imported": imported},
        lambda: table(
            (Column("KEY", "yellow"), Column("USE")),
            [
                *([(mine, "signs checkpoints")] if mine else []),
                *((each, "imported: its checkpoints are trusted") for each in imported),
            ],
        ),
    )


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.pass_obj
def export(invocation: Invocation, file: Path) -> None:
    """Write the signing key to FILE, readable by you alone; `-` is stdout."""
    import os

    from holdfast.model.errors import Conflict, NotFound, from_os_error
    from holdfast.store.keys import load_keyring

    key = load_keyring(invocation.environ).signing
    if key is None:
        raise NotFound("there is no signing key")
    if str(file) == "-":
        sys.stdout.write(key.to_text() + "\n")
        return
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(f"{file} exists already", hint="name another file") from None
    except OSError as error:
        raise from_os_error(error, "exporting the key") from error
    with os.fdopen(fd, "w") as out:
        out.write(key.to_text() + "\n")
    invocation.show(
        {"id": key.id.hex(), "file": str(file)}, lambda: f"key {key.id.hex()} is in {file}"
    )


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.pass_obj
def import_(invocation: Invocation, file: Path) -> None:
    """Trust what the key in FILE has signed from now on; `-` is stdin."""
    from holdfast.model.errors import BadInput, from_os_error
    from holdfast.store.keys import Key, import_key

    try:
        text = sys.stdin.read(4096) if str(file) == "-" else file.read_text("ascii")
    except UnicodeDecodeError:
        raise BadInput(f"not a key file: {file}") from None
    except OSError as error:
        raise from_os_error(error, "importing a key") from error
    key = Key.from_text(text)
    path = import_key(key, invocation.environ)
    invocation.show(
        {"id": key.id.hex(), "file": str(path)},
        lambda: f"key {key.id.hex()} is trusted from now on",
    )
