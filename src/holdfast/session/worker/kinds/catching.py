"""Descriptors that a copy of the process may not keep: while it had the end of a pipe, nobody at
the other end would see that the session has closed it."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.session.worker.kinds import pipes, socketpairs, sockets
from holdfast.session.worker.kinds.descriptors import descriptors
from holdfast.session.worker.kinds.pairs import Look


def ends() -> Iterator[tuple[int, Look]]:
    """Those of pipes and of connected sockets without a name, but for the session's own streams;
    and how each is looked at."""
    for fd, found in descriptors():
        if fd > 2 and pipes.is_pipe(fd, found):
            yield fd, pipes.look
        elif socketpairs.is_end(fd, found):
            yield fd, sockets.look
