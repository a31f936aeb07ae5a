"""Waiting for descriptors with any number."""

from __future__ import annotations

import fcntl
import os
import time

from holdfast.model.readiness import readable


def test_numbers_that_select_does_not_take() -> None:
    read, write = os.pipe()
    high = fcntl.fcntl(read, fcntl.F_DUPFD, 1500)
    try:
        began = time.monotonic()
        assert readable([high], 0.05) == []
        assert time.monotonic() - began >= 0.05
        os.write(write, b"x")
        assert readable([high], None) == [high]
        assert os.read(high, 9) == b"x"
        os.close(write)
        assert readable([read, high], 60) == [read, high]  # at their end
    finally:
        for fd in (read, high):
            os.close(fd)
