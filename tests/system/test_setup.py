"""The set-up itself: quick when done, honest when something is missing, usable without root."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

NOBODY = 65534
USE_STATE = """
from holdfast import StateManager
state = StateManager(session_id="s")
state.set_state("step", 1)
before = state.checkpoint("a")
state.set_state("step", 2)
state.rollback(before.id)
assert state.get_state("step") == 1
"""
LOCKS = ("run.txt", "test.txt", "bench.txt", "kishu.txt", "torch.txt")


def project_files(repository: Path) -> list[Path]:
    """What is committed, or would be with the next commit."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        check=True,
    )
    names = listing.stdout.decode().split("\0")
    return [repository / name for name in names if name and (repository / name).is_file()]


@pytest.fixture
def checkout(repository: Path) -> Iterator[Path]:
    """A copy of the project in a place that any user can reach, without .venv and .cache."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-checkout-"))
    folder.chmod(0o755)
    place = folder / "holdfast"
    for file in project_files(repository):
        target = place / file.relative_to(repository)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    yield place
    shutil.rmtree(folder)


def run(
    *words: str | Path, cwd: Path, seconds: float = 100, **changes: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


# ---- what is written down ------------------------------------------------------------------


def test_no_file_names_a_registry_or_a_path_of_one_machine(repository: Path) -> None:
    # Written in pieces, or this file would be the first to fail.
    hosts = [
        *("pypi" + ".org", "python" + "hosted.org", "registry.npm" + "js", "npm" + "js.org"),
        *("yarn" + "pkg.com", "deb.debian" + ".org", "static.crates" + ".io"),
    ]
    places = r"(?<![\w.~$)}>-])/(?:wo" + r"rk|op" + r"t|root/\.py" + r"env)(?![\w-])"
    unwanted = re.compile("|".join([*map(re.escape, hosts), places]))
    found = []
    for file in project_files(repository):
        content = file.read_bytes()
        if b"\0" in content:
            continue  # binary
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            if unwanted.search(line):
                found.append(f"{file.relative_to(repository)}:{number}: {line.strip()[:120]}")
    assert found == []


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_hashes_and_no_addresses(repository: Path, name: str) -> None:
    text = (repository / "requirements" / name).read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9][a-z0-9._-]*==\S+", entry), entry.splitlines()[0]
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def locked(repository: Path, name: str) -> dict[str, set[str]]:
    lines = (repository / "requirements" / name).read_text().splitlines()
    versions: dict[str, set[str]] = {}
    for line in lines:
        if found := re.match(r"([a-z0-9._-]+)==(\S+)", line):
            versions.setdefault(found.group(1), set()).add(found.group(2))
    return versions


def test_the_locks_agree_with_each_other_and_with_the_project(repository: Path) -> None:
    run_lock, test_lock = locked(repository, "run.txt"), locked(repository, "test.txt")
    assert all(test_lock[name] == versions for name, versions in run_lock.items())
    document = tomllib.loads((repository / "pyproject.toml").read_text())
    project = document["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted.extend(extra)
    groups = document["dependency-groups"]
    for lock, texts in (
        (test_lock, [*wanted, *groups["build"], *groups["dev"]]),
        (locked(repository, "kinds.txt"), groups["kinds"]),
    ):
        for text in texts:
            requirement = Requirement(text)
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            if name == project["name"]:  # an extra that takes in another
                continue
            assert name in lock, f"{name} is not locked: make lock"
            assert all(requirement.specifier.contains(version) for version in lock[name])
    assert set(groups) == {"build", "dev", "kinds"}
    for text in project["dependencies"]:
        assert re.sub(r"[-_.]+", "-", Requirement(text).name).lower() in run_lock


def test_npm_writes_no_addresses_into_its_lock(repository: Path) -> None:
    assert "omit-lockfile-registry-resolved=true" in (repository / ".npmrc").read_text()


def test_help_lists_every_target(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text()
    declared = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert declared is not None
    told = run("make", cwd=repository)
    assert told.returncode == 0
    described = dict(re.findall(r"^  ([a-z-]+) +(\S.+)$", told.stdout, re.MULTILINE))
    assert set(declared.group(1).split()) == set(described)
    assert {"setup", "run", "test", "soak", "bench", "lint", "format", "lock", "clean"} <= set(
        described
    )


def test_ci_runs_make_test_and_nothing_else(repository: Path) -> None:
    script = repository / ".ci/run"
    assert os.access(script, os.X_OK)
    lines = [line for line in script.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if line][-1] == "exec make test"
    assert len([line for line in lines if line]) == 3  # strict mode, the folder, the call


# ---- what it does --------------------------------------------------------------------------


@pytest.mark.alone
def test_a_second_set_up_does_nothing_and_is_quick(repository: Path) -> None:
    first = run("make", "setup-test", cwd=repository)
    assert first.returncode == 0, first.stderr
    started = time.monotonic()
    again = run("make", "setup-test", cwd=repository)
    elapsed = time.monotonic() - started
    assert again.returncode == 0, again.stderr
    assert (again.stdout, again.stderr) == ("", "")
    assert elapsed < 2


def test_what_runs_side_by_side_fails_when_one_of_it_does(repository: Path) -> None:
    done = run("scripts/side-by-side", "echo one; false; echo no", "echo two", cwd=repository)
    assert (done.returncode, sorted(done.stdout.split())) == (1, ["one", "two"])
    assert run("scripts/side-by-side", "true", "true", cwd=repository).returncode == 0


def test_no_suitable_python_is_told_in_words(checkout: Path) -> None:
    result = run("scripts/setup-python", cwd=checkout, PYTHON="/nonexistent/python")
    assert result.returncode == 1
    assert "no Python from 3.11 to 3.13" in result.stderr
    assert "apt-get install" in result.stderr
    assert not (checkout / ".venv").exists()


def test_wheels_that_are_not_there_are_told_in_words(checkout: Path, tmp_path: Path) -> None:
    result = run(
        "scripts/setup-python", cwd=checkout, PYTHON=sys.executable, HOLDFAST_WHEELS=str(tmp_path)
    )
    assert result.returncode == 1
    assert "pip could not install requirements/run.txt" in result.stderr
    assert ".cache/setup.log" in result.stderr


@pytest.mark.parametrize(("option", "code"), [((), 0), (("--tests",), 1)])
def test_an_apt_that_fails(
    checkout: Path, tmp_path: Path, option: tuple[str, ...], code: int
) -> None:
    """Without engines the rest must work; but tests without engines would prove nothing."""
    assert os.geteuid() == 0, "this test needs root, as apt does"
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    apt.chmod(0o755)
    result = run(
        "scripts/setup-engines",
        *option,
        cwd=checkout,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        HOLDFAST_ENGINES=str(tmp_path / "engines"),
        HOLDFAST_CRIU="",
        HOLDFAST_RUNSC="",
    )
    assert result.returncode == code, result.stderr
    assert re.search(r"criu +it could not be downloaded", result.stderr)
    assert re.search(r"runsc +it could not be downloaded", result.stderr)
    assert "still works: application state, Python sessions" in result.stderr


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_network_that_is_gone(checkout: Path, tmp_path: Path) -> None:
    """For real: in a network namespace of its own, where not even loopback is up."""
    assert os.geteuid() == 0, "this test needs root, to take the network away"
    python = run(
        *("unshare", "--net", "scripts/setup-python"),
        cwd=checkout,
        seconds=280,
        PYTHON=sys.executable,
        PIP_RETRIES="0",
        PIP_FIND_LINKS="",
        PIP_NO_CACHE_DIR="1",
    )
    assert python.returncode == 1
    assert "pip could not install requirements/run.txt" in python.stderr
    assert "is the network there" in python.stderr
    assert "without a network: HOLDFAST_WHEELS=/folder/of/wheels make setup" in python.stderr
    engines = run(
        *("unshare", "--net", "scripts/setup-engines"),
        cwd=checkout,
        seconds=280,
        HOLDFAST_ENGINES=str(tmp_path / "engines"),
        HOLDFAST_CRIU="",
        HOLDFAST_RUNSC="",
    )
    assert engines.returncode == 0, engines.stderr
    assert re.search(r"criu +it could not be downloaded: \S.* \(see \S+\.log\)", engines.stderr)
    assert "to try again: make setup" in engines.stderr
    assert not any((tmp_path / "engines").rglob("criu"))


def tools_without(pattern: str, tools: Path) -> Path:
    """A folder with what a machine has, except programs whose names begin like this."""
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if not re.match(pattern, program.name) and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    return tools


def pretend(folder: Path, name: str, script: str) -> None:
    """Put a program there that does only this."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_machine_without_apt(checkout: Path, tmp_path: Path) -> None:
    assert os.geteuid() == 0, "this test needs root: others may not install anyway"
    result = run(
        "scripts/setup-engines",
        cwd=checkout,
        PATH=str(tools_without(r"apt", tmp_path / "bin")),
        HOLDFAST_ENGINES=str(tmp_path / "engines"),
        HOLDFAST_CRIU="",
        HOLDFAST_RUNSC="",
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"criu +this machine has no apt-get", result.stderr)
    assert "a criu or runsc of your own: HOLDFAST_CRIU=/path" in result.stderr


