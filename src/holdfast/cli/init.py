"""`holdfast init`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.secret import from_files, secret_options


@click.command("init")
@click.argument("url", required=False)
@click.option("--encrypt", is_flag=True, help="Encrypt everything that the store will hold.")
@click.option("--shared", is_flag=True, help="Let the folder's group use the store, too.")
@secret_options()
@click.pass_obj
def command(
    invocation: Invocation,
    url: str | None,
    encrypt: bool,
    shared: bool,
    passphrase_file: Path | None,
    key_file: Path | None,
) -> None:
    """Make a store, where there is none yet.

    URL is a path or file:///path; without it, the store that the settings name is made. The first
    checkpoint makes its store by itself, so this is only needed to have an empty one, or an
    encrypted one: that is opened by a passphrase, which is asked for, or by a key file. Who loses
    both loses what is in the store.

    A store in a directory can be opened by you alone, whatever the umask. With --shared all members
    of the directory's group can use it: of your own group, unless the directory is there already,
    is empty and belongs to another one.
    """
    from holdfast.model.errors import BadInput, NotFound, UsageError

    place = url or str(invocation.settings()["store"].value)
    if place.startswith("memory:"):
        raise BadInput("a store in memory is gone when the command ends", hint="name a directory")
    if not encrypt and (passphrase_file or key_file):
        raise UsageError("a passphrase or a key file is for --encrypt", hint="add --encrypt")
    secret = from_files(passphrase_file, key_file, new=True)
    open_it = partial(invocation.open, place, secret=secret, encrypt=encrypt, shared=shared)
    made = False
    try:
        store = open_it(create=False)
    except NotFound:
        store = open_it(create=True)
        made = True
    with store:
        where, encrypted = store.url, store.encrypted
    kind = "an encrypted store" if encrypted else "a store"
    invocation.show(
        {"store": where, "made": made, "encrypted": encrypted},
        lambda: f"made {kind} at {where}" if made else f"there is {kind} at {where} already",
    )
