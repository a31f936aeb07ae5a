"""Readers and writers of CSV, compressed files, and small objects of the standard library whose
parts can be read although pickle refuses them."""

from __future__ import annotations

import functools
import gc
import itertools
import os
from typing import TYPE_CHECKING, Any

from holdfast.session.worker.aside import ask
from holdfast.session.worker.threads import alone

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduction

# `Any` below: rows of everything.

_MOST_LINES = 1 << 20  # a reader counts what it has read by reading as many lines again


# -- csv -------------------------------------------------------------------------------------


def reader(lines: Any, dialect: dict[str, Any], count: int) -> Any:
    """A `csv.reader` that has read so many lines."""
    import csv

    made = csv.reader(itertools.chain([""] * count, lines), **dialect)
    for _ in range(count):
        next(made)
    return made


def reduce_reader(recorder: Recorder, obj: Any) -> Reduction:
    """By what it reads from; between two rows there is nothing else to it."""
    lines = next(each for each in gc.get_referents(obj) if hasattr(type(each), "__next__"))
    if obj.line_num > _MOST_LINES:
        recorder.note("its line_num begins anew")
    return reader, (lines, _dialect(obj.dialect), obj.line_num % _MOST_LINES)


def writer(file: Any, dialect: dict[str, Any]) -> Any:
    """A `csv.writer`."""
    import csv

    return csv.writer(file, **dialect)


def reduce_writer(recorder: Recorder, obj: Any) -> Reduction:
    """By the file that it writes to."""
    write = next(each for each in gc.get_referents(obj) if callable(each))
    return writer, (write.__self__, _dialect(obj.dialect))


def _dialect(dialect: Any) -> dict[str, Any]:
    names = ("delimiter", "quotechar", "doublequote", "escapechar", "skipinitialspace",
             "lineterminator", "quoting", "strict")  # fmt: skip
    return {name: getattr(dialect, name) for name in names}


# -- compressed files ------------------------------------------------------------------------


def unpacked(module: str, path: str, position: int, text: Any) -> Any:
    """A compressed file that is read, at its position. Raises OSError."""
    import importlib

    kinds = {"gzip": "GzipFile", "bz2": "BZ2File", "lzma": "LZMAFile"}
    made = getattr(importlib.import_module(module), kinds[module])(path, "rb")
    if text is None:
        made.seek(position)
        return made
    import io

    encoding, errors, line_buffering = text
    made = io.TextIOWrapper(made, encoding, errors, None, line_buffering)
    made.seek(position)
    return made


def reduce_unpacked(recorder: Recorder, obj: Any, text: Any = None) -> Reduction:
    """A compressed file, if it is read from a path."""
    inner = obj if text is None else obj.buffer
    name = path_of(inner)
    if inner.closed:
        return recorder.hole(obj, "it is closed; open it again")
    if name is None or inner.writable() or not os.path.exists(name):
        return recorder.hole(obj, "it is not a file that is read by its path; open it again")
    recorder.note("opened again, at its position")
    return unpacked, (type(inner).__module__, os.path.abspath(name), obj.tell(), text)


def path_of(obj: Any) -> str | None:
    """The path of a compressed file."""
    found = getattr(obj, "name", None) or getattr(getattr(obj, "_fp", None), "name", None)
    return found if isinstance(found, str) else None


def tar(path: str) -> Any:
    """A tar file that is read. Raises OSError."""
    import tarfile

    return tarfile.open(path)


def reduce_tar(recorder: Recorder, obj: Any) -> Reduction:
    """By its path, which is looked through again."""
    if obj.mode != "r" or obj.closed or not os.path.exists(str(obj.name)):
        return recorder.hole(obj, "it is not a tar file that is read by its path; open it again")
    recorder.note("opened again")
    return tar, (os.path.abspath(obj.name),)


# -- others ----------------------------------------------------------------------------------


def folder(name: str, ignore: bool) -> Any:
    """A temporary folder, empty where it is gone."""
    import tempfile

    os.makedirs(name, 0o700, exist_ok=True)
    kind = tempfile.TemporaryDirectory
    made: Any = kind.__new__(kind)
    made.name, made._ignore_cleanup_errors, made._delete = name, ignore, True
    import weakref

    options = {"warn_message": f"Implicitly cleaning up {made!r}", "ignore_errors": ignore}
    made._finalizer = weakref.finalize(made, kind._cleanup, name, **options)  # type: ignore[attr-defined]
    return made


def reduce_folder(recorder: Recorder, obj: Any) -> Reduction:
    """By its name: what is in it belongs to the file system."""
    recorder.note("its folder is the one of that name, and empty where that is gone")
    return folder, (obj.name, obj._ignore_cleanup_errors)


def temporary(file: Any, name: str, delete: bool) -> Any:
    """A temporary file with a name, which is removed when it is closed."""
    import tempfile

    return tempfile._TemporaryFileWrapper(file, name, delete)


