"""A network of its own for a node in tests, with doors to servers on this machine's loopback."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

_NEW_NET = 0x40000000  # CLONE_NEWNET
_CHUNK = 64 * 1024


class Network:
    """A network namespace. Nothing leaves it but through its doors, which count what passes."""

    def __init__(self) -> None:
        self._name = f"holdfast-{uuid4().hex[:8]}"
        self._listeners: list[socket.socket] = []
        self._lock = threading.Lock()
        self.sent = 0  # from inside to the servers
        self.received = 0
        _ip("netns", "add", self._name)
        _ip("-n", self._name, "link", "set", "lo", "up")

    @property
    def prefix(self) -> list[str]:
        """Words that run a command inside."""
        return ["nsenter", f"--net={self.path}", "--"]

    @property
    def path(self) -> Path:
        """What others join it by."""
        return Path("/run/netns", self._name)

    def door(self, port: int) -> None:
        """Let those inside reach a server outside, at the same address."""
        listener = self._listen(port)
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def close(self) -> None:
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        _ip("netns", "del", self._name)

    def _listen(self, port: int) -> socket.socket:
        """A socket belongs to the network in which it was made, whoever uses it afterwards."""
        made: list[socket.socket] = []

        def work() -> None:
            fd = os.open(self.path, os.O_RDONLY)
            try:
                if ctypes.CDLL(None).setns(fd, _NEW_NET) == 0:
                    made.append(socket.create_server(("127.0.0.1", port)))
            finally:
                os.close(fd)

        thread = threading.Thread(target=work)  # entering a namespace concerns one thread
        thread.start()
        thread.join()
        return made[0]

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                inside, _ = listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._relay, args=(inside, port), daemon=True).start()

    def _relay(self, inside: socket.socket, port: int) -> None:
        with suppress(OSError), inside, socket.create_connection(("127.0.0.1", port)) as outside:
            back = threading.Thread(target=self._pump, args=(outside, inside, "received"))
            back.start()
            self._pump(inside, outside, "sent")
            back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, counter: str) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                with self._lock:
                    setattr(self, counter, getattr(self, counter) + len(data))
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, env={**os.environ, "PATH": "/usr/sbin:/sbin:/bin"})
