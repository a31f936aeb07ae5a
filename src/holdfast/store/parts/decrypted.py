"""Decrypted parts: in memory that has no name, since plaintext of an encrypted store is never put
into a file. Whoever is to have it besides this process is handed the descriptor."""

from __future__ import annotations

import fcntl
import mmap
import os

from holdfast.model.errors import from_os_error
from holdfast.store.chunks.library import Library
from holdfast.store.parts.blocks import PAGE
from holdfast.store.parts.part import PartRecord
from holdfast.store.parts.streams import PartStream

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def decrypted(library: Library, part: PartRecord) -> tuple[mmap.mmap, int]:
    """A private copy-on-write mapping of a part on its page grid, and the memory behind it, which
    nobody can change any more. Every byte was verified on its way there; raises Corrupt."""
    try:
        fd = os.memfd_create("holdfast-part", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise from_os_error(error, "making room for a part") from error
    try:
        PartStream(library, part).copy_to(fd, part.skew)
        size = -(-(part.skew + part.size) // PAGE) * PAGE
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE), fd
    except OSError as error:
        os.close(fd)
        raise from_os_error(error, "mapping a part") from error
    except BaseException:
        os.close(fd)
        raise