# What is wrong with Node, by the programs that stand for it, and what is said of it.
NODES = {
    "none": ({}, r"Node is missing: \S.* Node 20 or newer, with npm"),
    "no npm": ({"node": "echo 20"}, r"Node is missing: \S.* Node 20 or newer, with npm"),
    "old": (
        {"node": '[ "$1" = -p ] && echo 16 || echo v16.20.2', "npm": "true"},
        r"node v16\.20\.2 is too old: \S.* Node 20 or newer",
    ),
    "broken": ({"node": "exit 127", "npm": "true"}, r"/node does not start: \S.* Node 20 or newer"),
}
PLAIN_PAGES = "the dashboard is not built, and the server shows its plain pages"


@pytest.mark.parametrize("wrong", NODES)
def test_a_node_that_will_not_do(checkout: Path, tmp_path: Path, wrong: str) -> None:
    programs, said = NODES[wrong]
    tools = tools_without(r"(node|nodejs|npm|npx|corepack)$", tmp_path / "bin")
    for name, script in programs.items():
        pretend(tools, name, script)
    result = run("scripts/setup-node", cwd=checkout, PATH=str(tools))
    assert result.returncode == 1, result.stderr
    assert re.search(said, result.stderr), result.stderr
    assert "install one, or put the folder that has it first into PATH" in result.stderr
    assert not (checkout / "web/node_modules").exists()
    # `make run` goes on without the dashboard; tests would miss it.
    for option, code in (((), 0), (("--tests",), 1)):
        built = run("scripts/build-web", *option, cwd=checkout, PATH=str(tools))
        assert built.returncode == code, built.stderr
        assert PLAIN_PAGES in built.stderr
        assert re.search(r"with Node 20 or newer, `make web` builds it|" + said, built.stderr)
    assert not (checkout / "src/holdfast/dashboard/static").exists()


