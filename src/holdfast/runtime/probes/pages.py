"""Dirty-page tracking: userfaultfd in write-protect-async mode, read by PAGEMAP_SCAN.

The probe protects a private mapping, writes to known pages and asks the kernel which they
were. Only the exact answer counts. The scan passes PM_SCAN_CHECK_WPASYNC: without it, memory
that was replaced in the meantime would be skipped in silence.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform

from holdfast.runtime.finding import Finding, Level, Status

# include/uapi/linux/userfaultfd.h and fs.h; the numbers are the kernel's promise.
_SYSCALLS = {"x86_64": 323, "aarch64": 282}
_USER_MODE_ONLY = 1
_API = 0xAA
_FEATURE_WP_UNPOPULATED = 1 << 13
_FEATURE_WP_ASYNC = 1 << 15
_REGISTER_MODE_WP = 2
_SCAN_WP_MATCHING = 1
_SCAN_CHECK_WPASYNC = 2
_PAGE_IS_WRITTEN = 2

_PAGE = mmap.PAGESIZE
_PAGES = 64
_WRITTEN = (3, 17, 18, 40)


class _Api(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("api", "features", "ioctls")]


class _Register(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "length", "mode", "ioctls")]


class _Region(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "end", "categories")]


class _Scan(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages"),
            *("category_inverted", "category_mask", "category_anyof_mask", "return_mask"),
        )
    ]


def _iowr(group: int, number: int, structure: type[ctypes.Structure]) -> int:
    return (3 << 30) | (ctypes.sizeof(structure) << 16) | (group << 8) | number


def probe_dirty_pages() -> Finding:
    machine = platform.machine()
    if platform.system() != "Linux" or machine not in _SYSCALLS:
        return judge_dirty_pages(f"not known for {platform.system()} on {machine}", None)
    try:
        return judge_dirty_pages(None, written_pages(_SYSCALLS[machine]))
    except OSError as error:
        return judge_dirty_pages(f"{error.strerror}", None)


def judge_dirty_pages(trouble: str | None, found: tuple[int, ...] | None) -> Finding:
    """Only the exact pages count: one that is missing would be lost from a checkpoint."""
    name, levels = "dirty pages", (Level.SESSION,)
    otherwise = "sessions compare and hash large buffers instead, which is slower"
    if trouble is not None:
        return Finding(name, Status.LIMITED, f"{trouble}; {otherwise}", enables=levels)
    if found != _WRITTEN:
        detail = f"pages {_WRITTEN} were written, the kernel reports {found}; {otherwise}"
        return Finding(name, Status.BROKEN, detail, enables=levels)
    detail = f"the kernel named exactly the {len(_WRITTEN)} written pages of {_PAGES}"
    return Finding(name, Status.OK, detail, enables=levels)


def written_pages(syscall: int) -> tuple[int, ...]:
    """The indexes of the pages that the kernel saw written, of a mapping of known writes.

    Raises OSError when the kernel or its settings do not allow it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, _PAGES * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.write(b"\1" * (_PAGES * _PAGE))
        window = (ctypes.c_char * (_PAGES * _PAGE)).from_buffer(memory)
        start = ctypes.addressof(window)
        tracker = _open_userfaultfd(libc, syscall)
        pagemap = -1
        try:
            # Closing the descriptor also ends the registration.
            pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            range_ = _Register(start, _PAGES * _PAGE, _REGISTER_MODE_WP, 0)
            _ioctl(libc, tracker, _iowr(_API, 0x00, _Register), range_)
            _scan(libc, pagemap, start)  # takes the first writes and arms every page
            for page in _WRITTEN:
                memory[page * _PAGE] = 2
            return _scan(libc, pagemap, start)
        finally:
            os.close(tracker)
            if pagemap >= 0:
                os.close(pagemap)
            del window  # or the mapping could not be closed
    finally:
        memory.close()


def _open_userfaultfd(libc: ctypes.CDLL, syscall: int) -> int:
    flags = os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY
    descriptor = int(libc.syscall(syscall, flags))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    try:
        wanted = _Api(_API, _FEATURE_WP_ASYNC | _FEATURE_WP_UNPOPULATED, 0)
        _ioctl(libc, descriptor, _iowr(_API, 0x3F, _Api), wanted)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _scan(libc: ctypes.CDLL, pagemap: int, start: int) -> tuple[int, ...]:
    regions = (_Region * _PAGES)()
    request = _Scan(
        size=ctypes.sizeof(_Scan),
        flags=_SCAN_WP_MATCHING | _SCAN_CHECK_WPASYNC,
        start=start,
        end=start + _PAGES * _PAGE,
        vec=ctypes.addressof(regions),
        vec_len=_PAGES,
        category_mask=_PAGE_IS_WRITTEN,
        return_mask=_PAGE_IS_WRITTEN,
    )
    count = _ioctl(libc, pagemap, _iowr(ord("f"), 16, _Scan), request)
    pages: list[int] = []
    for region in regions[:count]:
        pages.extend(range((region.start - start) // _PAGE, (region.end - start) // _PAGE))
    return tuple(pages)


def _ioctl(libc: ctypes.CDLL, descriptor: int, request: int, argument: ctypes.Structure) -> int:
    result = int(libc.ioctl(descriptor, ctypes.c_ulong(request), ctypes.byref(argument)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
