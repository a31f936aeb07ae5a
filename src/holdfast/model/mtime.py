"""When a file in a tar was changed: whole nanoseconds since 1970, in both directions.

Python's `tarfile` makes a float of it, and a float of today's seconds is exact to 240 nanoseconds
only. The header itself is text with as many digits as its writer had.
"""

from __future__ import annotations

import re
import tarfile

from holdfast.model.errors import Corrupt

HEADER = "mtime"  # among those of a pax archive
_SECOND = 10**9
_TEXT = re.compile(r"(-?)([0-9]+)(?:\.([0-9]*))?")
_MOST = 2**63  # nanoseconds, before and after 1970: more than any file system has


def to_text(nanoseconds: int) -> str:
    """What the header says of a time."""
    sign = "-" if nanoseconds < 0 else ""
    whole, rest = divmod(abs(nanoseconds), _SECOND)
    return f"{sign}{whole}.{rest:09d}" if rest else f"{sign}{whole}"


def of_member(member: tarfile.TarInfo) -> int:
    """The time of a member of an archive that was read. Raises Corrupt."""
    text = member.pax_headers.get(HEADER) or str(member.mtime)  # without one, they are whole
    found = _TEXT.fullmatch(text)
    if found is None:
        raise Corrupt(f"{member.name!r:.200} has no time that could be read: {text!r:.50}")
    sign, whole, rest = found.groups("")
    nanoseconds = int(whole[:20]) * _SECOND + int(rest[:9].ljust(9, "0"))
    if len(whole) > 20 or nanoseconds >= _MOST:
        raise Corrupt(f"{member.name!r:.200} has a time that no file has: {text:.50}")
    return -nanoseconds if sign else nanoseconds
