"""Settings: who wins, and what is told about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.settings import config_path, merge, read
from holdfast.model.errors import BadInput


def test_defaults() -> None:
    settings = merge({}, {"HOLDFAST_HOME": "/h"}, {})
    assert settings["store"].value == "/h/store"
    assert settings["store"].source == "default"
    assert settings["port"].value == 8787
    assert settings["key_file"].value == "/h/key"
    assert settings["home"].source == "HOLDFAST_HOME"


def test_the_later_one_wins() -> None:
    file = {"store": "/file", "port": 1, "host": "0.0.0.0"}
    environ = {"HOLDFAST_STORE": "/environ", "HOLDFAST_PORT": "2"}
    settings = merge(file, environ, {"store": "/option", "port": None}, "/c/config.toml")
    assert (settings["store"].value, settings["store"].source) == ("/option", "--store")
    assert (settings["port"].value, settings["port"].source) == (2, "HOLDFAST_PORT")
    assert (settings["host"].value, settings["host"].source) == ("0.0.0.0", "/c/config.toml")


def test_an_empty_variable_is_none() -> None:
    assert merge({}, {"HOLDFAST_TOKEN": ""}, {})["token"].value is None


def test_an_unknown_key_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(BadInput, match=r"unknown setting 'stroe' in /c/config\.toml") as told:
        merge({"stroe": "x"}, {}, {}, "/c/config.toml")
    assert told.value.hint == "did you mean 'store'?"


def test_a_secret_has_no_place_in_the_file() -> None:
    with pytest.raises(BadInput, match="unknown setting 'token'"):
        merge({"token": "x"}, {}, {})


@pytest.mark.parametrize(
    ("file", "environ", "message"),
    [
        ({"port": "lots"}, {}, "config.toml: bad value 'lots' for 'port'"),
        ({"port": True}, {}, "config.toml: bad value True for 'port'"),
        ({"port": 65536}, {}, "config.toml: bad value 65536 for 'port'"),
        ({}, {"HOLDFAST_PORT": "-1"}, "HOLDFAST_PORT: bad value '-1' for 'port'"),
        ({}, {"HOLDFAST_ENGINE": "vm"}, "HOLDFAST_ENGINE: bad value 'vm' for 'engine'"),
        ({"store": {"url": 1}}, {}, "bad value"),
        ({"store": ""}, {}, "bad value ''"),
    ],
)
def test_a_bad_value_is_told(
    file: dict[str, object], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(BadInput) as told:
        merge(file, environ, {})
    assert message in str(told.value)
    assert told.value.hint


def test_secrets_are_not_shown() -> None:
    token = merge({}, {"HOLDFAST_TOKEN": "hush"}, {})["token"]
    assert token.value == "hush"
    assert token.shown == "(hidden)"


def test_the_file_is_found_and_read(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert read(environ, {})["port"].value == 8787
    path = config_path(environ)
    path.parent.mkdir()
    path.write_text('port = 9000\nengine = "process"\n')
    assert read(environ, {})["port"].value == 9000
    assert read(environ, {})["engine"].source == str(path)


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe"])
def test_a_broken_file_is_told(tmp_path: Path, content: bytes) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    path = config_path(environ)
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"config\.toml") as told:
        read(environ, {})
    assert told.value.hint


def test_a_directory_in_its_place_is_told(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    config_path(environ).mkdir(parents=True)
    with pytest.raises(BadInput, match=r"config\.toml is a directory"):
        read(environ, {})


def test_a_relative_base_directory_is_ignored() -> None:
    assert config_path({"XDG_CONFIG_HOME": "here"}) == config_path({})
