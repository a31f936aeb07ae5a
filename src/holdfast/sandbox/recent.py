"""Moments that were put away a short while ago, still on this machine's disk.

The store is what counts; but who comes back to the same server need not wait until the store has
put gigabytes together again. What is here belongs to this process alone and goes with it.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

from holdfast.model.files import make_folder
from holdfast.sandbox.live import Frozen

log = logging.getLogger("holdfast.sandbox")
MOST_BYTES = 4 << 30


class Recent:
    """Frozen moments by checkpoint, the oldest going first when there is too much."""

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most = most
        self._held: OrderedDict[str, tuple[Frozen, int]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, checkpoint: str, frozen: Frozen) -> None:
        """Take a moment over from its sandbox, which is about to be cleared away. Blocking. The
        checkpoint is durable by now: where there is no room, it is fetched from the store again."""
        try:
            with self._lock:
                self._keep(checkpoint, frozen)
        except OSError as error:
            log.warning("checkpoint %s is not kept at hand: %s", checkpoint, error)
            frozen.discard()
            shutil.rmtree(self._folder / checkpoint, ignore_errors=True)

    def _keep(self, checkpoint: str, frozen: Frozen) -> None:
        place = self._folder / checkpoint
        size = frozen.files.stat().st_size
        size += sum(each.stat().st_size for each in frozen.image.glob("*"))
        if size > self._most:
            frozen.discard()
            return
        make_folder(place)
        moved = replace(frozen, files=place / "files.tar", image=place / "image")
        frozen.files.rename(moved.files)
        if frozen.image.is_dir():
            frozen.image.rename(moved.image)
        self._held[checkpoint] = (moved, size)
        while sum(held for _, held in self._held.values()) > self._most:
            self._drop(next(iter(self._held)))

    def take(self, checkpoint: str) -> Frozen | None:
        """The moment of a checkpoint, if it is here; it is the caller's now, who discards it."""
        with self._lock:
            held = self._held.pop(checkpoint, None)
        return None if held is None else held[0]

    def _drop(self, checkpoint: str) -> None:
        self._held.pop(checkpoint)
        shutil.rmtree(self._folder / checkpoint, ignore_errors=True)
