"""Memory of a checkpoint on its way into a worker: files that it maps, and where in them it is."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.model.errors import Corrupt, from_os_error
from holdfast.protocol.session_messages import MappingMessage
from holdfast.store.parts.layouts import Layout, Layouts
from holdfast.store.parts.mapping import FileRun

_MOST = 200  # files in one message; the kernel takes 253
_RUNS = 200_000  # in one message, which has a longest length

_Run = tuple[int, int, int, int]


class Mapped:
    """Open files and messages about them, as long as the block lasts."""

    def __init__(self, request: int, memory: Layouts) -> None:
        self._request = request
        self._memory = memory
        self._numbers: dict[Path, int] = {}
        self._spill = memory.spill
        self.files: list[int] = []
        self.messages: list[MappingMessage] = []

    def __enter__(self) -> Self:
        if not self._memory:
            return self
        self.files.append(os.dup(self._spill.fd))  # the first has what no file of the store has
        try:
            for name, layout in self._memory.items():
                self.messages.append(self._message(name, layout))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        while self.files:
            os.close(self.files.pop())

    def _message(self, name: str, layout: Layout) -> MappingMessage:
        runs, under = self._runs(layout), self._runs(layout.under) if layout.under else []
        if len(runs) + len(under) + len(layout.deltas) > _RUNS:
            raise Corrupt(f"{name!r} is in more pieces than a session can map")
        return MappingMessage(
            request_id=self._request, name=name, size=layout.size, skew=layout.skew,
            runs=tuple(runs), under=tuple(under), deltas=tuple(layout.deltas),
        )  # fmt: skip

    def _runs(self, layout: Layout) -> list[_Run]:
        runs = [self._run(run) for run in layout.files]
        runs += [(start, size, 0, offset) for start, size, offset in layout.copies]
        return sorted(runs)

    def _run(self, run: FileRun) -> _Run:
        number = self._number(run.path)
        if number is not None:
            return run.start, run.size, number, run.offset
        return run.start, run.size, 0, self._copy(run.path, run.offset, run.size)

    def _number(self, path: Path) -> int | None:
        """The number of an open file; None when there are too many."""
        if path not in self._numbers:
            if len(self.files) >= _MOST:
                return None
            self.files.append(_open(path))
            self._numbers[path] = len(self.files) - 1
        return self._numbers[path]

    def _copy(self, path: Path, offset: int, size: int) -> int:
        fd = _open(path)
        try:
            return self._spill.write(os.pread(fd, size, offset))
        finally:
            os.close(fd)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Corrupt(
            f"{path.name} was deleted while it was being mapped",
            hint="try again: what it held may have been moved",
        ) from None
    except OSError as error:
        raise from_os_error(error, "mapping memory") from error
