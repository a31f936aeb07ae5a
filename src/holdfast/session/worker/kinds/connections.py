"""Files and databases of libraries: opened again at their place, while they are there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduction

# `Any` below: objects of libraries that only some sessions load.

_CLOSED = "it is closed; open it again"


def _present(path: str) -> str:
    if not os.path.exists(path):  # the library would make an empty one, or say less
        raise FileNotFoundError(f"there is no file {path} any more")
    return path


# -- h5py ------------------------------------------------------------------------------------


def hdf(path: str, mode: str, content: bytes | None) -> Any:
    """A file of h5py, opened again; with its content when it was only in memory."""
    import h5py  # type: ignore[import-not-found,unused-ignore]

    if content is None:
        return h5py.File(_present(path), mode)
    made = h5py.h5f.open_file_image(content)
    return h5py.File(made)


def closed_hdf(path: str) -> Any:
    """A file of h5py that has been closed."""
    import h5py

    made = h5py.File(path, "w", driver="core", backing_store=False)
    made.close()
    return made


def reduce_hdf(recorder: Recorder, obj: Any) -> Reduction:
    """A file, flushed so that what it holds is there; nothing is emptied when it is opened."""
    if not obj:
        return closed_hdf, ("closed",)
    if obj.mode != "r" and not recorder.apart:
        obj.flush()
    if obj.driver == "core" and not os.path.exists(obj.filename):
        content = bytes(obj.id.get_file_image())
        recorder.check_size(len(content))
        return hdf, (obj.filename, obj.mode, content)
    recorder.note("opened again, at its path")
    return hdf, (os.path.abspath(obj.filename), obj.mode, None)


def hdf_part(file: Any, name: str) -> Any:
    """A group or a dataset of a file."""
    return file[name]


def reduce_hdf_part(recorder: Recorder, obj: Any) -> Reduction:
    """By its file and its name there."""
    if not obj:
        return recorder.hole(obj, _CLOSED)
    # Each question makes another file object, with one file below.
    return hdf_part, (_file_of(recorder, obj), obj.name)


def _file_of(recorder: Recorder, obj: Any) -> Any:
    """The session's own file object, if it has one in a variable."""
    file = obj.file
    for value in recorder.namespace.values():
        if type(value) is type(file) and value and value == file:
            return value
    return file


# -- netCDF4 ---------------------------------------------------------------------------------


def net_cdf(path: str, mode: str) -> Any:
    """A file of netCDF4, opened again."""
    import netCDF4  # type: ignore[import-not-found,unused-ignore]

    return netCDF4.Dataset(_present(path), mode)


def reduce_net_cdf(recorder: Recorder, obj: Any) -> Reduction:
    """A file, written out so that what it holds is there."""
    if not obj.isopen():
        return recorder.hole(obj, _CLOSED)
    if getattr(obj, "_inmemory", False) or not os.path.exists(obj.filepath()):
        return recorder.hole(obj, "it is in memory alone; write it to a file")
    writes = _writable(obj)
    if writes and not recorder.apart:
        obj.sync()
    recorder.note("opened again, at its path")
    return net_cdf, (os.path.abspath(obj.filepath()), "a" if writes else "r")


def _writable(obj: Any) -> bool:
    try:
        obj.set_fill_on()  # it is the default, and refused when the file is only read
    except RuntimeError:
        return False
    return True


def net_cdf_part(dataset: Any, kind: str, name: str) -> Any:
    """A variable or a dimension of a file."""
    return getattr(dataset, kind)[name]


def reduce_net_cdf_part(recorder: Recorder, obj: Any) -> Reduction:
    """By its file and its name there."""
    kind = "dimensions" if type(obj).__name__ == "Dimension" else "variables"
    group = obj.group()
    if getattr(group, "parent", None) is not None:
        return recorder.hole(obj, "it is in a group; ask its Dataset for it again")
    return net_cdf_part, (group, kind, obj.name)


