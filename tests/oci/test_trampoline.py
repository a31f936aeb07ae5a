"""The shell script, and the quick way past it: both find what is ours, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import UsageError
from holdfast.oci.command import RuncCommand
from holdfast.oci.decision import Facts, decide
from holdfast.oci.state import ContainerState, Record
from holdfast.oci.trampoline import compile_quick
from holdfast.testing.containerd import TRAMPOLINE


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("quick") / "holdfast-runc"
    made = compile_quick("/usr/sbin/runc", str(TRAMPOLINE), os.environ)
    assert made is not None, "there is no C compiler"
    program.write_bytes(made)
    program.chmod(0o755)
    return program


@pytest.fixture(params=["script", "quick"])
def program(request: pytest.FixtureRequest, quick: Path) -> Path:
    return quick if request.param == "quick" else TRAMPOLINE


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "policy.toml").write_text(f'log = "{tmp_path}/runc.log"')
    return {
        **os.environ,
        "HOLDFAST_RUN": str(tmp_path / "run"),
        "HOLDFAST_POLICY": str(tmp_path / "policy.toml"),
        "HOLDFAST_HOME": str(tmp_path / "home"),
        "HOLDFAST_PYTHON": sys.executable,
    }


def waiting(environ: dict[str, str]) -> None:
    """A container that was revived and not started yet."""
    state = ContainerState(Path(environ["HOLDFAST_RUN"]), "/r/ns", "tc")
    state.mark(Record(subject="container/ns/tc", root="/r/ns", id="tc", bundle="/b", mode="local"))
    state.unstarted = True


@pytest.mark.parametrize(
    "line",
    [
        "--root /r/ns pause tc",
        "--root /r/ns/ pause tc",
        "--root=/r/ns pause tc",
        "-root /r/ns pause tc",
        "--root /r//ns pause tc",
        "--root /r/./ns pause tc",
        "--root /r/other/../ns pause tc",
        "--log-format json --root /r/ns --log start pause -- tc",
        "--systemd-cgroup --debug=true --root=/r/ns/ resume tc",
    ],
)
def test_a_container_of_ours_is_found(program: Path, environ: dict[str, str], line: str) -> None:
    """Only Holdfast takes pausing a container that runc does not know for done."""
    waiting(environ)
    if program != TRAMPOLINE:  # Python is started often enough for the script
        environ |= {"HOLDFAST_PYTHON": "/bin/true", "HOLDFAST_RUNC": "/bin/false"}
    assert subprocess.run([program, *line.split()], env=environ, check=False).returncode == 0


@pytest.mark.parametrize(
    "line",
    [
        "--root /r/ns pause other",
        "--root /r/ns2 pause tc",
        "--root /r pause ns/tc",
        "pause tc",
        "--root /r/ns start --unknown tc",
    ],
)
def test_no_other_container_is_taken_for_it(
    program: Path, environ: dict[str, str], line: str
) -> None:
    waiting(environ)
    done = subprocess.run([program, *line.split()], env=environ, capture_output=True, check=False)
    assert done.returncode != 0


@pytest.mark.parametrize("size", [0, 1, 65536 - 8, 65536 - 4, 65536, 65540, 200_000])
def test_a_configuration_is_searched_to_its_end(
    program: Path, environ: dict[str, str], tmp_path: Path, size: int
) -> None:
    environ |= {"HOLDFAST_RUNC": "/bin/echo", "HOLDFAST_PYTHON": "/bin/false"}
    words = ["create", f"--bundle={tmp_path}", "tc"]

    def code() -> int:
        return subprocess.run(
            [program, *words], env=environ, stdout=subprocess.DEVNULL, check=False
        ).returncode

    (tmp_path / "config.json").write_text("x" * size + "HoldFast")
    assert code() == 1
    (tmp_path / "config.json").write_text("x" * size + "holdfas")
    assert code() == 0


def test_a_script_that_is_gone_costs_nobody_a_container(
    environ: dict[str, str], tmp_path: Path
) -> None:
    made = compile_quick("/bin/echo", str(tmp_path / "gone"), os.environ)
    assert made is not None
    (tmp_path / "program").write_bytes(made)
    (tmp_path / "program").chmod(0o755)
    waiting(environ)
    words = ["--root", "/r/ns", "pause", "tc"]
    done = subprocess.run(
        [tmp_path / "program", *words], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == words


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a container that opts in."""
    bundle = tmp_path_factory.mktemp("asking")
    (bundle / "config.json").write_text('{"annotations": {"holdfast.checkpoint": "1"}}')
    return bundle


WORDS = """
    --root -root --root=/r/ns --root=/r//ns /r/ns /r/ns/ /r --log --log=x --log-format json --debug
    --systemd-cgroup -- - start pause create restore delete kill state list exec tc other 9 -f
    --force --bundle -b --bundle=BUNDLE BUNDLE --image-path --pid-file --unknown
""".split()  # noqa: SIM905  a list of these would be a page long


@settings(max_examples=200, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=8))
def test_the_quick_way_passes_by_only_what_is_not_ours(
    quick: Path, asking: Path, words: list[str]
) -> None:
    """Whatever it does not hand over, the parser and the decision would have left to runc."""
    environ = {"HOLDFAST_RUN": str(asking / "run"), "HOLDFAST_RUNC": "/bin/true"}
    waiting(environ)
    argv = [word.replace("BUNDLE", str(asking)) for word in words]
    environ["HOLDFAST_PYTHON"] = "/bin/false"
    if subprocess.run([quick, *argv], env=environ, cwd="/", check=False).returncode != 0:
        return  # it was handed over
    try:
        command = RuncCommand.parse(argv)
    except UsageError:
        return
    marked = (command.root, command.container_id) == ("/r/ns", "tc")
    opted_in = command.options.text("bundle") == str(asking) and bool(command.container_id)
    facts = Facts(opted_in=opted_in, marked=marked, unstarted=marked)
    assert decide(command, facts) == "pass"
