"""`holdfast key`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.secret import from_files, secret_options, wanted

if TYPE_CHECKING:
    from holdfast.store.backends.contract import Backend
    from holdfast.store.slots import Secret


@click.group("key")
def command() -> None:
    """Manage the key that signs checkpoints, and the secrets that open an encrypted store.

    The signing key lives outside the store (show, export, import). Who has it can sign as you do:
    treat it as a password. An encrypted store has a slot for each passphrase or key file that opens
    it (slots, add, rotate, remove).
    """


@command.command("show")
@click.pass_obj
def show(invocation: Invocation) -> None:
    """Show the ids of the signing key and of the imported keys, never a secret."""
    from holdfast.model.home import home
    from holdfast.store.keys import load_keyring
    from holdfast.view.table import Column, table

    signing = load_keyring(invocation.environ, make=False).signing
    mine = signing.id.hex() if signing else None
    folder = home(invocation.environ) / "keys"
    imported = sorted(path.stem for path in folder.glob("*.key"))
    invocation.show(
        {"signing": mine, "imported": imported},
        lambda: (
            table(
                (Column("KEY", "yellow"), Column("USE")),
                [
                    *([(mine, "signs checkpoints")] if mine else []),
                    *((each, "imported: its checkpoints are trusted") for each in imported),
                ],
            )
            if mine or imported
            else ""
        ),
    )
    if mine is None:
        invocation.tell(
            "there is no signing key yet: the first use of a store makes one, or"
            " `holdfast key export`"
        )


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.pass_obj
def export(invocation: Invocation, file: Path) -> None:
    """Write the signing key to FILE, readable by you alone; `-` is stdout."""
    import os

    from holdfast.model.errors import Conflict, NotFound, from_path_error
    from holdfast.model.files import create
    from holdfast.store.keys import load_keyring

    key = load_keyring(invocation.environ).signing
    if key is None:
        raise NotFound("there is no signing key")
    if str(file) == "-":
        sys.stdout.write(key.to_text() + "\n")
        return
    try:
        fd = create(file)
    except FileExistsError:
        raise Conflict(f"{file} exists already", hint="name another file") from None
    except OSError as error:
        raise from_path_error(error, "exporting the key") from error
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
    from holdfast.model.errors import BadInput, from_path_error
    from holdfast.store.keys import Key, import_key

    try:
        text = sys.stdin.read(4096) if str(file) == "-" else file.read_text("ascii")
    except UnicodeDecodeError:
        raise BadInput(f"not a key file: {file}", hint="`holdfast key export` writes one") from None
    except OSError as error:
        raise from_path_error(error, "importing a key") from error
    key = Key.from_text(text)
    path = import_key(key, invocation.environ)
    invocation.show(
        {"id": key.id.hex(), "file": str(path)},
        lambda: f"key {key.id.hex()} is trusted from now on",
    )


@command.command("slots")
@click.pass_obj
def list_slots(invocation: Invocation) -> None:
    """List what opens an encrypted store: its key slots, never a secret."""
    from holdfast.store.slots import listed
    from holdfast.view.table import Column, table

    with _encrypted(invocation) as backend:
        slots = listed(backend)
    columns = (Column("SLOT", "yellow"), Column("OPENED BY"), Column("SINCE", "dim"))
    words = {"passphrase": "a passphrase", "file": "a key file"}
    invocation.show(
        {"slots": [{"slot": s.name, "opened_by": s.kind, "created": s.created} for s in slots]},
        lambda: table(columns, [(s.name, words[s.kind], s.created) for s in slots]),
    )


@command.command("add")
@secret_options()
@secret_options("new")
@click.pass_obj
def add_slot(
    invocation: Invocation,
    passphrase_file: Path | None,
    key_file: Path | None,
    new_passphrase_file: Path | None,
    new_key_file: Path | None,
) -> None:
    """Let one more passphrase or key file open an encrypted store."""
    from holdfast.store import slots

    with _encrypted(invocation) as backend:
        current = _current(invocation, passphrase_file, key_file)
        data_key, _ = slots.unlock(backend, current)
        new = wanted(from_files(new_passphrase_file, new_key_file, new=True), new=True)
        name = slots.add(backend, data_key, new)
    invocation.show({"slot": name}, lambda: f"slot {name} opens the store, too")


@command.command("rotate")
@secret_options()
@secret_options("new")
@click.pass_obj
def rotate_slot(
    invocation: Invocation,
    passphrase_file: Path | None,
    key_file: Path | None,
    new_passphrase_file: Path | None,
    new_key_file: Path | None,
) -> None:
    """Change the passphrase or the key file that opens an encrypted store.

    Only its slot is written anew, so it takes no time whatever the store holds. Who has a copy of
    the old slot and knows the old secret can still open the store; to be safe from them, copy it
    into a new encrypted store.
    """
    from holdfast.store import slots

    with _encrypted(invocation) as backend:
        current = _current(invocation, passphrase_file, key_file)
        data_key, old = slots.unlock(backend, current)
        new = wanted(from_files(new_passphrase_file, new_key_file, new=True), new=True)
        name = slots.add(backend, data_key, new)
        slots.remove(backend, old)
    invocation.show(
        {"slot": name, "removed": old}, lambda: f"slot {name} opens the store, slot {old} is gone"
    )


@command.command("remove")
@click.argument("slot")
@click.pass_obj
def remove_slot(invocation: Invocation, slot: str) -> None:
    """Take a slot away: its passphrase or key file opens the store no more.

    SLOT is a name that `holdfast key slots` shows, or how it begins. The last slot stays.
    """
    from holdfast.store import slots

    with _encrypted(invocation) as backend:
        name = slots.remove(backend, slot)
    invocation.show({"removed": name}, lambda: f"slot {name} is gone")


@contextmanager
def _encrypted(invocation: Invocation) -> Iterator[Backend]:
    """The place of the store that this run works on; raises BadInput when it is not encrypted."""
    from holdfast.model.errors import BadInput
    from holdfast.store.slots import is_encrypted

    with invocation.backend() as backend:
        if not is_encrypted(backend):
            raise BadInput(
                f"the store at {backend.url} is not encrypted",
                hint="`holdfast init --encrypt` makes one, and `holdfast copy` fills it",
            )
        yield backend


def _current(
    invocation: Invocation, passphrase_file: Path | None, key_file: Path | None
) -> list[Secret]:
    """What opens the store now: as the options say, or the environment, or a person."""
    from holdfast.store.opening import secrets_of

    named = from_files(passphrase_file, key_file, new=False)
    if named is not None:
        return [named]
    return secrets_of(invocation.environ) or [wanted(None, new=False)]
