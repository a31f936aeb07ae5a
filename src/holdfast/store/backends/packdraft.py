"""A pack in the making: a file that nobody knows of until it is published."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.model.errors import from_os_error
from holdfast.model.files import PRIVATE, Access, create
from holdfast.store.backends.contract import Buffer
from holdfast.store.backends.files import write_all


class PackDraft:
    """What drafts of packs have in common, wherever they are published."""

    def __init__(self, path: Path, access: Access = PRIVATE) -> None:
        self._path = path
        try:
            self._fd = create(path, access, os.O_RDWR)
        except OSError as error:
            raise from_os_error(error, "beginning a pack") from error

    def write_at(self, offset: int, data: Buffer) -> None:
        try:
            write_all(self._fd, data, offset)
        except OSError as error:
            raise from_os_error(error, "writing a pack") from error

    def lay(self, offset: int, pieces: Sequence[Buffer]) -> None:
        """What is published elsewhere is read for that: through the cache."""
        for piece in pieces:
            self.write_at(offset, piece)
            offset += len(piece)

    def discard(self) -> None:
        """Give it up, unless it was published; may be called twice."""
        if self._fd >= 0:
            with suppress(OSError):
                self._path.unlink()  # what stays is swept up when its writer's hold is gone
            self._close()

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1
