"""Pipes of which the session has both ends: made anew, with all that was not read yet.

Nothing is taken out of a pipe to look at it (`tee`), and what its files hold in their own buffers
is asked of a child.
"""

from __future__ import annotations

import codecs
import ctypes
import fcntl
import gc
import io
import os
import select
import stat
import struct
import termios
from typing import Any

from holdfast.session.worker.aside import ask
from holdfast.session.worker.kinds.contract import Recorder, Reduction
from holdfast.session.worker.kinds.pairs import LARGEST, End, Ends, Pair, Pairs
from holdfast.session.worker.kinds.reading import stateless
from holdfast.session.worker.kinds.wrapping import wrapped

READ, WRITE = 0, 1

_NONBLOCK = 2  # SPLICE_F_NONBLOCK
_DEADLINE = 10.0  # seconds for what takes none
_DONE = b"."

# `Any` below: the classes of `io` share no base that says what they can do.


def pipe(content: bytes, capacity: int, closed: tuple[int, ...]) -> Ends:
    """A pipe with this content. Raises OSError where it cannot be as large."""
    read, write = os.pipe()
    made = Ends(read, write)
    if fcntl.fcntl(write, fcntl.F_GETPIPE_SZ) != capacity:
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, capacity)
    os.set_blocking(write, False)
    with memoryview(content) as left:
        written = 0
        while written < len(left):
            written += os.write(write, left[written:])
    os.set_blocking(write, True)
    for side in closed:
        made.close(side)
    return made


def end(ends: Ends, side: int, blocking: bool, form: str, text: Any, held: bytes) -> Any:
    """The file of one end, with what it had read ahead, or had still to write."""
    fd = ends.take(side)
    os.set_blocking(fd, blocking)
    made = wrapped(io.FileIO(fd, "rb" if side == READ else "wb"), form, text, len(held))
    buffered = made if text is None else made.buffer
    if held and side == WRITE:
        buffered.write(held)
    elif held:
        _read_ahead(buffered, fd, held)
    return made


def _read_ahead(buffered: Any, fd: int, held: bytes) -> None:
    """Let a file read these bytes into its buffer, as if they had come through its pipe."""
    memory, kept = os.memfd_create("holdfast-pipe"), os.dup(fd)
    try:
        os.pwrite(memory, held, 0)
        os.dup2(memory, fd, inheritable=False)
        found = buffered.peek()
    finally:
        os.dup2(kept, fd, inheritable=False)
        os.close(kept)
        os.close(memory)
    if found != held:
        raise OSError("what it had read ahead does not fit")


class Pipe(Pair):
    """A pipe as a capture finds it."""

    content, capacity = b"", 0

    def __reduce__(self) -> Reduction:
        return pipe, (self.content, self.capacity, tuple(self.closed))


def is_pipe(fd: int, found: os.stat_result) -> bool:
    """Whether this is a pipe without a name."""
    return stat.S_ISFIFO(found.st_mode) and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")


def caught(fd: int) -> Pipe:
    """The pipe of a descriptor as it is now."""
    pair = Pipe()
    waiting = select.poll()
    waiting.register(fd, 0)
    for _, events in waiting.poll(0):
        if events & select.POLLHUP:
            pair.closed.add(WRITE)
        if events & select.POLLERR:
            pair.closed.add(READ)
    # A reader besides those that there are: the descriptor may be the one to write to.
    try:
        reader = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        pair.reason = f"a pipe that cannot be looked at: {error.strerror}"
        return pair
    try:
        (size,) = struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, bytes(4)))
        pair.capacity = fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ)
        if size > LARGEST:
            pair.reason = f"a pipe with more than {LARGEST} bytes in it"
        elif size and READ not in pair.closed:
            pair.content = _copied(reader, size, pair.capacity)
            if len(pair.content) != size:
                pair.reason = "a pipe whose content cannot be copied"
    except OSError as error:
        pair.reason = f"a pipe whose content cannot be copied: {error.strerror}"
    finally:
        os.close(reader)
    return pair


def _copied(reader: int, size: int, capacity: int) -> bytes:
    read, write = os.pipe()
    try:
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, capacity)
        done = ctypes.CDLL(None).tee(reader, write, ctypes.c_size_t(size), _NONBLOCK)
        return os.read(read, size) if done > 0 else b""
    finally:
        os.close(read)
        os.close(write)


def look(pairs: Pairs, fd: int) -> End:
    """The end that a descriptor is, with its flags."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    side = WRITE if flags & os.O_ACCMODE == os.O_WRONLY else READ
    return End(pairs.of(fd, caught), side, flags)


def reduce_end(recorder: Recorder, obj: Any, raw: io.FileIO, form: str, text: Any) -> Reduction:
    """The file of one end, which shares the pipe with that of the other."""
    pair, side, flags = recorder.pairs.end(raw.fileno(), look)
    reason = pair.reason
    if flags & os.O_ACCMODE == os.O_RDWR or flags & os.O_DIRECT:
        reason = "a pipe that is open for both, or has packets, is not brought back"
    elif form != "FileIO" and id(obj) not in pair.held:
        if recorder.threaded:
            reason = "a pipe that other threads may be reading or writing"
        elif text is not None and not stateless(obj.encoding):
            reason = f"what it holds of text in {obj.encoding} cannot be told"
        else:
            pair.held[id(obj)] = _held(obj, raw, side, text)
    held = pair.held.get(id(obj), b"")
    if reason or held is None:
        return recorder.hole(obj, reason or "what it has read ahead cannot be told")
    recorder.end(pair, side)
    recorder.note("a new pipe, with what was not read; no other process has it open")
    return end, (pair, side, not flags & os.O_NONBLOCK, form, text, held)


def _held(obj: Any, raw: io.FileIO, side: int, text: Any) -> bytes | None:
    """What a file has read ahead, or has still to write; None when it cannot be told."""

    def tell(write: int) -> None:
        data = _written(obj, raw) if side == WRITE else _rest(obj, raw, text)
        os.write(write, _DONE)  # or nothing was found out
        with memoryview(data) as left:
            while left:
                left = left[os.write(write, left) :]
        os.write(write, _DONE)

    told = ask(tell, _DEADLINE)
    whole = len(told) > 1 and told.startswith(_DONE) and told.endswith(_DONE)
    return told[1:-1] if whole else None


def _written(obj: Any, raw: io.FileIO) -> bytes:
    memory = os.memfd_create("holdfast-pipe")
    os.dup2(memory, raw.fileno())
    obj.flush()
    return os.pread(memory, os.fstat(memory).st_size, 0)


def _rest(obj: Any, raw: io.FileIO, text: Any) -> bytes:
    os.dup2(os.open(os.devnull, os.O_RDONLY), raw.fileno())
    if text is None:
        rest: bytes = obj.read()
        return rest
    behind: bytes = obj.buffer.read()
    for decoder in gc.get_referents(obj):
        if isinstance(decoder, (io.IncrementalNewlineDecoder, codecs.IncrementalDecoder)):
            begun, state = decoder.getstate()
            newline = type(decoder) is io.IncrementalNewlineDecoder and state & 1
            behind = (b"\r" if newline else b"") + bytes(begun) + behind
            decoder.setstate((b"", 0))
    words: str = obj.read()
    data = words.encode(obj.encoding, obj.errors)
    if data.decode(obj.encoding, obj.errors) != words:
        raise ValueError("it does not come back from its bytes")
    return data + behind
