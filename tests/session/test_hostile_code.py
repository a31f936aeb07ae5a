"""User code that forks, raises what nobody should raise, or never ends: it costs only itself."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.session import Session
from holdfast.session.worker.secrets import redact_text

RAISING = """
class Raises:
    def __init__(self, error): self.error = error
    def __reduce__(self): raise self.error
class Pretends:
    @property
    def __class__(self): raise SystemExit('no class')
"""


async def value(session: Session, code: str) -> object:
    result = await session.execute(code)
    assert result.error is None, result.error.traceback
    return result.value


async def test_a_fork_is_no_second_worker(session: Session) -> None:
    pid = await value(session, "import os\nos.getpid()")
    await session.execute("child = os.fork()\nwhere = 'child' if child == 0 else 'parent'")
    for _ in range(4):
        assert await value(session, "[where, os.getpid()]") == ["parent", pid]
    assert await value(session, "os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])") == 0
    cp = await session.checkpoint()
    assert cp.report["where"].outcome == "exact"


async def test_a_fork_while_the_state_is_captured_ends(session: Session) -> None:
    await session.execute(
        "import os\nclass Forks:\n    def __reduce__(self):\n"
        "        os.fork()\n        return Forks, ()\nf = Forks(); x = 1"
    )
    cp = await session.checkpoint()
    assert cp.report["x"].outcome == "exact"
    assert await value(session, "x") == 1


@pytest.mark.parametrize(
    "error", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "ValueError"]
)
async def test_an_exception_whose_text_raises(session: Session, error: str) -> None:
    await session.execute("x = 1")
    result = await session.execute(
        f"class E(Exception):\n    def __str__(self): raise {error}('no')\nraise E"
    )
    assert result.error is not None
    assert result.error.type == "E"
    assert error in result.error.message
    assert await value(session, "x") == 1


async def test_names_of_types_that_cannot_travel(session: Session) -> None:
    await session.execute("class C: pass\nC.__qualname__ = '\\udcff'\nC.__module__ = 5\nc = C()")
    assert (await session.execute("c")).error is None
    assert (await session.checkpoint()).report["c"].outcome in ("exact", "rebuilt", "placeholder")
    assert session.alive


@pytest.mark.parametrize("error", ["SystemExit('no')", "KeyboardInterrupt()", "GeneratorExit()"])
async def test_an_item_that_raises_costs_only_itself(session: Session, error: str) -> None:
    await session.execute(RAISING + f"bad = Raises({error})\nother = [1]\nheld = [bad, 2]")
    cp = await session.checkpoint()
    assert cp.report["bad"].outcome == "placeholder"
    assert cp.report["other"].outcome == "exact"
    await session.restore(cp)
    assert await value(session, "[other, held[1]]") == [[1], 2]


async def test_an_item_that_lies_about_its_class(session: Session) -> None:
    await session.execute(RAISING + "bad = Pretends()\nother = [1]")
    cp = await session.checkpoint()
    assert cp.report["other"].outcome == "exact"
    await session.restore(cp)
    assert await value(session, "other") == [1]


async def test_a_metaclass_that_raises(session: Session) -> None:
    result = await session.execute(
        "class M(type):\n    def __getattribute__(cls, name): raise SystemExit(name)\n"
        "class C(metaclass=M): pass\n"
        + RAISING
        + "def pretend(made): return Pretends()\n@pretend\ndef f(): pass\nc = C()\nother = [1]\n"
        "class ndarray:\n    __module__ = 'numpy'\n    def __getattr__(self, n): raise SystemExit\n"
        "d = ndarray()"
    )
    assert result.error is None
    cp = await session.checkpoint()
    assert cp.report["other"].outcome == "exact"
    await session.restore(cp)
    assert await value(session, "other") == [1]


@pytest.mark.parametrize("equal", ["return True", "raise SystemExit"])
async def test_classes_that_cannot_be_told_apart(session: Session, equal: str) -> None:
    """A metaclass that compares its classes makes them unhashable, or equal to every type."""
    result = await session.execute(
        f"class M(type):\n    def __eq__(a, b): {equal}\n"
        "class C(metaclass=M): pass\nodd = C()\ninside = [1, C()]\nother = [1]\nn = 5"
    )
    assert result.error is None
    for _ in range(2):
        cp = await session.checkpoint()
        assert {cp.report[name].outcome for name in ("other", "n")} == {"exact"}
        assert {cp.report[name].outcome for name in ("odd", "inside")} == {"placeholder"}
    await session.restore(cp)
    assert await value(session, "[other, n, type(C).__name__]") == [[1], 5, "M"]


async def test_an_item_that_raises_when_it_is_read(session: Session) -> None:
    await session.execute(
        "import os\nclass Late:\n    def __init__(self): self.x = 1\n"
        "    def __setstate__(self, state):\n"
        "        if 'HOLDFAST_GATE' in os.environ: raise SystemExit('later')\n"
        "late = Late()\nother = [1]"
    )
    cp = await session.checkpoint()
    await session.execute("os.environ['HOLDFAST_GATE'] = '1'")
    report = await session.restore(cp)
    assert report["late"].outcome == "placeholder"
    assert "SystemExit: later" in report["late"].reason
    assert await value(session, "other") == [1]


async def test_a_class_that_raises_when_it_is_made_again(session: Session) -> None:
    await session.execute(
        "import os\nclass Once:\n"
        "    if 'HOLDFAST_GATE' in os.environ: raise SystemExit('again')\nother = [1]"
    )
    cp = await session.checkpoint()
    await session.execute("os.environ['HOLDFAST_GATE'] = '1'")
    report = await session.restore(cp)
    assert report["Once"].outcome == "placeholder"
    assert await value(session, "other") == [1]


async def test_a_name_that_is_no_text_costs_only_itself(session: Session) -> None:
    await session.execute("globals()['\\udcff'] = 1\nglobals()[5] = 1\nx = 1")
    cp = await session.checkpoint()
    outcomes = {item.name: item.outcome for item in cp.report.items}
    assert outcomes == {"'\\udcff'": "skipped", "5": "skipped", "x": "exact"}


async def test_a_text_that_raises_in_the_plainer_forms(session: Session) -> None:
    await session.execute(
        "class T(str):\n    def __reduce_ex__(self, n): raise SystemExit\n"
        "    def __str__(self): raise SystemExit\n"
        "class N(int):\n    def __reduce_ex__(self, n): raise SystemExit\n"
        "    def __int__(self): raise SystemExit\nt, n, x = T('a'), N(3), 1"
    )
    cp = await session.checkpoint()
    assert cp.report["x"].outcome == "exact"
    assert cp.report["t"].outcome in ("rebuilt", "placeholder")


async def test_reasons_tell_no_secrets(session: Session) -> None:
    await session.execute(
        "password = 'correct horse'\n"
        "class Bad:\n    def __init__(self, text): self.text = text\n"
        "    def __reduce__(self): raise ValueError(self.text)\n"
        "class Own:\n    def __init__(self): self.api_key = 'battery staple'\n"
        "    def __reduce__(self): raise ValueError('with ' + self.api_key)\n"
        "class Back:\n    def __reduce__(self): return fail, ()\n"
        "def fail(): raise ValueError('again ' + password)\n"
        "a = Bad('cannot log in with ' + password)\n"
        "b = Bad('key AKIA' + 'A' * 16 + ' refused')\n"
        "c = Bad('POST /?token=a1B2c3D4e5F6g7H8&x=1')\n"
        "own, back = Own(), Back()"
    )
    cp = await session.checkpoint()
    reasons = {name: cp.report[name].reason for name in ("a", "b", "c", "own", "back")}
    assert reasons["a"] == "cannot log in with <secret>"
    assert reasons["b"] == "key <secret> refused"
    assert reasons["c"] == "POST /?token=<secret>&x=1"
    assert reasons["own"] == "with <secret>"
    assert reasons["back"].endswith("ValueError: again <secret>")
    report = await session.restore(cp)
    assert "horse" not in repr(report.items)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{'password': 'a b', 'user': 'u'}", "{'password': <secret>, 'user': 'u'}"),
        ("api_key = x, y", "api_key = <secret>, y"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc", "<secret>"),
        ("tokens: 5", "tokens: 5"),
        ("cannot pickle 'generator' object", "cannot pickle 'generator' object"),
    ],
)
def test_redacted_text(text: str, expected: str) -> None:
    assert redact_text(text) == expected


def test_a_long_text_is_looked_through_once() -> None:
    """A message without a blank in it must not hold everybody up: this once took minutes."""
    began = time.monotonic()
    for text in ("x" * 200_000, "a1" * 100_000, "a" + " " * 200_000):
        assert redact_text(text) == text
    assert time.monotonic() - began < 30
    assert redact_text("a" * 500 + "_password='x'").endswith("_password=<secret>")


@pytest.mark.parametrize("error", ["TimeoutError", "ValueError"])
async def test_handlers_of_signals_may_raise_when_no_cell_runs(
    session: Session, error: str
) -> None:
    """An alarm may be late: the cell that it was meant for has ended."""
    await session.execute(
        f"import signal\nx = 1\ndef late(*about): raise {error}('too late')\n"
        "_ = signal.signal(signal.SIGALRM, late)\n_ = signal.setitimer(signal.ITIMER_REAL, 0.05)",
        check=True,
    )
    await asyncio.sleep(0.5)
    result = await session.execute("x")
    assert result.value == 1
    assert f"{error}: too late" in result.stderr
    asked = await session.execute(
        "_ = signal.setitimer(signal.ITIMER_REAL, 0.05)\ninput()", on_input=_never
    )
    assert asked.error is not None
    assert asked.error.type == error


async def _never(prompt: str) -> str:
    await asyncio.sleep(3)
    return "nothing"
