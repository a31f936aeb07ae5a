"""`holdfast template`."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.remote import ask, server_option

PATH = "/v1/templates"


@click.group("template")
def command() -> None:
    """Keep sandboxes that new ones begin as, with code already run in them.

    A server runs the code in a sandbox of its own and keeps that under a name; a sandbox that is
    created with `template=NAME` has its files, its imports and what runs in it.
    """


@command.command("create")
@click.argument("name")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--code", help="The code itself, instead of FILE.")
@click.option(
    "--language",
    type=click.Choice(["python", "bash"]),
    default="python",
    show_default=True,
    help="What the code is; python runs in the session of the sandbox.",
)
@click.option("--image", metavar="NAME", help="A root that the server knows.")
@click.option("--from", "base", metavar="NAME", help="A template to begin with.")
@click.pass_obj
def create(
    invocation: Invocation,
    name: str,
    file: Path | None,
    code: str | None,
    language: str,
    image: str | None,
    base: str | None,
    server: str | None,
) -> None:
    """Run the code in FILE in a new sandbox, and keep that as the template NAME."""
    from holdfast.model.errors import BadInput, UsageError, from_path_error

    if (file is None) == (code is None):
        raise UsageError("give a file or --code", hint="e.g. --code 'import numpy'")
    if file is not None:
        try:
            code = file.read_text(encoding="utf-8")
        except OSError as error:
            raise from_path_error(error, "reading the code") from error
        except UnicodeDecodeError:
            raise BadInput(f"{file} is not UTF-8 text") from None
    asked = {"name": name, "code": code, "language": language, "image": image, "template": base}
    made = ask(invocation, "POST", PATH, asked, server=server)["template"]
    invocation.show(made, lambda: f"{made['checkpoint']['short']} template {made['name']}")


@command.command("list")
@click.pass_obj
def list_(invocation: Invocation, server: str | None) -> None:
    """List the templates that a server knows, and how many sandboxes of each stand ready."""
    from holdfast.view.table import Column, table

    found = ask(invocation, "GET", PATH, server=server)["templates"]
    invocation.show(
        {"templates": found},
        lambda: table(
            (Column("NAME"), Column("CHECKPOINT", "yellow"), Column("READY"), Column("TIME")),
            [
                (
                    each["name"],
                    each["checkpoint"]["short"],
                    str(each["ready"]),
                    each["checkpoint"]["time"],
                )
                for each in found
            ],
        ),
    )


@command.command("delete")
@click.argument("name")
@click.pass_obj
def delete(invocation: Invocation, name: str, server: str | None) -> None:
    """Forget the template NAME; sandboxes that were made of it stay as they are."""
    from urllib.parse import quote

    gone = ask(invocation, "DELETE", f"{PATH}/{quote(name, safe='')}", server=server)
    invocation.show(gone, lambda: f"deleted template {name}")


for _each in (create, list_, delete):
    server_option(_each)
