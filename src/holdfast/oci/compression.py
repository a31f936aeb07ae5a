"""Parts that rest are kept compressed: `pages-1.img` as `pages-1.img.zst`, plain zstd.

CRIU cannot read them so; they are made raw again before a restore.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

ZSTD = ".zst"
_LEVEL = 1  # more takes several times as long for a few percent
_LEAST = 64 * 1024  # what is smaller takes its blocks of the disk all the same
_WORTH = 0.95  # as in the store: what shrinks by less stays as it is
_STEP = 1024 * 1024
_TASTE = 128 * 1024
_HEADER = 18  # of a frame, at most


def compressed(path: Path) -> Path:
    """Where a file is when it is kept compressed."""
    return path.with_name(path.name + ZSTD)


def is_compressed(path: Path) -> bool:
    return path.name.endswith(ZSTD)


def compress(path: Path) -> bool:
    """Keep a file compressed in place of itself, if that seems worth it; whether it did."""
    import zstandard

    size = path.stat().st_size
    out = compressed(path)
    compressor = zstandard.ZstdCompressor(level=_LEVEL, threads=-1, write_checksum=True)
    with path.open("rb") as source:
        # A taste first: what is random is tried again whenever its generation is looked at.
        taste = b"".join(os.pread(source.fileno(), _TASTE, size * n // 16) for n in range(16))
        if size < _LEAST or len(compressor.compress(taste)) > len(taste) * _WORTH:
            return False
        with open(_new(out), "wb") as target:
            compressor.copy_stream(source, target, size=size, read_size=_STEP)
    path.unlink()
    return True


def expand(path: Path, out: BinaryIO) -> None:
    """Write what a compressed file stands for; raises Corrupt when it stands for nothing."""
    import zstandard

    from holdfast.model.errors import Corrupt

    with path.open("rb") as source:
        try:
            whole = zstandard.frame_content_size(source.read(_HEADER))
            source.seek(0)
            _, written = zstandard.ZstdDecompressor().copy_stream(source, out, write_size=_STEP)
        except zstandard.ZstdError as error:
            raise Corrupt(f"{path.name} cannot be expanded: {error}", where=str(path)) from None
    if written != whole:
        raise Corrupt(f"{path.name} ends too early", where=str(path))
    out.flush()


def _new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
