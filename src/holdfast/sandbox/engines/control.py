"""The control socket of a gVisor sandbox: what `runsc` says there, without starting `runsc`.

Starting the command costs more than most of what it asks for. The messages are an internal matter
of each release, so they are used with the releases they are known of, and the command otherwise.
Blocking.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.model.errors import HoldfastError
from holdfast.model.tracing import span

KNOWN = ("20240729.0",)  # as `runsc --version` ends, whoever built it
IMAGE = ("checkpoint.img", "pages_meta.img", "pages.img")  # its files, in the order of messages
IN_ORDER = IMAGE[2:]  # those that are written from their beginning to their end
_ANSWER = 1 << 16
_NOWHERE = {"Route": {"Destination": {"IP": "", "Mask": None}, "Gateway": ""}, "Name": ""}
# As `runsc` has it for `--network=none`: addresses, and masks as base64 of their bytes.
_LOOPBACK = {
    "LoopbackLinks": [
        {
            "Name": "lo",
            "Addresses": [
                {"Address": "127.0.0.1", "PrefixLen": 8},
                {"Address": "::1", "PrefixLen": 128},
            ],
            "Routes": [
                {"Destination": {"IP": "127.0.0.0", "Mask": "/wAAAA=="}, "Gateway": ""},
                {
                    "Destination": {"IP": "::1", "Mask": "/////////////////////w=="},
                    "Gateway": "",
                },
            ],
            "GVisorGRO": False,
        }
    ],
    "FDBasedLinks": None,
    "XDPLinks": None,
    "Defaultv4Gateway": _NOWHERE,
    "Defaultv6Gateway": _NOWHERE,
    "PCAP": False,
    "LogPackets": False,
    "NATBlob": False,
    "DisconnectOk": False,
}
steps = logging.getLogger("holdfast.engine")


def socket_of(state: Path, name: str) -> Path:
    return state / f"runsc-{name}.sock"


def pause(place: Path, seconds: float) -> None:
    _ask(place, "Pause", None, seconds)


def resume(place: Path, seconds: float) -> None:
    _ask(place, "Resume", None, seconds)


def checkpoint(place: Path, image: Path, seconds: float) -> None:
    """Write the memory of a paused sandbox, uncompressed; it stays as it is. Raises HoldfastError,
    or OSError for an image that cannot be written."""
    options = {
        "key": None,
        "metadata": {"compression": "none"},
        "MemoryFileSaveOpts": {"ExcludeCommittedZeroPages": False},
        "have_pages_file": True,
        "Resume": True,
    }
    image.mkdir(mode=0o700)
    files: list[int] = []
    try:
        for name in IMAGE:
            files += [os.open(image / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)]
        _ask(place, "Checkpoint", options, seconds, files)
        # Whoever wrote them did so through the position that we have, too. Somebody may have read
        # along, so this must be so.
        for name, fd in zip(IMAGE, files, strict=True):
            if name in IN_ORDER and os.lseek(fd, 0, os.SEEK_CUR) != os.fstat(fd).st_size:
                raise HoldfastError(f"the sandbox's kernel did not write {name} in order")
    finally:
        for fd in files:
            os.close(fd)


def connect_loopback(place: Path, seconds: float) -> None:
    """Give a sandbox that was created the only network device it ever has."""
    _ask(place, "CreateLinksAndRoutes", _LOOPBACK, seconds, of="Network")


def restore(place: Path, image: Path, seconds: float) -> None:
    """Let a sandbox that was created go on from an image. Raises HoldfastError, or OSError for an
    image that cannot be read."""
    files: list[int] = []
    try:
        for name in IMAGE:
            files += [os.open(image / name, os.O_RDONLY | os.O_CLOEXEC)]
        options = {"HavePagesFile": True, "HaveDeviceFile": False}
        _ask(place, "Restore", options, seconds, files)
    finally:
        for fd in files:
            os.close(fd)


def _ask(
    place: Path,
    method: str,
    argument: object,
    seconds: float,
    files: Sequence[int] = (),
    of: str = "containerManager",
) -> None:
    message = json.dumps({"method": f"{of}.{method}", "arg": argument}).encode()
    began = time.perf_counter()
    try:
        with span("engine.command", command=method), socket.socket(socket.AF_UNIX) as link:
            link.settimeout(seconds)
            _connect(link, place)
            socket.send_fds(link, [message], list(files))
            answer = _answer(link)
    except (OSError, ValueError) as error:
        raise HoldfastError(f"the sandbox's kernel does not answer: {error}") from None
    took = round((time.perf_counter() - began) * 1000, 1)
    steps.info("%s answered %s", method, answer.get("success"), extra={"ms": took})
    if answer.get("success") is not True:
        raise HoldfastError(f"the sandbox's kernel refused: {answer.get('err')!s:.300}")


def _connect(link: socket.socket, place: Path) -> None:
    """By way of its folder, as runsc made it: a socket's own address is 107 bytes at most, and most
    boxes lie deeper."""
    folder = os.open(place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        link.connect(f"/proc/self/fd/{folder}/{place.name}")
    finally:
        os.close(folder)


def _answer(link: socket.socket) -> dict[str, object]:
    """One JSON object; nothing says where it ends but itself."""
    heard = b""
    while len(heard) < _ANSWER:
        block = link.recv(4096)
        if not block:
            break
        heard += block
        try:
            told = json.loads(heard)
        except ValueError:
            continue
        return told if isinstance(told, dict) else {}
    raise ValueError("its answer cannot be read")
