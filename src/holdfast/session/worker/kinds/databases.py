"""Connections to SQLite: to a file, connected again; in memory, with all that is in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from holdfast.session.worker.kinds.contract import Recorder, Reduction
from holdfast.session.worker.placeholder import Placeholder

if TYPE_CHECKING:
    import sqlite3  # few sessions load it

# `Any` below: whatever the session set, and rows of all kinds.
_SETTINGS = ("isolation_level", "row_factory", "text_factory")


def connection(
    path: str, content: bytes, settings: dict[str, Any], lost: Any = None, begun: bool = False
) -> sqlite3.Connection:
    """A connection, without a path to a database in memory. Raises FileNotFoundError."""
    import sqlite3

    if path and not os.path.exists(path):  # SQLite would make an empty one
        raise FileNotFoundError(f"there is no database {path} any more")
    made = sqlite3.connect(path or ":memory:")
    if content:
        made.deserialize(content)
    for name, value in settings.items():
        setattr(made, name, value)
    if begun:
        made.execute("begin")
    return made


def reduce_connection(recorder: Recorder, obj: sqlite3.Connection) -> Reduction:
    """What can be asked of a connection; the functions that it was given cannot."""
    files = {name: path for _, name, path in _asked(obj, "PRAGMA database_list")}
    others = files.keys() - {"main", "temp"}
    if others:
        return recorder.hole(obj, f"other databases are attached: {', '.join(sorted(others))}")
    # In memory there is no path, or one that SQLite made up, which does not begin with `/`.
    path = files["main"] if os.path.isabs(files["main"]) else ""
    if path and obj.in_transaction:
        return recorder.hole(obj, "it is in the middle of a transaction")
    content = b"" if path else obj.serialize()
    recorder.check_size(len(content))
    settings = {name: getattr(obj, name) for name in _SETTINGS}
    names = _given(obj)
    if not names:
        recorder.note("connected again")
        begun = obj.in_transaction
        if begun:
            recorder.note("what it wrote since its last commit can no longer be rolled back")
        return connection, (path, content, settings, None, begun)
    lost = Placeholder("function of SQLite", f"give these to the connection again: {names}")
    return connection, (path, content, settings, lost, obj.in_transaction)


def _given(obj: sqlite3.Connection) -> str:
    """What was added to the functions and collations of SQLite itself."""
    import sqlite3

    def known(connection: sqlite3.Connection) -> set[str]:
        functions = _asked(connection, "select name || '/' || narg from pragma_function_list")
        orders = _asked(connection, "select name from pragma_collation_list")
        return {name for (name,) in [*functions, *orders]}

    plain = sqlite3.connect(":memory:")
    try:
        return ", ".join(sorted(known(obj) - known(plain)))
    finally:
        plain.close()


def _asked(obj: sqlite3.Connection, question: str) -> list[tuple[Any, ...]]:
    """Rows as they are, whatever the session makes of rows and texts."""
    cursor = obj.cursor()
    cursor.row_factory = None
    factory, obj.text_factory = obj.text_factory, str
    try:
        return cursor.execute(question).fetchall()
    finally:
        obj.text_factory = factory
