"""Steps of a child that has our memory: what comes of them, and what is told when one fails."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

from holdfast.sandbox.agent import USER
from holdfast.sandbox.agent.steps import Beginner, Steps, known

pytestmark = pytest.mark.skipif(not known(), reason="there are no instructions for this processor")


@pytest.fixture(scope="module")
def beginner() -> Beginner:
    return Beginner()


def run(
    beginner: Beginner, *argv: str, folder: str = "/", user: int | None = None, **environ: str
) -> tuple[str, int]:
    """What a program says, and its exit code."""
    hear, say = os.pipe()
    nothing = os.open("/dev/null", os.O_RDONLY)
    try:
        steps = Steps()
        steps.streams(nothing, say, say)
        steps.lead()
        if user is not None:
            steps.be(user)
        steps.go_to(folder)
        steps.execute(argv[0], argv, environ)
        pid = beginner.begin(steps)
    except BaseException:
        os.close(hear)
        raise
    finally:
        os.close(say)
        os.close(nothing)
    with os.fdopen(hear) as told:
        text = told.read()
    return text, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_it_is_the_program(beginner: Beginner) -> None:
    script = 'pwd; echo "$WORD $1"; exit 7'
    assert run(beginner, "/bin/sh", "-c", script, "", "ünd", folder="/usr", WORD="hi") == (
        "/usr\nhi ünd\n",
        7,
    )


def test_it_leads_a_session_with_nothing_of_ours(beginner: Beginner) -> None:
    program = "import os; print(os.getpid(), os.getsid(0)); print(*os.listdir('/proc/self/fd'))"
    ours = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 500)
    try:
        text, _ = run(beginner, sys.executable, "-S", "-c", program)
    finally:
        os.close(ours)
    own, session, *descriptors = text.split()
    assert own == session
    assert {"0", "1", "2"} <= set(descriptors)
    assert str(ours) not in descriptors


def test_it_is_another_user_without_power(beginner: Beginner) -> None:
    if os.geteuid() != 0:
        pytest.fail("only root is somebody else: run the tests as root")
    text, _ = run(
        beginner, "/bin/grep", "-E", "^(Uid|Gid|CapPrm|CapEff)", "/proc/self/status", user=USER
    )
    ids = "\t".join([str(USER)] * 4)
    assert text == f"Uid:\t{ids}\nGid:\t{ids}\nCapPrm:\t{0:016}\nCapEff:\t{0:016}\n"
    assert os.getresuid() == (0, 0, 0)


def test_no_signal_is_blocked(beginner: Beginner) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        text, _ = run(beginner, "/bin/grep", "SigBlk", "/proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert int(text.split()[1], 16) == 0


def children() -> set[str]:
    """Ours, those that ended among them."""
    threads = Path("/proc/self/task").iterdir()
    return {child for each in threads for child in (each / "children").read_text().split()}


def test_what_failed_is_told_and_nothing_is_left(beginner: Beginner) -> None:
    before = children()  # of other tests
    with pytest.raises(FileNotFoundError) as missing:
        run(beginner, "/no/program")
    assert missing.value.filename == "/no/program"
    with pytest.raises(FileNotFoundError) as nowhere:
        run(beginner, "/bin/true", folder="/no/folder")
    assert nowhere.value.filename == "/no/folder"
    with pytest.raises(PermissionError):
        run(beginner, "/etc/passwd")
    assert children() <= before


def test_what_no_program_can_be_given(beginner: Beginner) -> None:
    steps = Steps()
    with pytest.raises(ValueError, match="cut off"):
        steps.execute("/bin/true", ["/bin/true", "a\0b"], {})
    with pytest.raises(ValueError, match="no name"):
        steps.execute("/bin/true", ["/bin/true"], {"a=b": "c"})
    assert run(beginner, "/bin/true") == ("", 0)


def test_many_in_a_row(beginner: Beginner) -> None:
    """Neither our stack nor our memory is another one for it."""
    said = [run(beginner, "/bin/echo", str(number))[0] for number in range(200)]
    assert said == [f"{number}\n" for number in range(200)]
