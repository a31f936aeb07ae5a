"""The awkward set: each kind by itself, and what cannot come back counts for nobody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks import kinds

ALONE = """
import sys
from pathlib import Path
from benchmarks import kinds
first = kinds.beginning(Path(sys.argv[1]))
for kind in kinds.kinds():
    names = {"__name__": "__main__"}
    exec(first, names)
    exec(kind.code, names)
    print(kind.number)
"""


def test_no_kind_needs_another(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path)],
        cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.split()) == len(list(kinds.kinds()))


def test_a_placeholder_counts_for_nobody() -> None:
    every = list(kinds.kinds())
    possible = sum(kind.possible for kind in every)
    assert 0 < possible < len(every)
    assert kinds.judged(lambda _: True) == {"right": possible, "of": len(every)}
    assert kinds.judged(lambda _: 1 / 0) == {"right": 0, "of": len(every)}


def test_a_check_may_await_and_need_not_end() -> None:
    names: dict[str, object] = {}
    exec(
        "import threading\nasync def f(): return 4\nlock = threading.Lock()\nlock.acquire()", names
    )
    assert kinds.evaluated("await f() == 4", names) is True
    assert kinds.attempt(lambda: kinds.evaluated("lock.acquire()", names, patience=1)) == (
        "TimeoutError: not within 1 s"
    )
