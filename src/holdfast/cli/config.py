"""`holdfast config`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation


@click.command("config")
@click.pass_obj
def command(invocation: Invocation) -> None:
    """Show the settings in force and where each comes from.

    They are read from config.toml, then from HOLDFAST_* variables, then from options; the later
    one wins.
    """
    from holdfast.cli.settings import config_path
    from holdfast.view.table import Column, table

    path = config_path(invocation.environ)
    values = invocation.settings().values()
    invocation.show(
        {
            "file": str(path),
            "file_exists": path.exists(),
            "settings": [
                {"name": each.setting.name, "value": each.shown, "source": each.source}
                for each in values
            ],
        },
        lambda: table(
            (Column("SETTING", "bold"), Column("VALUE", cut=2), Column("FROM", "dim", cut=1)),
            ((each.setting.name, each.told, each.source) for each in values),
        ),
    )
    if not path.exists():
        invocation.tell(f"there is no {path}")
