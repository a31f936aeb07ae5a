"""What the kernel knows about pages that were written to. No privileges are needed.

A userfaultfd in the mode WP_ASYNC write-protects pages; the kernel lifts the protection of a page
by itself when it is written to, and PAGEMAP_SCAN lists those and protects them again. Memory that
was replaced (freed and mapped anew, moved) is no longer watched, and the scan says so: that is an
error and never an empty list.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform

PAGE = mmap.PAGESIZE
Runs = list[tuple[int, int]]  # first byte, and the byte after the last

_USERFAULTFD = {"x86_64": 323, "aarch64": 282}
_USER_MODE_ONLY = 1
_FEATURES = 1 << 13 | 1 << 15  # WP_UNPOPULATED, WP_ASYNC: Linux 6.7
_WRITTEN = 2
_WP_MATCHING, _CHECK_WPASYNC = 1, 2
_MODE_WP = 2
_ROOM = 1 << 14  # runs that one call lists


def _fields(*names: str) -> list[tuple[str, type[ctypes.c_uint64]]]:
    return [(name, ctypes.c_uint64) for name in names]


class _Api(ctypes.Structure):
    _fields_ = _fields("api", "features", "ioctls")


class _Range(ctypes.Structure):
    _fields_ = _fields("start", "length")


class _Register(ctypes.Structure):
    _fields_ = _fields("start", "length", "mode", "ioctls")


class _Protect(ctypes.Structure):
    _fields_ = _fields("start", "length", "mode")


class _Scan(ctypes.Structure):
    _fields_ = _fields(
        "size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages",
        "category_inverted", "category_mask", "category_anyof_mask", "return_mask",
    )  # fmt: skip


class _Region(ctypes.Structure):
    _fields_ = _fields("start", "end", "categories")


def _code(direction: int, kind: int, number: int, argument: type[ctypes.Structure]) -> int:
    return direction << 30 | ctypes.sizeof(argument) << 16 | kind << 8 | number


_API = _code(3, 0xAA, 0x3F, _Api)
_REGISTER = _code(3, 0xAA, 0x00, _Register)
_UNREGISTER = _code(2, 0xAA, 0x01, _Range)
_WRITEPROTECT = _code(3, 0xAA, 0x06, _Protect)
_PAGEMAP_SCAN = _code(3, ord("f"), 16, _Scan)
_libc = ctypes.CDLL(None, use_errno=True)


def _ioctl(fd: int, code: int, argument: ctypes.Structure) -> int:
    found: int = _libc.ioctl(fd, ctypes.c_ulong(code), ctypes.byref(argument))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found


# For a worker that CRIU is to freeze: it knows no userfaultfd.
SWITCH = "HOLDFAST_PAGE_TRACKING"


class Pagemap:
    """Watches pages of this process. Raises OSError where the kernel cannot.

    It belongs to the process that made it: in a fork of it, it would speak of the other's memory.
    """

    def __init__(self) -> None:
        self._fd = self._pages = -1
        if os.environ.get(SWITCH) == "off":
            raise OSError(f"{SWITCH} says off")
        number = _USERFAULTFD.get(platform.machine())
        if number is None:
            raise OSError(f"unknown on {platform.machine()}")
        flags = os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY
        self._fd = _libc.syscall(number, flags)
        if self._fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        try:
            _ioctl(self._fd, _API, _Api(0xAA, _FEATURES, 0))
            self._pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            self._found = (_Region * _ROOM)()
            self._scan = self._asking()
            self._try()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for fd in (self._fd, self._pages):
            if fd >= 0:
                os.close(fd)
        self._fd = self._pages = -1

    def __del__(self) -> None:
        self.close()

    def watch(self, start: int, end: int, protect: bool = True) -> None:
        """From now on, or with `protect=False` from the next look on. Addresses are of pages."""
        _ioctl(self._fd, _REGISTER, _Register(start, end - start, _MODE_WP, 0))
        if protect:
            _ioctl(self._fd, _WRITEPROTECT, _Protect(start, end - start, 1))

    def forget(self, start: int, end: int) -> None:
        """Watch no longer; writing costs what it did before."""
        _ioctl(self._fd, _UNREGISTER, _Range(start, end - start))

    def written(self, start: int, end: int) -> Runs:
        """What was written to since the last time. Raises OSError when any of it is not watched."""
        asked, runs = self._scan, Runs()
        asked.start, asked.end = start, end
        while start < end:
            count = _ioctl(self._pages, _PAGEMAP_SCAN, asked)
            if count:
                runs += [(run.start, run.end) for run in self._found[:count]]
            if asked.walk_end <= start:
                raise OSError("the scan of pages does not come to an end")
            asked.start = start = asked.walk_end
        return runs

    def _asking(self) -> _Scan:
        """What is asked each time, but for the place."""
        asked = _Scan()
        asked.size = ctypes.sizeof(_Scan)
        asked.flags = _WP_MATCHING | _CHECK_WPASYNC
        asked.vec, asked.vec_len = ctypes.addressof(self._found), _ROOM
        # Nothing else may be asked for: with other categories, pages that were given back to the
        # kernel, and are zero since, would not be listed.
        asked.category_mask = asked.return_mask = _WRITTEN
        return asked

    def _try(self) -> None:
        """See whether it does what it says, on two pages of our own."""
        with mmap.mmap(-1, 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as own:
            anchor = ctypes.c_char.from_buffer(own)
            start = ctypes.addressof(anchor)
            try:
                own[0] = own[PAGE] = 1
                self.watch(start, start + 2 * PAGE)
                before = self.written(start, start + 2 * PAGE)
                own[PAGE] = 2
                after = self.written(start, start + 2 * PAGE)
                self.forget(start, start + 2 * PAGE)
            finally:
                del anchor
        if before or after != [(start + PAGE, start + 2 * PAGE)]:
            raise OSError("this kernel does not tell which pages were written to")
