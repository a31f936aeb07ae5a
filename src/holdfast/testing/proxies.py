"""A proxy between a client and a server on loopback that loses replies, or answers in the server's
place that it is in trouble, when it is told to."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

_CHUNK = 64 * 1024


class LossyProxy:
    """Hands bytes on in both directions. The reply to each of the next `lose` requests that begin
    with `marked` is lost: the server has done what was asked, and the client does not know. The
    next `fail` requests that begin with `failing` get `failure` for an answer, and never reach the
    server. What is asked
    waits `wait` seconds before it is handed on. `at_once` is how many requests have waited for the
    first word of an answer at the same time, at most."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.marked = b""
        self.lose = 0
        self.lost = 0
        self.fail = 0
        self.failed = 0
        self.failing = b""
        self.failure = "500 Internal Server Error"
        self.wait = 0.0
        self.at_once = 0
        self._asking: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> LossyProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", self._port)) as server,
        ):
            doomed = threading.Event()
            back = threading.Thread(target=self._answer, args=(server, client, doomed), daemon=True)
            back.start()
            while data := client.recv(_CHUNK):
                if self._fails(data):
                    answer = f"HTTP/1.1 {self.failure}\r\nContent-Length: 0\r\nConnection: close"
                    client.sendall(f"{answer}\r\n\r\n".encode())
                    break
                with self._lock:
                    self._asking.add(client)
                    self.at_once = max(self.at_once, len(self._asking))
                    if self.lose and self.marked and data.startswith(self.marked):
                        self.lose -= 1
                        doomed.set()
                time.sleep(self.wait)
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            back.join()
        with self._lock:
            self._asking.discard(client)

    def _fails(self, data: bytes) -> bool:
        with self._lock:
            if not self.fail or not data.startswith(self.failing):
                return False
            self.fail -= 1
            self.failed += 1
            return True

    def _answer(
        self, server: socket.socket, client: socket.socket, doomed: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK):
                with self._lock:
                    self._asking.discard(client)
                if doomed.is_set():
                    with self._lock:
                        self.lost += 1
                    break
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
