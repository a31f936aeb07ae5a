"""Subjects: what a thread of LangGraph and its namespaces are called on a store. Pure.

`state/langgraph/<thread>` is a thread, `.../ns/<namespace>` a subgraph in it, and `.../writes`
behind either has the writes that are pending. Threads and namespaces are called by any text, so
each is quoted into one segment; a text that is too long is told by its beginning and its hash.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from holdfast.model.subject import Kind, Subject

KIND: Kind = "state"
_ROOT = "langgraph"
_EMPTY = "%"  # nothing else is quoted to this
_CUT = "%="  # begins the hash of a text that was cut; nothing else is quoted to this
_LONGEST = 90


class Space(NamedTuple):
    """One namespace of one thread."""

    thread: str
    namespace: str = ""

    @property
    def subject(self) -> Subject:
        """What its checkpoints are checkpoints of."""
        return _subject(self._path)

    @property
    def writes(self) -> Subject:
        """What its pending writes are kept under."""
        return _subject(f"{self._path}/writes")

    @property
    def _path(self) -> str:
        thread = f"{_ROOT}/{_quoted(self.thread)}"
        return f"{thread}/ns/{_quoted(self.namespace)}" if self.namespace else thread


def is_cut(subject: Subject) -> bool:
    """Whether a subject's name tells only a part of what it stands for."""
    return _CUT in subject.name


def space_of(subject: Subject) -> Space | None:
    """The namespace that a subject stands for; None for anything else, pending writes too."""
    match subject.name.split("/"):
        case [root, thread] if root == _ROOT:
            return Space(_unquoted(thread))
        case [root, thread, "ns", namespace] if root == _ROOT:
            return Space(_unquoted(thread), _unquoted(namespace))
    return None


# The same few are asked for at every step of a graph.
@lru_cache(maxsize=1024)
def _subject(name: str) -> Subject:
    return Subject(KIND, name)


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    if not text:
        return _EMPTY
    segment = (
        quote(text, safe="", errors="surrogatepass")
        .replace("~", "%7E")
        .replace(".", "%2E", text in (".", ".."))
    )
    if len(segment) > _LONGEST:
        mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        segment = f"{segment[:40].rpartition('%')[0] or segment[:40]}{_CUT}{mark}"
    return segment


def _unquoted(segment: str) -> str:
    if segment == _EMPTY:
        return ""
    try:
        return unquote(segment, errors="surrogatepass")
    except UnicodeDecodeError:
        return unquote(segment)  # one that was cut, or that somebody made up
