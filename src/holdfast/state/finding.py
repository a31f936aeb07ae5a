"""Finding: states that are kept as files, by what a person calls them, and moving them unopened.

Nothing of a state is rebuilt here: its documents are read, compared and written again as they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import BadInput, NotFound, from_os_error
from holdfast.state import document as documents
from holdfast.state import lineage, names
from holdfast.state.document import Document
from holdfast.state.files import Directory
from holdfast.state.lineage import StateCheckpoint
from holdfast.state.registry import directories

_SUBJECT = re.compile(r"state/([^~]+)(?:~(\d*))?")
_NO_LIMIT = 1 << 62  # retention is the application's business


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint in a file, and where it is kept."""

    directory: Directory
    checkpoint: StateCheckpoint
    asked: str  # what it was called

    def read(self) -> Document:
        """What it holds. Raises NotFound, Corrupt or Unsupported."""
        return self.directory.read(self.checkpoint.id)


def is_stamp(text: str) -> bool:
    """Whether this can only be the id of a checkpoint in a file."""
    return names.time_of(text) is not None


def sessions(home: Path) -> Iterator[Directory]:
    """Every session in the directories that the registry knows."""
    for folder in directories(home):
        try:
            file_names = os.listdir(folder)
        except OSError as error:
            raise from_os_error(error, "listing states") from error
        for session in names.session_ids(file_names):
            yield Directory(folder, session)


def find(text: str, home: Path) -> Kept:
    """The checkpoint that a stamp, `state/NAME` or `state/NAME~2` means.

    Raises NotFound, or BadInput when several are called so.
    """
    if is_stamp(text):
        return _only(text, [each for each in _all(home) if each.checkpoint.id == text])
    match = _SUBJECT.fullmatch(text)
    if match is None:
        raise NotFound(
            f"no state in a file is called {text!r}",
            hint="state/NAME, state/NAME~1, or an id from `holdfast list --files`",
        )
    session = find_session(match[1], home)
    head = session.head()
    if head is None:
        raise NotFound(f"the session {match[1]} has no checkpoint")
    present = session.checkpoints()
    for _ in range(int(match[2] or 1) if match[2] is not None else 0):
        earlier = lineage.earlier(head, present)
        if earlier is None:
            raise NotFound(
                f"nothing before checkpoint {head.origin} of {match[1]} is kept",
                hint="`holdfast list --files` shows what is",
            )
        head = earlier
    return Kept(session, head, text)


def find_session(name: str, home: Path) -> Directory:
    """The one session of that name. Raises NotFound, or BadInput when there are several."""
    found = [each for each in sessions(home) if each.session_id == name]
    if not found:
        raise NotFound(
            f"no session {name} is kept as files", hint="`holdfast list --files` shows all"
        )
    if len(found) > 1:
        places = ", ".join(str(each.path) for each in found)
        raise BadInput(f"there are several sessions {name}: in {places}", hint="give an id instead")
    return found[0]


def rollback(session: Directory, to: StateCheckpoint | None = None) -> StateCheckpoint:
    """Bring an earlier checkpoint back as a new one: the head's parent unless one is given."""
    head = session.head()
    target = to or (lineage.earlier(head, session.checkpoints()) if head else None)
    if target is None:
        raise NotFound(
            f"{session.session_id} has nothing to go back to",
            hint="give the checkpoint to go to (`--to` on the command line)",
        )
    return session.back_to(target, limit=_NO_LIMIT)


def fork(kept: Kept, name: str) -> StateCheckpoint:
    """Begin a new session beside the first one. Raises Conflict when there is one of that name."""
    source = kept.read()
    target = Directory(kept.directory.path, names.check_session_id(name.removeprefix("state/")))
    first = documents.new(
        session_id=target.session_id,
        reason=f"fork of {kept.directory.session_id}",
        stage=source.stage,
        state_info=source.state_info,
        parent_session=kept.directory.session_id,
        state_version=source.state_version,
    )
    return target.create(first)


def _all(home: Path) -> Iterator[Kept]:
    for session in sessions(home):
        for checkpoint in session.checkpoints():
            yield Kept(session, checkpoint, checkpoint.id)


def _only(text: str, found: list[Kept]) -> Kept:
    if not found:
        raise NotFound(f"no checkpoint {text} in any file", hint="`holdfast list --files`")
    if len(found) > 1:
        whose = ", ".join(f"state/{each.directory.session_id}" for each in found)
        raise BadInput(f"several sessions have a checkpoint {text}: {whose}", hint="name one")
    return found[0]
