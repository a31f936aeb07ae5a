"""A container's checkpoint: runc and CRIU bring it back in a scratch place, where it stands still
while its files and its memory are compared with what was frozen."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.drill.comparison import compared
from holdfast.drill.scratch import Scratch, Trial
from holdfast.model.errors import Conflict, Denied, HoldfastError, NotFound, Unsupported
from holdfast.oci import vault
from holdfast.oci.config_handler import read_config
from holdfast.oci.engine import EngineFailed
from holdfast.oci.memory.comparison import differing, dumped
from holdfast.oci.overlay import Overlay, find_overlay
from holdfast.oci.overview import Overview
from holdfast.oci.rehearsal import Cast, rehearsal
from holdfast.oci.store_vault import StoreVault, saved_of
from holdfast.view.files import fingerprints

_NOT_HERE = (Unsupported, Denied, NotFound, Conflict)  # of this machine, not of the checkpoint
_TOUCHED = 0.5  # a process may run for a moment before it stands still, and writes then


async def try_container(scratch: Scratch) -> Trial:
    """Bring it back where its image, runc and CRIU are; elsewhere it is read."""
    return await asyncio.to_thread(_try, scratch)


def _try(scratch: Scratch, environ: Mapping[str, str] = os.environ) -> Trial:
    place = scratch.archive.parent / f"{scratch.archive.stem}-parts"
    place.mkdir(mode=0o700)
    kept = StoreVault(lambda: scratch.store, place, place)
    folder = kept.fetch(saved_of(scratch.checkpoint), place)
    items = len(scratch.store.show(scratch.checkpoint).parts)
    try:
        if os.geteuid() != 0:
            raise Denied("only root can bring containers back")
        overview = Overview(environ)
        image = _image(overview, str(scratch.checkpoint.subject))
        with rehearsal(folder, image, overview.policy, environ) as cast:
            return _compared(folder, cast, items)
    except EngineFailed as failure:
        return Trial(problems=(str(failure),), items=items)
    except _NOT_HERE as why:
        return _only_read(items, why)


def _image(overview: Overview, subject: str) -> Overlay:
    """The layers below the container of that name. A checkpoint has what it wrote, and no more;
    the image is found where a container of the name is. Raises NotFound, Unsupported."""
    for _, record in overview.known():
        if record.subject == subject:
            return find_overlay(record.bundle, read_config(record.bundle))
    raise NotFound("its image is known only where a container of its name is")


def _compared(folder: Path, cast: Cast, items: int) -> Trial:
    memory = folder / vault.MEMORY
    with (folder / vault.LAYER).open("rb") as before, cast.layer.open("rb") as after:
        problems = compared(fingerprints(before), fingerprints(after))
    notes = []
    for number in dumped(memory):
        if number not in cast.processes:  # CRIU made all of them, or it would have failed
            notes.append(f"process {number} has ended since it came back")
            continue
        wrong, total = differing(memory, number, cast.processes[number])
        if wrong > total * _TOUCHED:
            problems.append(f"{wrong} of {total} pages of process {number} are not what they were")
    return Trial(problems=tuple(problems), notes=tuple(notes), items=items)


def _only_read(items: int, why: HoldfastError) -> Trial:
    note = f"its bytes were read; it cannot be brought back here: {why}"
    return Trial(items=items, notes=(note,), tried=False)
