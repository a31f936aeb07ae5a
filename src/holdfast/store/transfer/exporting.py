"""Exporting: a checkpoint, alone or with its ancestors, becomes an archive."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.disk import Disk
from holdfast.model.errors import BadInput, Conflict, Corrupt, NotFound, from_path_error
from holdfast.model.files import create
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue, Record
from holdfast.store.parts.contents import Named, named_by_chunk, named_by_part, walk
from holdfast.store.transfer.archive import ArchiveWriter, Info
from holdfast.store.transfer.waybill import Waybill, waybill_of

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an archive holds; the last checkpoint is the one that it is about."""

    checkpoints: tuple[Checkpoint, ...]
    chunks: int
    content_bytes: int  # of the chunks, before compression
    archive_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    records: tuple[Record, ...]
    waybills: tuple[Waybill, ...]
    chunks: tuple[Named, ...]
    size: int


def export(
    ledger: Ledger, record: Record, stream: BinaryIO, ancestors: bool, progress: Progress | None
) -> ExportReport:
    """Write the archive; the caller holds what is read. Raises Corrupt when something is missing:
    what was written by then does not pass for an archive."""
    decided = _plan(ledger, record, ancestors)
    info = Info(
        moment.to_micros(moment.now()), len(decided.waybills), len(decided.chunks), decided.size
    )
    writer = ArchiveWriter(stream, info)
    for waybill in decided.waybills:
        writer.waybill(waybill)
    done = 0
    for chunk in decided.chunks:
        content = ledger.library.verified(chunk.id)
        writer.chunk(chunk, content)
        done += len(content.plain)
        if progress is not None:
            progress(done, decided.size)
    writer.finish()
    return ExportReport(
        checkpoints=tuple(one.checkpoint() for one in decided.records),
        chunks=len(decided.chunks),
        content_bytes=decided.size,
        archive_bytes=writer.size,
    )


def _plan(ledger: Ledger, record: Record, ancestors: bool) -> _Plan:
    now = ledger.catalogue
    records = tuple(lineage(now, record)) if ancestors else (record,)
    waybills = tuple(waybill_of(ledger, one) for one in records)
    roots = [chunk for one in waybills for part in one.parts for chunk in named_by_part(part)]
    library = ledger.library
    chunks = tuple(walk(roots, lambda c: named_by_chunk(c.kind, library.get(c.id))))
    sizes = [library.size(chunk.id) for chunk in chunks]
    if None in sizes:
        missing = chunks[sizes.index(None)].id
        raise Corrupt(f"chunk {missing.hex()[:16]} is missing from the store")
    return _Plan(
        records=records, waybills=waybills, chunks=chunks, size=sum(size or 0 for size in sizes)
    )


def lineage(now: Catalogue, record: Record) -> Iterator[Record]:
    """A checkpoint and all its ancestors that are there, each after those it descends from."""
    wanted: dict[bytes, Record] = {}
    pending = [record]
    while pending:
        one = pending.pop()
        if one.commit.id not in wanted:
            wanted[one.commit.id] = one
            pending += [now.records[p] for p in one.commit.parents if p in now.records]
    done: set[bytes] = set()
    stack = [record]
    while stack:
        one = stack[-1]
        rolled = () if one.commit.rollback_of is None else (one.commit.rollback_of,)
        before = [
            wanted[origin]
            for origin in (*one.commit.parents, *rolled)
            if origin in wanted and origin not in done
        ]
        if before:
            stack += before
            continue
        stack.pop()
        if one.commit.id not in done:
            done.add(one.commit.id)
            yield one


def check_target(path: Path, *, replace: bool) -> None:
    """Raise Conflict when there is a file already and it is not to be replaced, and BadInput when
    something else has the name: a device or a pipe would be gone afterwards."""
    if not path.exists():
        return
    if not replace:
        raise Conflict(f"{path} exists already", hint="name another file, or replace it: --force")
    if not path.is_file():
        raise BadInput(f"{path} is no file", hint="name a file")


@contextmanager
def new_file(path: Path, *, replace: bool, disk: Disk | None = None) -> Iterator[BinaryIO]:
    """A file that gets its name when it is complete, and is durable at the end of the block; raises
    what `check_target` does."""
    disk = disk or Disk()
    if not path.name:  # of what a person typed nothing is left, or only a slash
        raise BadInput(f"{path} is no file", hint="name a file")
    draft = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        check_target(path, replace=replace)
        try:
            opened = open(create(draft), "wb")  # noqa: SIM115  closed below
        except FileNotFoundError:
            raise NotFound(f"there is no folder {path.parent}", hint="make it first") from None
        with opened as file:
            yield file
            file.flush()
            disk.sync_file(file.fileno(), "archive data")
        _give_name(draft, path, replace)
        with suppress(PermissionError):  # where one may add files, but not look
            disk.sync_directory(path.parent, "archive name")
    except FileExistsError:
        raise Conflict(f"{path} appeared meanwhile", hint="name another file") from None
    except OSError as error:
        raise from_path_error(error, "writing the archive") from error
    finally:
        with suppress(OSError):  # gone already, or the disk is
            draft.unlink()


def _give_name(draft: Path, path: Path, replace: bool) -> None:
    if not replace:
        try:
            os.link(draft, path)
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            # Sticks and some shares know no second name: the name is taken before the content.
            os.close(create(path))
    draft.replace(path)