def reduce_temporary(recorder: Recorder, obj: Any) -> Reduction:
    """By the file inside."""
    own = vars(obj)
    return temporary, (own["file"], own["name"], own.get("delete", True))


def rest(items: list[Any]) -> Any:
    """An iterator over what was left."""
    return iter(items)


def reduce_rest(recorder: Recorder, obj: Any) -> Reduction:
    """What a generator of compiled code still gives, as a copy of the process finds out: nothing
    is taken from the session's own."""
    import pickle

    data = _rest.get(id(obj))
    if data is None and recorder.apart:
        data = _rest[id(obj)] = pickle.dumps([*obj], 5)
    elif data is None:
        data = ask(lambda write: _told(write, obj), _PATIENCE, None if alone() else _PATIENCE)
    if not data:
        return recorder.hole(obj, "what it still gives could not be found out; make it again")
    return rest, (pickle.loads(data),)


def _told(write: int, obj: Any) -> None:
    import pickle

    with memoryview(pickle.dumps([*itertools.islice(obj, _MOST_LINES)], 5)) as left:
        while left:
            left = left[os.write(write, left) :]


_PATIENCE = 5.0  # seconds
_rest: dict[int, bytes] = {}  # in a copy of the process, which ends after its capture


def queue(kind: type, items: list[Any]) -> Any:
    """A `SimpleQueue` with what waits in it."""
    made: Any = kind()
    for each in items:
        made.put(each)
    return made


def reduce_queue(recorder: Recorder, obj: Any) -> Reduction:
    """What waits in it can only be taken out, and is put back at once."""
    if obj.empty():
        return type(obj), ()
    if not alone():
        return recorder.hole(obj, "what it holds cannot be read while other threads run")
    items = [obj.get_nowait() for _ in range(obj.qsize())]
    for each in items:
        obj.put(each)
    return queue, (type(obj), items)


def threads(workers: int, prefix: str, initializer: Any, arguments: tuple[Any, ...]) -> Any:
    """A pool of threads, which it begins when there is work."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(workers, prefix, initializer, arguments)


def reduce_threads(recorder: Recorder, obj: Any) -> Reduction:
    """A pool without work: its threads are begun again."""
    if obj._shutdown:
        return recorder.plain(obj)
    if obj._threads and (obj._work_queue.qsize() or obj._idle_semaphore._value < len(obj._threads)):
        return recorder.hole(obj, "it has work under way: wait for its results first")
    form = (obj._max_workers, obj._thread_name_prefix, obj._initializer, obj._initargs)
    return threads, form


def compared(compare: Any, value: Any) -> Any:
    """A key of `functools.cmp_to_key`."""
    return functools.cmp_to_key(compare)(value)


def comparison(compare: Any) -> Any:
    """What makes keys by a function that compares."""
    return functools.cmp_to_key(compare)


def reduce_comparison(recorder: Recorder, obj: Any) -> Reduction:
    """By its function, and the value if it is a key."""
    compare, *value = (each for each in gc.get_referents(obj) if each is not type(obj))
    return (compared, (compare, *value)) if value else (comparison, (compare,))


def flat(array: Any, index: int) -> Any:
    """numpy's iterator over all of an array."""
    made = array.flat
    for _ in range(index):
        next(made)
    return made


def reduce_flat(recorder: Recorder, obj: Any) -> Reduction:
    """By its array and its place."""
    if obj.index > _MOST_LINES:
        return recorder.hole(obj, "it is far into its array; make it again with array.flat")
    return flat, (obj.base, obj.index)


def finished(result: Any, error: BaseException | None) -> Any:
    """A future of asyncio that is done."""
    import asyncio

    made: Any = asyncio.Future(loop=asyncio.new_event_loop())
    if error is None:
        made.set_result(result)
    else:
        made.set_exception(error)
    return made


def reduce_future(recorder: Recorder, obj: Any) -> Reduction:
    """A future or a task that is done, as a future."""
    if not obj.done() or obj.cancelled():
        return recorder.hole(obj, "it is not done: await it first")
    error = obj.exception()
    return finished, (None if error else obj.result(), error)


# -- sqlite3 ---------------------------------------------------------------------------------


def row(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """A row of SQLite."""
    import sqlite3

    quoted = ('? as "' + name.replace('"', '""') + '"' for name in names)
    cursor = sqlite3.connect(":memory:").execute(f"select {', '.join(quoted)}", [None] * len(names))
    return sqlite3.Row(cursor, values)


def reduce_row(recorder: Recorder, obj: Any) -> Reduction:
    """By its names and values."""
    return row, (tuple(obj.keys()), tuple(obj))


def cursor(connection: Any, settings: dict[str, Any]) -> Any:
    """A cursor without rows."""
    made = connection.cursor()
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def reduce_cursor(recorder: Recorder, obj: Any) -> Reduction:
    """One that has no rows left to give."""
    if obj.description is not None:
        return recorder.hole(obj, "it may have rows left: take them with fetchall() first")
    settings = {name: getattr(obj, name) for name in ("arraysize", "row_factory")}
    return cursor, (obj.connection, settings)
