"""The runtime is registered by configuration, and taking it back leaves no trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.strangers import folder_of_nobody, run_as_nobody

from holdfast.cli.main import main
from holdfast.model.errors import BadInput, NotFound, Unsupported
from holdfast.oci.installation import (
    PROGRAM,
    SCRIPT,
    carry_out,
    plan_install,
    plan_uninstall,
    present,
)
from holdfast.oci.registration import ENGINES
from holdfast.oci.trampoline import Trampoline, bake, compile_quick

CONTAINERD = """\
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"   # kept, with its comment
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2\"
"""
SCRIPT_ONLY = Trampoline(bake(sys.executable, "/usr/sbin/runc"))
DOCKER = '{"log-level":"warn",\n  "runtimes": {"kata": {"path": "/usr/bin/kata"}}}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "etc/containerd").mkdir(parents=True)
    (root / "etc/docker").mkdir()
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/runc").write_text("the real one")
    (root / "etc/containerd/config.toml").write_text(CONTAINERD)
    (root / "etc/docker/daemon.json").write_text(DOCKER)
    return root


def everything(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode)
        for path in root.rglob("*")
        if path.is_file()
    } | {f"{path.relative_to(root)}/": (b"", 0) for path in root.rglob("*") if path.is_dir()}


def install(root: Path, *engines: str) -> None:
    chosen = [name for name in ENGINES if name in (engines or ENGINES)]
    carry_out(plan_install(root, chosen, SCRIPT_ONLY))


def test_install_and_uninstall(root: Path) -> None:
    before = everything(root)
    install(root)
    config = tomllib.loads((root / "etc/containerd/config.toml").read_text())
    runtimes = config["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
    assert runtimes["holdfast"]["options"]["BinaryName"] == "/usr/local/bin/holdfast-runc"
    assert runtimes["runc"]["runtime_type"] == "io.containerd.runc.v2"
    assert (root / "etc/containerd/config.toml").read_text().startswith(CONTAINERD)
    docker = json.loads((root / "etc/docker/daemon.json").read_text())
    assert docker["runtimes"].keys() == {"kata", "holdfast"}
    assert (root / "etc/containers/containers.conf.d/holdfast.conf").exists()
    assert os.access(root / "usr/local/bin/holdfast-runc", os.X_OK)
    assert everything(root)["usr/bin/runc"] == before["usr/bin/runc"]

    installed = everything(root)
    install(root)  # again
    assert everything(root) == installed
    carry_out(plan_uninstall(root))
    assert everything(root) == before
    with pytest.raises(NotFound):
        plan_uninstall(root)


def test_engines_one_after_the_other(root: Path) -> None:
    before = everything(root)
    install(root, "containerd")
    install(root, "docker")
    carry_out(plan_uninstall(root))
    assert everything(root) == before


@pytest.mark.parametrize("again", [False, True], ids=["once", "installed again"])
def test_what_somebody_edited_since_stays(again: bool, root: Path) -> None:
    install(root)
    config, daemon = root / "etc/containerd/config.toml", root / "etc/docker/daemon.json"
    config.write_text(config.read_text() + "[debug]\n  level = 'info'\n")
    daemon.write_text(daemon.read_text().replace("warn", "info"))
    policy = root / "etc/holdfast/policy.toml"
    policy.write_text('mode = "store"\n')
    if again:
        install(root)
        assert policy.read_text() == 'mode = "store"\n'
    plan = plan_uninstall(root)
    assert len(plan.notes) >= 3
    carry_out(plan)
    assert config.read_text() == CONTAINERD + "[debug]\n  level = 'info'\n"
    assert json.loads(daemon.read_text()) == {
        "log-level": "info",
        "runtimes": {"kata": {"path": "/usr/bin/kata"}},
    }
    assert policy.read_text() == 'mode = "store"\n'
    assert not (root / "usr/local/bin/holdfast-runc").exists()


def test_where_there_was_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        plan_install(tmp_path, [], SCRIPT_ONLY)
    install(tmp_path, "containerd")
    assert tomllib.loads((tmp_path / "etc/containerd/config.toml").read_text())["version"] == 2
    carry_out(plan_uninstall(tmp_path))
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", Unsupported),
        ("version = 1", Unsupported),
        ("version = 9", Unsupported),
        ("version = 2\nnot toml", BadInput),
        (
            "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\nruntimes = {a = {}}",
            BadInput,
        ),
    ],
)
def test_a_configuration_that_cannot_be_extended(
    root: Path, text: str, error: type[Exception]
) -> None:
    (root / "etc/containerd/config.toml").write_text(text)
    before = everything(root)
    with pytest.raises(error):
        install(root)
    assert everything(root) == before


def test_the_newer_form_of_containerds_configuration(root: Path) -> None:
    (root / "etc/containerd/config.toml").write_text("version = 3\n")
    install(root, "containerd")
    config = tomllib.loads((root / "etc/containerd/config.toml").read_text())
    runtimes = config["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert "holdfast" in runtimes


def test_the_cgroup_driver_is_that_of_plain_runc(root: Path) -> None:
    path = root / "etc/containerd/config.toml"
    table = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]'
    for systemd in (True, False):
        path.write_text(f"{CONTAINERD}{table}\n  SystemdCgroup = {str(systemd).lower()}\n")
        install(root, "containerd")
        config = tomllib.loads(path.read_text())
        runtimes = config["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
        assert ("SystemdCgroup" in runtimes["holdfast"]["options"]) is systemd


def test_containerd_itself_reads_it(root: Path) -> None:
    install(root, "containerd")
    dumped = subprocess.run(
        ["containerd", "-c", str(root / "etc/containerd/config.toml"), "config", "dump"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    runtimes = tomllib.loads(dumped)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]
    assert runtimes["default_runtime_name"] == "runc"
    assert runtimes["runtimes"].keys() == {"runc", "holdfast"}
    assert runtimes["runtimes"]["holdfast"]["options"]["BinaryName"].endswith("holdfast-runc")


def test_the_installed_trampoline_needs_no_environment(root: Path) -> None:
    runc = subprocess.run(["which", "runc"], capture_output=True, text=True, check=True).stdout
    before = everything(root)
    quick = compile_quick(runc.strip(), f"/{SCRIPT}", os.environ)
    assert quick is not None, "there is no C compiler"
    for made in (None, quick):
        trampoline = Trampoline(bake(sys.executable, runc.strip()), made)
        carry_out(plan_install(root, ["podman"], trampoline))
        assert (root / PROGRAM).read_bytes().startswith(b"#!" if made is None else b"\x7fELF")
        assert (root / SCRIPT).exists() is (made is not None)
        done = subprocess.run(
            [root / PROGRAM, "--version"], capture_output=True, text=True, env={}, check=True
        )
        assert done.stdout.startswith("runc version")
    carry_out(plan_uninstall(root))
    assert everything(root) == before
    with pytest.raises(BadInput):  # a path that a shell would read as something else
        bake(sys.executable, "/srv/a b/runc")


def test_without_a_compiler_there_is_only_the_script(tmp_path: Path) -> None:
    assert compile_quick("/usr/sbin/runc", "/x", {"PATH": str(tmp_path)}) is None
    (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    assert compile_quick("/usr/sbin/runc", "/x", {"PATH": str(tmp_path)}) is None
    foreign = '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; echo foreign > "$2"\n'
    (tmp_path / "cc").write_text(foreign)
    assert compile_quick("/usr/sbin/runc", "/x", {"PATH": f"{tmp_path}:/usr/bin:/bin"}) is None


def test_on_the_command_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(root)
    where = ["--root", str(root)]
    assert present(root) == ("containerd", "docker")
    assert main(["container", "install", *where, "--dry-run"]) == 0
    assert "would change" in capsys.readouterr().out
    assert everything(root) == before
    assert main(["container", "install", *where, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {each["change"] for each in told["changes"]} == {"write", "change"}
    assert "systemctl restart containerd" in told["notes"]
    assert main(["container", "uninstall", *where, "--dry-run"]) == 0
    assert everything(root) != before
    assert main(["container", "uninstall", *where]) == 0
    assert everything(root) == before
    assert main(["container", "uninstall", *where]) == 3


def test_on_this_machine_it_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["container", "install", "--engine", "podman", "--dry-run", "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert f"/{SCRIPT}" in [each["path"] for each in changes]


def test_not_for_everybody(root: Path) -> None:
    with folder_of_nobody("install") as folder:
        for command in (["list"], ["checkpoint", "tc"], ["install", "--root", str(root)]):
            done = run_as_nobody(folder, "-m", "holdfast", "container", *command)
            assert done.returncode == 8, done.stderr
            assert "root" in done.stderr