# -- duckdb ----------------------------------------------------------------------------------


def duck(path: str, files: dict[str, bytes], read_only: bool) -> Any:
    """A connection of duckdb: to a file connected again, in memory with its tables."""
    import duckdb  # type: ignore[import-not-found,unused-ignore]

    if path:
        try:
            return duckdb.connect(_present(path), read_only)
        except duckdb.Error as error:
            raise OSError(f"{error}") from None
    made = duckdb.connect()
    if files:
        _imported(made, files)
    return made


def _imported(made: Any, files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            # The scripts name the folder that they were written to.
            text = content.replace(_FOLDER, os.fsencode(folder)) if name == "load.sql" else content
            Path(folder, name).write_bytes(text)
        made.execute(f"IMPORT DATABASE '{folder}'")


_FOLDER = b"@holdfast-folder@"


def reduce_duck(recorder: Recorder, obj: Any) -> Reduction:
    """What can be asked of a connection; its functions, and what was registered, cannot."""
    if recorder.apart:
        return recorder.hole(obj, "duckdb does not live through a copy of its process; close it")
    ask = obj.cursor()
    (names,) = zip(*ask.execute("select database_name from duckdb_databases() where not internal"
                                ).fetchall(), strict=True)  # fmt: skip
    path = ask.execute("select path from duckdb_databases() where not internal").fetchone()[0]
    if len(names) > 1:
        return recorder.hole(obj, f"other databases are attached: {', '.join(names)}")
    temporary = ask.execute(
        "select function_name from duckdb_functions() where function_type = 'scalar' "
        "and not internal and macro_definition is null"
    ).fetchall()
    views = ask.execute("select view_name from duckdb_views() where not internal and temporary")
    lost = [f"the function {name}" for (name,) in temporary]
    lost += [f"the registered view {name}" for (name,) in views.fetchall()]
    ask.close()
    if lost:
        return recorder.hole(obj, f"it has {', '.join(sorted({*lost}))}; connect again, and give "
                                  "it these again")  # fmt: skip
    if path:
        obj.execute("CHECKPOINT")
        recorder.note("connected again, to its file")
        return duck, (os.path.abspath(path), {}, False)
    files = _exported(obj)
    recorder.check_size(sum(map(len, files.values())))
    recorder.note("connected again, with its tables and views")
    return duck, ("", files, False)


def _exported(obj: Any) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        obj.cursor().execute(f"EXPORT DATABASE '{folder}' (FORMAT parquet)")
        found = {each.name: each.read_bytes() for each in Path(folder).iterdir()}
        found["load.sql"] = found["load.sql"].replace(os.fsencode(folder), _FOLDER)
        return found


def duck_type(text: str) -> Any:
    """A type of duckdb."""
    import duckdb

    return duckdb.type(text)


def reduce_duck_type(recorder: Recorder, obj: Any) -> Reduction:
    """By its name."""
    return duck_type, (str(obj),)


# -- SQLAlchemy ------------------------------------------------------------------------------


def connection(engine: Any) -> Any:
    """A connection of SQLAlchemy. Raises OSError."""
    from sqlalchemy import exc  # type: ignore[import-not-found,unused-ignore]

    try:
        return engine.connect()
    except exc.SQLAlchemyError as error:
        raise OSError(f"{error}") from None


def reduce_connection(recorder: Recorder, obj: Any) -> Reduction:
    """Connected again, unless it is in the middle of a transaction."""
    if obj.closed:
        return recorder.hole(obj, _CLOSED)
    if obj.in_transaction():
        return recorder.hole(obj, "it is in the middle of a transaction: commit() first")
    recorder.note("connected again")
    return connection, (obj.engine,)


def reduce_session(recorder: Recorder, obj: Any) -> Reduction:
    """Its objects belong to it, and it to its database."""
    return recorder.hole(obj, "a session of SQLAlchemy is its database's: open it again, and load "
                              "what it had")  # fmt: skip
