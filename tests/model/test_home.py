"""Where Holdfast keeps its things."""

from __future__ import annotations

from pathlib import Path

from holdfast.model.home import default_store_url, home


def test_the_home_is_where_the_environment_says() -> None:
    assert home({"HOLDFAST_HOME": "/srv/holdfast"}) == Path("/srv/holdfast")
    assert home({}) == Path.home() / ".holdfast"
    assert home({"HOLDFAST_HOME": ""}) == Path.home() / ".holdfast"
    assert home({"HOLDFAST_HOME": "~/elsewhere"}) == Path.home() / "elsewhere"


def test_the_store_is_in_the_home_unless_said_otherwise() -> None:
    assert default_store_url({"HOLDFAST_HOME": "/srv"}) == "/srv/store"
    assert (
        default_store_url({"HOLDFAST_STORE": "memory://", "HOLDFAST_HOME": "/srv"}) == "memory://"
    )
    assert default_store_url({}) == str(Path.home() / ".holdfast" / "store")