def test_an_npm_that_fails(checkout: Path, tmp_path: Path) -> None:
    pretend(tmp_path, "npm", "echo 'npm error network is unreachable' >&2; exit 1")
    path = f"{tmp_path}:{os.environ['PATH']}"
    result = run("scripts/setup-node", cwd=checkout, PATH=path)
    assert result.returncode == 1, result.stderr
    assert "npm error network is unreachable" in result.stderr
    assert "npm could not install the packages of clients/js" in result.stderr
    assert ".cache/setup-node.log" in result.stderr
    assert "does npm's own configuration name a reachable registry?" in result.stderr
    for option, code in (((), 0), (("--tests",), 1)):
        built = run("scripts/build-web", *option, cwd=checkout, PATH=path)
        assert built.returncode == code, built.stderr
        assert "npm could not install the packages of web" in built.stderr
        assert PLAIN_PAGES in built.stderr


def test_a_dashboard_that_cannot_be_built(checkout: Path, tmp_path: Path) -> None:
    pretend(tmp_path, "npm", "mkdir -p node_modules")
    node = shutil.which("node")
    pretend(tmp_path, "node", f'case $1 in -*) exec {node} "$@";; *) exit 1;; esac')
    path = f"{tmp_path}:{os.environ['PATH']}"
    for option, code in (((), 0), (("--tests",), 1)):
        built = run("scripts/build-web", *option, cwd=checkout, PATH=path)
        assert built.returncode == code, built.stderr
        assert f"that did not work: {PLAIN_PAGES}" in built.stderr
        assert "begin anew" in built.stderr
    assert not (checkout / "src/holdfast/dashboard/static/.stamp").exists()


def other_pythons(checkout: Path, tools: Path) -> subprocess.CompletedProcess[str]:
    """Look for other versions on a machine that has only these."""
    home = tools.parent / "home"
    nowhere = {"PYENV_ROOT": str(home), "UV_PYTHON_INSTALL_DIR": str(home), "HOME": str(home)}
    return run("scripts/setup-pythons", cwd=checkout, PATH=str(tools), **nowhere)


