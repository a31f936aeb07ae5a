"""Memory is asked for ahead, and all of it is free again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import resource
from pathlib import Path
from benchmarks.lending import lend

def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

before = held()
lend(100 << 20)
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
print(most - before >> 20, held() - before >> 20)
"""


def test_what_is_lent_was_held_and_is_free() -> None:
    root = Path(__file__).parents[2]
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=True
    )
    most, after = map(int, said.stdout.split())
    assert most >= 99
    assert after < 10
