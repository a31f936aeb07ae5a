"""Threads of numpy's that rest."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.model.blas import resting

BUSY = """
import os, time
from contextlib import nullcontext
from holdfast.model.blas import resting
with {within}():
    import numpy
before = time.process_time()
time.sleep(0.01)
print(time.process_time() - before)
"""


def busy(within: str) -> float:
    """Seconds of the processor's, of the hundredth that a process sleeps after its import."""
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    words = [sys.executable, "-c", BUSY.format(within=within)]
    told = subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout
    return float(told)


def test_they_rest_soon() -> None:
    assert min(busy("resting") for _ in range(3)) < 0.002


def test_the_setting_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "OPENBLAS_THREAD_TIMEOUT"
    monkeypatch.delenv(name, raising=False)
    with resting():
        assert os.environ[name] == "20"
    assert name not in os.environ
    monkeypatch.setenv(name, "26")
    with resting():
        assert os.environ[name] == "26"
    assert os.environ[name] == "26"