def test_other_pythons_that_are_missing_or_will_not_do(checkout: Path, tmp_path: Path) -> None:
    tools = tools_without(r"python", tmp_path / "bin")
    early = other_pythons(checkout, tools)
    assert early.returncode == 1
    assert "there is no .venv yet, or its Python is gone: make setup-test" in early.stderr

    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").symlink_to(sys.executable)
    own = "{}.{}".format(*sys.version_info)
    others = [version for version in ("3.11", "3.12", "3.13") if version != own]
    missing = other_pythons(checkout, tools)
    assert missing.returncode == 0, missing.stderr  # tests that need them are skipped
    assert f"not on this machine: {' '.join(others)}; tests that" in missing.stderr
    assert "to run them, install each as python3.N, by pyenv or by uv" in missing.stderr
    assert other_pythons(checkout, tools).stderr == ""  # it is no news any more

    pretend(tools, f"python{others[0]}", f'[ "$1" = -c ] && echo {others[0]}')  # and has no venv
    failed = other_pythons(checkout, tools)
    assert failed.returncode == 1, failed.stderr
    assert "that did not work (see .cache/pythons.log)" in failed.stderr
    assert f"Python {others[0]} is here, but its environment could not be made" in failed.stderr
    assert "is the network there, and has that Python its venv?" in failed.stderr


EXPIRED_APT = """#!/bin/sh
echo "$@" >> {calls}
case "$*" in
    *--print-uris*) . /etc/os-release
        echo "'http://mirror.invalid/debian/dists/$VERSION_CODENAME/InRelease' name 0" ;;
    *Check-Valid-Until=false*update) ;;
    *Dir::State=*update) echo 'E: Release file for http://x.invalid/ is expired' >&2; exit 100 ;;
    *update) ;;
    *) echo 'E: nothing to download here' >&2; exit 100 ;;
esac
"""


def test_an_archive_that_is_too_old_for_this_clock(checkout: Path, tmp_path: Path) -> None:
    """Taken all the same, but only for what goes into the private prefix, and said."""
    assert os.geteuid() == 0, "this test needs root, as apt does"
    apt, calls = tmp_path / "apt-get", tmp_path / "calls"
    apt.write_text(EXPIRED_APT.format(calls=calls))
    apt.chmod(0o755)
    result = run(
        "scripts/setup-engines",
        cwd=checkout,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        HOLDFAST_ENGINES=str(tmp_path / "engines"),
        HOLDFAST_CRIU="",
        HOLDFAST_RUNSC="",
    )
    assert result.returncode == 0, result.stderr
    assert re.search(
        r"forky does not fit this machine's date .* signature is checked", result.stderr
    )
    lenient = [line for line in calls.read_text().splitlines() if "Check-Valid-Until" in line]
    assert any(line.endswith("update") for line in lenient)
    assert any(line.endswith(" criu") for line in lenient)
    assert all("Dir::State=" in line for line in lenient)


@pytest.mark.soak  # half a minute; a bare machine (`test_bare.py`) is set up by a user, too
def test_an_unprivileged_user_can_set_up_and_use_it(checkout: Path, repository: Path) -> None:
    assert os.geteuid() == 0, "this test needs root, to become somebody else"
    home = checkout.parent / "home"
    home.mkdir()
    wheels = repository / ".cache/wheels"
    if wheels.is_dir():  # what the first set-up downloaded; otherwise the network is used
        shutil.copytree(wheels, checkout.parent / "wheels")
    for folder, _, files in os.walk(checkout.parent):
        for name in (".", *files):
            os.chown(Path(folder, name), NOBODY, NOBODY, follow_symlinks=False)

    environ = {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOLDFAST_ENGINES": str(home / "no-engines"),
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
    }

    def as_nobody(command: str) -> subprocess.CompletedProcess[str]:
        user = f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"
        return subprocess.run(
            ["setpriv", *user, "bash", "-c", command],
            cwd=checkout,
            env=environ,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    # The wheels fit the Python they were downloaded for.
    version = as_nobody("python3 -c 'import sys; print(*sys.version_info[:2])'")
    same = version.stdout.split() == [str(part) for part in sys.version_info[:2]]
    if same and wheels.is_dir():
        environ["HOLDFAST_WHEELS"] = str(checkout.parent / "wheels")

    setup = as_nobody("make setup")
    assert setup.returncode == 0, setup.stdout + setup.stderr
    assert re.search(r"criu +installing it needs root, and this is nobody", setup.stderr)
    assert "still works: application state, Python sessions" in setup.stderr
    assert "as root: make setup" in setup.stderr

    told = as_nobody(".venv/bin/holdfast --version")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("holdfast ")

    doctor = as_nobody(".venv/bin/holdfast doctor --json")
    assert doctor.returncode == 0, doctor.stderr
    levels = {level["level"]: level for level in json.loads(doctor.stdout)["levels"]}
    assert levels["state"]["usable"]
    assert levels["session"]["usable"]
    assert levels["sandbox"]["engines"] == ["process"]
    assert not levels["container"]["usable"]

    state = as_nobody(f".venv/bin/python -c '{USE_STATE}'")
    assert state.returncode == 0, state.stderr
    listed = as_nobody(".venv/bin/holdfast list --json")
    assert listed.returncode == 0, listed.stderr
