"""Every operation of the table, wherever it is written."""

from __future__ import annotations

from holdfast.server import copies, looking, verbs

EVERY = (*verbs.OPERATIONS, *looking.OPERATIONS, *copies.OPERATIONS)
