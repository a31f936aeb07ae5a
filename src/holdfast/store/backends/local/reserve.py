"""The reserve: a little space that a store keeps for itself, so that even on a disk without a
single free block it can be recorded that something is to go. It holds nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.model.files import PRIVATE, Access, create
from holdfast.store.backends.local.sweeping import draft_path

NAME = "reserve"
SIZE = 64 * 1024  # an entry that drops thousands of checkpoints, and the ones after it


class Reserve:
    """The file that takes the space."""

    def __init__(self, root: Path, access: Access = PRIVATE) -> None:
        self._access = access
        self._path = str(root / NAME)  # looked for often, and a Path is slow to say where it is
        self._tmp = root / "tmp"

    def keep(self) -> None:
        """See to it that there is one, where that can be."""
        if not os.path.exists(self._path):
            # Without room, permission or a file system that allocates, one goes on without it. A
            # disk that is broken is noticed by whoever writes something that matters.
            with suppress(OSError):
                self._make()

    def release(self) -> bool:
        """Give the space to whoever writes next; False when there was none."""
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            return False
        return True

    def _make(self) -> None:
        draft = draft_path(self._tmp)
        fd = create(draft, self._access)
        try:
            os.posix_fallocate(fd, 0, SIZE)
            draft.rename(self._path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
