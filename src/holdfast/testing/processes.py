"""Processes that tests start for a while: none outlives its block, and no block waits for one that
never ends, even where an error has come in between."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def running(words: list[Any], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """`subprocess.Popen` for a block, which sees to its end; after an error it is killed. On its
    own a Popen waits then, and a test that has had its time would wait for ever."""
    with subprocess.Popen(words, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
