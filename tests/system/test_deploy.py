"""What is given to those who run a server: the unit and the image say what the program does."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import click
from tests.units import verify

from holdfast.cli.main import cli

HOLDFAST = Path(sys.executable).with_name("holdfast")


def options_of(words: list[str]) -> list[str]:
    """The options in a command line of `serve`, which are checked to exist."""
    assert words[0] == "serve"
    serve = cli.get_command(click.Context(cli), "serve")
    assert serve is not None
    known = {name for param in serve.params for name in param.opts}
    used = [word for word in words if word.startswith("--")]
    assert set(used) <= known
    return used


def test_the_unit_is_one_that_systemd_understands(repository: Path, tmp_path: Path) -> None:
    unit = repository / "deploy/holdfast.service"
    text = unit.read_text().replace("/srv/holdfast/bin/holdfast", str(HOLDFAST))
    (tmp_path / "holdfast.service").write_text(text)
    verify(tmp_path / "holdfast.service")


def test_the_unit_s_command_serves_and_ends_in_order(repository: Path, tmp_path: Path) -> None:
    unit = (repository / "deploy/holdfast.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    words = shlex.split(line)[1:]
    options_of(words)
    environ = {
        **os.environ,
        "HOLDFAST_HOME": str(tmp_path / "home"),
        "HOLDFAST_TOKEN": "of-the-environment-file",
    }
    server = subprocess.Popen(
        [str(HOLDFAST), *words, "--port", "0", "--engine", "process"],
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    )
    try:
        assert server.stdout is not None
        said = [server.stdout.readline() for _ in range(3)]
        assert "http://127.0.0.1:" in said[0]
        assert said[2].split()[-1] == "of-the-environment-file"
    finally:
        server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=60) == 0


def test_the_image_installs_and_starts_what_there_is(repository: Path) -> None:
    text = (repository / "deploy/Dockerfile").read_text()
    (extras,) = re.findall(r"\.whl\)\[([a-z0-9,]+)\]", text)
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    (command,) = re.findall(r"^CMD \[(.*)\]$", text, re.MULTILINE)
    options_of([word.strip().strip('"') for word in command.split(",")])
    for source in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE):
        for name in source.split():
            assert (repository / name).exists()
