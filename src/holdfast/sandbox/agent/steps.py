"""Steps: what a new process does before it is a program, as system calls and nothing else.

A child that has our memory until it is a program copies nothing of it, but cannot run Python: that
would change what is ours. `posix_spawn` begins such a child, which changes neither its user nor its
folder, and does more than we need: 3 ms in gVisor, where what we need takes 1. So a few
instructions of our own begin it and make the calls of a list.
"""

from __future__ import annotations

import ctypes
import os

from holdfast.sandbox.agent.small import (
    SIG_BLOCK,
    SIG_SETMASK,
    TYPE_CHECKING,
    pthread_sigmask,
    valid_signals,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# For one kind of processor. The child has our stack, and leaves it alone; its parent, one thread of
# ours, waits (CLONE_VFORK) until the child has a memory of its own or is gone.
_MACHINE = "x86_64"
_INSTRUCTIONS = bytes.fromhex(
    "53"  # push %rbx
    "4889fb"  # mov %rdi, %rbx            the list: a call and four arguments each
    "b838000000"  # mov $56, %eax         clone
    "bf11410000"  # mov $0x4111, %edi     CLONE_VM | CLONE_VFORK | SIGCHLD
    "31f6"  # xor %esi, %esi              the same stack
    "31d2"  # xor %edx, %edx
    "4531d2"  # xor %r10d, %r10d
    "4531c0"  # xor %r8d, %r8d
    "0f05"  # syscall
    "4885c0"  # test %rax, %rax
    "752d"  # jnz parent
    "488b03"  # step: mov (%rbx), %rax
    "488b7b08"  # mov 8(%rbx), %rdi
    "488b7310"  # mov 16(%rbx), %rsi
    "488b5318"  # mov 24(%rbx), %rdx
    "4c8b5320"  # mov 32(%rbx), %r10
    "0f05"  # syscall
    "488903"  # mov %rax, (%rbx)          what came of it, in the place of the call
    "4883c328"  # add $40, %rbx
    "4885c0"  # test %rax, %rax
    "79df"  # jns step
    "b83c000000"  # mov $60, %eax         exit
    "bf7f000000"  # mov $127, %edi
    "0f05"  # syscall
    "5b"  # parent: pop %rbx
    "c3"  # ret                           the child's number, or why there is none
)
_CALL = 5  # words of one
_ARGUMENTS = 4
_DUP2, _CHDIR, _SETSID, _SETRESUID, _SETRESGID = 33, 80, 112, 117, 119
_SIGPROCMASK, _EXECVE = 14, 59
_PROT_READ, _PROT_WRITE, _PROT_EXEC, _MAP_PRIVATE, _MAP_ANONYMOUS = 1, 2, 4, 2, 32
_NO_SIGNALS = ctypes.c_uint64(0)


def known() -> bool:
    """Whether there are instructions for this machine."""
    return os.uname().machine == _MACHINE


class Beginner:
    """The instructions, where they can be run."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._signals = valid_signals()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        size = len(_INSTRUCTIONS)
        flags = _MAP_PRIVATE | _MAP_ANONYMOUS
        place = libc.mmap(None, size, _PROT_READ | _PROT_WRITE, flags, -1, 0)
        if place != ctypes.c_void_p(-1).value:
            ctypes.memmove(place, _INSTRUCTIONS, size)
            if libc.mprotect(place, size, _PROT_READ | _PROT_EXEC) == 0:
                self._go = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(place)
                return
        raise OSError(ctypes.get_errno(), "there is no memory for instructions")

    def begin(self, steps: Steps) -> int:
        """The process that has taken these steps. Raises OSError when one of them failed, with the
        name that belongs to it; then there is none."""
        calls = steps.calls()
        # A child with our handlers would run them in our memory. And without this, ends of other
        # children that came meanwhile were sometimes never heard of in gVisor.
        before = pthread_sigmask(SIG_BLOCK, self._signals)
        try:
            pid: int = self._go(ctypes.addressof(calls))
        finally:
            pthread_sigmask(SIG_SETMASK, before)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        for number, name in enumerate(steps.names):
            came = calls[number * _CALL]
            if came < 0:
                os.waitpid(pid, 0)
                raise OSError(-came, os.strerror(-came), name or None)
        return pid


class Steps:
    """A list of system calls, one behind the other until one fails or the process is a program."""

    def __init__(self) -> None:
        self._words: list[int] = []
        self._held: list[object] = []  # what the calls point at
        self.names: list[str] = []

    def streams(self, *fds: int) -> None:
        """These are its standard streams; none of them is one of ours."""
        for target, fd in enumerate(fds):
            self._add(_DUP2, fd, target)

    def lead(self) -> None:
        """A session of its own."""
        self._add(_SETSID)

    def be(self, user: int) -> None:
        """Another user and group, for good, and with it nobody who has any capability."""
        self._add(_SETRESGID, user, user, user)
        self._add(_SETRESUID, user, user, user)

    def go_to(self, folder: str) -> None:
        self._add(_CHDIR, self._text(folder), name=folder)

    def execute(self, path: str, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Be the program, with no signal blocked. Raises ValueError for what no program can be
        given."""
        self._add(_SIGPROCMASK, SIG_SETMASK, ctypes.addressof(_NO_SIGNALS), 0, 8)
        if any(not name or "=" in name for name in environ):
            raise ValueError("no name of a variable")
        given = self._texts(argv)
        named = self._texts([f"{name}={value}" for name, value in environ.items()])
        self._add(_EXECVE, self._text(path), given, named, name=argv[0])

    def calls(self) -> ctypes.Array[ctypes.c_int64]:
        return (ctypes.c_int64 * len(self._words))(*self._words)

    def _add(self, call: int, *given: int, name: str = "") -> None:
        self._words += (call, *given, *(0,) * (_ARGUMENTS - len(given)))
        self.names.append(name)

    def _text(self, text: str) -> int:
        held = ctypes.create_string_buffer(_encoded(text))
        self._held.append(held)
        return ctypes.addressof(held)

    def _texts(self, texts: Sequence[str]) -> int:
        held = (ctypes.c_char_p * (len(texts) + 1))(*map(_encoded, texts), None)
        self._held.append(held)
        return ctypes.addressof(held)


def _encoded(text: str) -> bytes:
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError("a text that would be cut off")
    return data
