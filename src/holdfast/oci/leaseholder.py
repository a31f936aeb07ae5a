"""Holds the leases of all containers of a node: `python -m holdfast.oci.leaseholder`.

Two nodes must not both go on with one container. Who may is said by a lease in the store, which
must be renewed as long as the container is there, and no command lives that long. One process does
it for all of them: it ends when it has held nothing for a while; the next command starts another.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import HoldfastError, Owned
from holdfast.model.files import bind
from holdfast.oci.journal import Journal
from holdfast.oci.leasing import SOCKET
from holdfast.oci.policy import Policy, policy_or_default, policy_path
from holdfast.oci.state import run_path

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.leases import Lease

_IDLE_SECONDS = 10.0
_LOOK_SECONDS = 1.0


class Holder:
    """The leases that are held, by subject, each with the folder of its container."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._stores: dict[str | None, Store] = {}
        self._held: dict[str, tuple[Lease, Path]] = {}
        self._lock = threading.Lock()  # of both tables
        self._turns: dict[str, threading.Lock] = {}  # one request about a subject at a time
        self._busy = 0  # requests that are being answered; one may take long
        self._used = time.monotonic()

    def answer(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Do what a request asks."""
        subject = str(request.get("hold") or request.get("release"))
        with self._lock:
            turn = self._turns.setdefault(subject, threading.Lock())
            self._busy += 1
        try:
            with turn:
                if "hold" in request:
                    folder = Path(str(request["folder"]))
                    return {"token": self._hold(subject, folder, float(request["wait"])).token}
                self._release(subject, Path(str(request["folder"])))
                return {}
        except Owned as error:
            return {"owner": error.owner, "url": error.url}
        except HoldfastError as error:
            return {"refused": str(error), "kind": error.kind}
        except Exception as error:  # noqa: BLE001  whoever asked is told, whatever it is
            return {"refused": repr(error), "kind": "fault"}
        finally:
            with self._lock:
                self._busy -= 1
                self._used = time.monotonic()

    def look(self) -> bool:
        """Give back the leases of containers that are gone; whether there is anything to do."""
        with self._lock:
            held = [(subject, folder) for subject, (_, folder) in self._held.items()]
        for subject, folder in held:
            if not (folder / "marker").exists():
                self.answer({"release": subject, "folder": str(folder)})
        return bool(self._held or self._busy) or time.monotonic() - self._used < _IDLE_SECONDS

    def _hold(self, subject: str, folder: Path, wait: float) -> Lease:
        with self._lock:
            lease, _ = self._held.get(subject, (None, None))
        if lease is None or lease.lost:
            policy, _ = policy_or_default(policy_path(self._environ))
            journal = Journal(Path(policy.log), subject)
            name = f"{socket.gethostname()}:{folder.name[1:]}"
            lease = self._store(policy).lease(subject, owner=name, wait=wait)
            lease.keep(lambda error: journal.write("error", f"its lease was lost: {error}"))
        with self._lock:
            self._held[subject] = lease, folder
        return lease

    def _release(self, subject: str, folder: Path) -> None:
        """Only what is held for this container: another one of the same name may be alive."""
        with self._lock:
            lease, whose = self._held.get(subject, (None, None))
            if lease is None or whose != folder:
                return
            del self._held[subject]
        if not lease.lost:
            lease.release()

    def _store(self, policy: Policy) -> Store:
        from holdfast.store import open_store

        with self._lock:
            if policy.store not in self._stores:
                self._stores[policy.store] = open_store(policy.store, environ=self._environ)
            return self._stores[policy.store]


def serve(run: Path, holder: Holder) -> None:
    """Answer until there is nothing left to hold. Where another holder is at work, do nothing."""
    lock = os.open(run / "leases.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    place = run / SOCKET
    os.chdir(run)  # an address has 107 bytes at most, and a path may have more
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        bind(listener, SOCKET)
        listener.listen(64)
        listener.settimeout(_LOOK_SECONDS)
        while True:
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                if not holder.look():
                    break
                continue
            threading.Thread(target=_attend, args=(holder, peer), daemon=True).start()
        place.unlink(missing_ok=True)  # whoever connected meanwhile is cut off, and asks again


def _attend(holder: Holder, peer: socket.socket) -> None:
    with peer, peer.makefile("rwb") as stream:
        try:
            answer = holder.answer(json.loads(stream.readline()))
            stream.write(json.dumps(answer).encode() + b"\n")
        except (OSError, ValueError):  # it asked nonsense, or did not wait for the answer
            return


if __name__ == "__main__":
    serve(run_path(), Holder(os.environ))
