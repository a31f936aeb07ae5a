"""Handing over: asking the server that owns a sandbox to put it away for us. Blocking.

Servers of one store share its key, and a request is sealed with it: no token of anybody goes to
an address that was read in the store. The number of the lease is in it, so it is good only once.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from dataclasses import dataclass
from typing import Self

import msgspec

from holdfast.model import tracing
from holdfast.model.addresses import server_address
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, Conflict, Denied
from holdfast.model.owner import Owner
from holdfast.model.readiness import readable
from holdfast.sandbox import keeping
from holdfast.store import Store

PATH = "/handover"
SCHEME = "Holdfast"  # of the header Authorization
WANTED = "wanted"  # a tag: another server asks for it, and could not reach its owner
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 120.0  # until gigabytes are durable
LOOK_SECONDS = 1.0  # between two looks at the lease of an owner that takes its time
# How long an owner that cannot be asked is waited for: until its lease is over, and a little.
PATIENCE_SECONDS = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plea:
    """Who asks for which sandbox of which owner."""

    sandbox_id: str
    token: str  # the hash of the sandbox's token
    lease: int

    @property
    def message(self) -> bytes:
        return f"handover\n{self.sandbox_id}\n{self.token}\n{self.lease}".encode()

    @classmethod
    def read(cls, body: bytes, seal: str, store: Store) -> Self:
        """Raises Denied for what nobody with our key sealed."""
        try:
            plea = msgspec.json.decode(body, type=cls)
            known = store.is_sealed(seal, plea.message)
        except (msgspec.MsgspecError, UnicodeError):
            known = False
        if not known:
            raise Denied("the request is not sealed with this store's key")
        return plea


def is_sealed(path: str, authorization: str) -> bool:
    """Whether a request to a server claims to be such a plea."""
    return path.startswith(f"{PATH}/") and authorization.startswith(f"{SCHEME} ")


def ask(store: Store, owner: Owner, plea: Plea) -> bool:
    """Whether the owner put it away; False when it cannot be asked. Raises Denied for a wrong
    sandbox token, Conflict when the owner refuses."""
    seal = store.seal(plea.message)
    try:
        parts = server_address(owner.url or "")
    except BadInput:
        return False  # as somebody wrote it into the store
    if not seal or not parts.hostname:
        return False
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    link = kind(parts.hostname, parts.port, timeout=CONNECT_SECONDS)
    try:
        link.connect()
        link.sock.settimeout(ANSWER_SECONDS)
        headers = {"Authorization": f"{SCHEME} {seal}", "Content-Type": "application/json"}
        where = f"{parts.path.rstrip('/')}{PATH}/{plea.sandbox_id}"
        with tracing.span("sandbox.handover", sandbox=plea.sandbox_id):
            tracing.outgoing(headers)
            link.request("POST", where, msgspec.json.encode(plea), headers)
            if not _answers(link.sock, store, plea):
                return False
            answer = link.getresponse()
            body = answer.read(65536)
    except (OSError, http.client.HTTPException):
        return False  # the lease tells whether it lives
    finally:
        link.close()
    if answer.status == 403:
        raise Denied("the sandbox token is wrong")
    if answer.status == 409:
        raise Conflict(_message(body) or "its owner does not give the sandbox up")
    return answer.status == 200


def _answers(line: socket.socket, store: Store, plea: Plea) -> bool:
    """Whether there is an answer. One that hangs loses its lease, and then is not waited for."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        if readable([line.fileno()], LOOK_SECONDS):
            return True
        owner = store.owner(keeping.subject_of(plea.sandbox_id))
        if owner is None or owner.token != plea.lease:
            return False
    return False


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return ""


def want(store: Store, checkpoint: str, url: str | None) -> None:
    """Leave word for an owner that cannot be reached: it looks for this now and then."""
    store.tag(checkpoint, WANTED, url or "")


def have(store: Store, sandbox_id: str) -> None:
    """Take the word back, now that we own the sandbox: or we would heed it ourselves."""
    head = wanted(store, sandbox_id)
    if head is not None:
        store.untag(head, WANTED)


def wanted(store: Store, sandbox_id: str) -> Checkpoint | None:
    """The head of a sandbox that another server has left word for."""
    head = store.head(keeping.subject_of(sandbox_id))
    return head if head is not None and WANTED in head.tags else None
