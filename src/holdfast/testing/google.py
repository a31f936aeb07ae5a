"""Google's object storage as far as a store asks for it: the XML API with its conditions, on
loopback. No emulator that can be installed speaks it: gcp-storage-emulator 2026.7.19 has the JSON
API, and of this one neither conditions nor lists, heads, deletes or entity tags."""

from __future__ import annotations

import hashlib
import itertools
import threading
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 100  # keys in an answer to a list, so that there are several


@dataclass(frozen=True, slots=True)
class Object:
    data: bytes
    generation: int

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"',
            "Last-Modified": formatdate(usegmt=True),
            "x-goog-generation": str(self.generation),
        }


class GoogleServer:
    """A server with one bucket. `conditions` off: it ignores them, as a bad one would."""

    def __init__(self, bucket: str = "bucket", *, conditions: bool = True) -> None:
        self.bucket = bucket
        self.conditions = conditions
        self.objects: dict[str, Object] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.numbers = itertools.count()  # of uploads: several are under way at once
        self.lock = threading.Lock()
        self._generations = itertools.count(1)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs to find it."""
        return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{self._http.server_port}"}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def store(self, key: str, data: bytes, expected: str | None) -> Object | None:
        """Put an object; None when another generation is there than is expected, 0 for none."""
        with self.lock:
            there = self.objects.get(key)
            now = there.generation if there else 0
            if self.conditions and expected is not None and int(expected) != now:
                return None
            made = self.objects[key] = Object(data, next(self._generations))
            return made


def _handler(server: GoogleServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

        def do_GET(self) -> None:
            key, asked = self._asked()
            if not key:
                self._list(asked)
            elif (found := server.objects.get(key)) is None:
                self._answer(404)
            else:
                self._send(found)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            key, asked = self._asked()
            data = self._body()
            if "uploadId" in asked:
                server.uploads[asked["uploadId"]][int(asked["partNumber"])] = data
                self._answer(200, headers=Object(data, 0).headers)
                return
            self._store(key, data)

        def do_POST(self) -> None:
            key, asked = self._asked()
            self._body()
            if "uploads" in asked:
                upload = f"upload-{next(server.numbers)}"
                server.uploads[upload] = {}
                text = f"<UploadId>{upload}</UploadId>"
                self._xml("InitiateMultipartUploadResult", text)
                return
            parts = server.uploads.pop(asked["uploadId"])
            made = server.store(key, b"".join(parts[n] for n in sorted(parts)), None)
            assert made is not None  # without a condition nothing speaks against it
            text = f"<ETag>{escape(made.headers['ETag'])}</ETag>"
            self._xml("CompleteMultipartUploadResult", text, made.headers)

        def do_DELETE(self) -> None:
            key, _ = self._asked()
            with server.lock:
                gone = server.objects.pop(key, None)
            self._answer(204 if gone else 404)

        def _asked(self) -> tuple[str, dict[str, str]]:
            parts = urlsplit(self.path)
            _, bucket, *key = unquote(parts.path).split("/", 2)
            asked = {n: v[0] for n, v in parse_qs(parts.query, keep_blank_values=True).items()}
            return (key[0] if key else "") if bucket == server.bucket else "\0no bucket", asked

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _store(self, key: str, data: bytes) -> None:
            if key == "\0no bucket":
                self._answer(404)
                return
            made = server.store(key, data, self.headers.get("x-goog-if-generation-match"))
            self._answer(412) if made is None else self._answer(200, headers=made.headers)

        def _send(self, found: Object) -> None:
            size, wanted = len(found.data), self.headers.get("Range")
            if wanted is None:
                self._answer(200, found.data, found.headers)
                return
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, size - int(last))
            end = min(size, int(last) + 1) if first and last else size
            if start >= size:
                self._answer(416, headers={"Content-Range": f"bytes */{size}"})
                return
            told = {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
            self._answer(206, found.data[start:end], found.headers | told)

        def _list(self, asked: dict[str, str]) -> None:
            after = asked.get("continuation-token") or asked.get("start-after") or ""
            begins = asked.get("prefix", "")
            with server.lock:
                keys = sorted(k for k in server.objects if k.startswith(begins) and k > after)
                shown = [(key, server.objects[key]) for key in keys[:PAGE]]
            rows = "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(each.data)}</Size>"
                f"<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>{escape(each.headers['ETag'])}</ETag></Contents>"
                for key, each in shown
            )
            if len(keys) > PAGE:
                token = escape(keys[PAGE - 1])
                rows += f"<NextContinuationToken>{token}</NextContinuationToken>"
            self._xml("ListBucketResult", rows)

        def _xml(self, name: str, text: str, headers: dict[str, str] | None = None) -> None:
            body = f'<?xml version="1.0" encoding="UTF-8"?><{name}>{text}</{name}>'.encode()
            self._answer(200, body, headers)

        def _answer(
            self, status: int, body: bytes = b"", headers: dict[str, str] | None = None
        ) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler
