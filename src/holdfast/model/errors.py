"""Every error Holdfast raises, grouped by what the caller will do about it.

    HoldfastError            fault         1   something broke that nobody foresaw
    ├── UsageError           usage         2   the call itself is wrong: fix the call
    ├── NotFound             not_found     3   no such subject, checkpoint, part or file
    ├── Conflict             conflict      4   somebody else was first: look, then retry
    │   ├── Owned            conflict      4   somebody runs the subject: ask its owner
    │   ├── Busy             busy          4   a limit is reached: try again later
    │   └── LeaseLost        lease_lost    4   the right to advance a subject is gone
    ├── Unsupported          unsupported   5   this machine, engine or version cannot
    ├── Corrupt              corrupt       6   bytes are not what was written
    ├── CaptureFailed        capture_failed 7  the subject goes on as it was
    ├── Denied               denied        8   permission, token, key or trust is missing
    ├── Partial              partial       9   done, but the report has items to look at
    ├── StorageFull          storage_full 10   make room, then retry
    └── BadInput             bad_input    11   the data given cannot be used

An error carries its data as attributes, builds its message in `__str__`, and has a
stable `kind`, a `hint` that says what to do next, an exit code and an HTTP status.
"""

from __future__ import annotations

import errno
from typing import ClassVar


class HoldfastError(Exception):
    """Base of every error Holdfast raises; by itself, an unforeseen fault."""

    kind: ClassVar[str] = "fault"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.request_id: str | None = None  # under which a server's log speaks of it
        if hint:
            self.add_note(f"hint: {hint}")  # so that a plain traceback shows it, too

    def __str__(self) -> str:
        return self.message


class UsageError(HoldfastError):
    """The call itself is wrong."""

    kind = "usage"
    exit_code = 2
    http_status = 400


class NotFound(HoldfastError):
    """There is no such thing, or no longer."""

    kind = "not_found"
    exit_code = 3
    http_status = 404


class Conflict(HoldfastError):
    """Somebody else holds or changed the thing first."""

    kind = "conflict"
    exit_code = 4
    http_status = 409


class Owned(Conflict):
    """Something runs the subject now, and only its owner may advance it."""

    def __init__(self, subject: str, owner: str, url: str | None) -> None:
        where = f" ({url})" if url and "://" in url else ""  # one that a person can open
        super().__init__(
            f"{subject} is in use by {owner}{where}",
            hint="ask its owner, end it there, or fork a checkpoint of it",
        )
        self.subject = subject
        self.owner = owner
        self.url = url


class Busy(Conflict):
    """A limit is reached: nothing is wrong with the request, and it may be made again later."""

    kind = "busy"
    http_status = 429


class LeaseLost(Conflict):
    """The right to advance a subject was lost; nothing more may be committed under it."""

    kind = "lease_lost"


class Unsupported(HoldfastError):
    """This machine, engine, format or version cannot do what was asked."""

    kind = "unsupported"
    exit_code = 5
    http_status = 501


class Corrupt(HoldfastError):
    """Bytes in the store are not the bytes that were written."""

    kind = "corrupt"
    exit_code = 6
    http_status = 500

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(
            message, hint=hint or "run `holdfast verify --deep` to see what it affects"
        )
        self.where = where


class CaptureFailed(HoldfastError):
    """A checkpoint could not be taken; its subject goes on as it was."""

    kind = "capture_failed"
    exit_code = 7
    http_status = 500


class Denied(HoldfastError):
    """Permission, token, key or trust is missing."""

    kind = "denied"
    exit_code = 8
    http_status = 403


class Partial(HoldfastError):
    """The work was done, with items in the report that somebody should look at."""

    kind = "partial"
    exit_code = 9
    http_status = 200


class StorageFull(HoldfastError):
    """The disk, the quota or the bucket is full. What was committed before is still there."""

    kind = "storage_full"
    exit_code = 10
    http_status = 507


class BadInput(HoldfastError):
    """Data that was given cannot be used."""

    kind = "bad_input"
    exit_code = 11
    http_status = 422


def all_kinds() -> dict[str, type[HoldfastError]]:
    """Map each stable `kind` to the class that carries it."""
    found: dict[str, type[HoldfastError]] = {}
    pending: list[type[HoldfastError]] = [HoldfastError]
    while pending:
        cls = pending.pop()
        found.setdefault(cls.kind, cls)  # a subclass of the same kind comes later
        pending.extend(cls.__subclasses__())
    return found


def from_os_error(error: OSError, doing: str) -> HoldfastError:
    """Say an operating-system error in Holdfast's words; `doing` is e.g. "writing a pack"."""
    where = f" ({error.filename})" if error.filename else ""
    reason = error.strerror or str(error)
    text = f"{doing}: {reason}{where}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StorageFull(
                text, hint="free some space, or run `holdfast prune`, then try again"
            )
        case errno.EROFS:
            return Denied(
                text, hint="the file system is read-only; use another store or remount it"
            )
        case errno.EACCES | errno.EPERM:
            return Denied(
                text,
                hint="check who owns that directory, or set HOLDFAST_HOME or HOLDFAST_STORE",
            )
        case errno.ENOENT:
            return NotFound(text)
        case errno.EMFILE | errno.ENFILE:
            return HoldfastError(text, hint="raise the limit of open files (`ulimit -n`)")
        case errno.EIO:
            return HoldfastError(text, hint="the disk reports errors; check `dmesg` and the drive")
        case _:
            return HoldfastError(text)


_WAYS = {
    errno.ENOTDIR: "a file is in the way: name a directory",
    errno.EISDIR: "it is a directory: name a file",
    errno.ENAMETOOLONG: "name a shorter path",
    errno.ELOOP: "symbolic links lead in a circle there: name another path",
}


def from_path_error(error: OSError, doing: str) -> HoldfastError:
    """The same of a path that somebody chose: one that cannot lead anywhere is bad input."""
    told = from_os_error(error, doing)
    way = _WAYS.get(error.errno or 0)
    return told if way is None else BadInput(str(told), hint=way)
