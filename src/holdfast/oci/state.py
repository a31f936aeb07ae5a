"""What is known about running containers: below `/run/holdfast`, for root alone, never half."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from holdfast.model.errors import Denied, Unsupported
from holdfast.oci import constants
from holdfast.oci.policy import Mode
from holdfast.oci.private import private_folder

T = TypeVar("T")
_REMOVALS = 3  # a watcher may write a file there meanwhile, and rename it


class Process(msgspec.Struct, frozen=True):
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this number now, if there is one and it is no zombie."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in (b"Z", b"X") else cls(pid, int(fields[19]))

    @classmethod
    def current(cls) -> Process:
        """This process; raises Unsupported without /proc."""
        found = cls.of(os.getpid())
        if found is None:
            raise Unsupported("/proc does not show this process", hint="mount /proc")
        return found

    @property
    def alive(self) -> bool:
        return Process.of(self.pid) == self


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """`container.json`: which container this is and how it came to be."""

    format: int = constants.FORMAT
    subject: str
    root: str
    id: str
    bundle: str
    mode: Mode
    base_path: str | None = None
    created: str = ""
    pid: int | None = None
    watcher: Process | None = None  # learns how that process ends
    value: float = 0  # who is saved first when there is little time
    token: int | None = None  # of its lease, in mode `store`
    restored_from: str | None = None
    pages: Process | None = None  # brings its memory, if it was restored lazily
    cold: str | None = None  # why it was started cold although there was a checkpoint


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """`operation.json`: what is in progress, and what must be undone if it stops half way."""

    what: Literal["checkpoint", "restore"]
    owner: Process
    guard: Process | None = None
    engine: Process | None = None  # the runc that dumps or restores
    paused: bool = False  # by us: to be resumed
    scratch: tuple[str, ...] = ()  # folders that go
    upper: str | None = None  # the layer that is being written
    aside: str | None = None  # where its earlier content is meanwhile


class Killed(msgspec.Struct, frozen=True):
    """`killed.json`: somebody asked the container to end."""

    signal: str
    by: str = "kill"


class Exit(msgspec.Struct, frozen=True):
    """`exit.json`: how the container's first process ended."""

    code: int | None
    signal: int | None = None


class ContainerState:
    """The folder of one container. Every file in it is replaced as a whole."""

    def __init__(self, run: Path, root: str, container_id: str) -> None:
        self.folder = run / f"containers{root}" / f"@{container_id}"
        self._run = run

    @property
    def marked(self) -> bool:
        return (self.folder / "marker").exists()

    def mark(self, record: Record) -> None:
        """Claim the container; what an earlier one of the same name left is gone."""
        _make_private(self._run)
        shutil.rmtree(self.folder, ignore_errors=True)
        private_folder(self.folder)
        self.record = record
        self._write("marker", b"")

    @property
    def record(self) -> Record | None:
        return self._read("container.json", Record)

    @record.setter
    def record(self, value: Record) -> None:
        self._write("container.json", msgspec.json.encode(value))

    @property
    def unstarted(self) -> bool:
        return (self.folder / "unstarted").exists()

    @unstarted.setter
    def unstarted(self, value: bool) -> None:
        if value:
            self._write("unstarted", b"")
        else:
            (self.folder / "unstarted").unlink(missing_ok=True)

    @property
    def criu_path(self) -> Path:
        """The CRIU configuration that the container's annotation names."""
        return self.folder / "criu.conf"

    def tell_criu(self, lines: Sequence[str]) -> None:
        """What CRIU is to read when this container is dumped or restored next."""
        self._write("criu.conf", "".join(f"{line}\n" for line in lines).encode())

    @property
    def operation(self) -> Operation | None:
        return self._read("operation.json", Operation)

    @operation.setter
    def operation(self, value: Operation | None) -> None:
        if value is None:
            (self.folder / "operation.json").unlink(missing_ok=True)
        else:
            self._write("operation.json", msgspec.json.encode(value))

    @property
    def killed(self) -> Killed | None:
        return self._read("killed.json", Killed)

    @killed.setter
    def killed(self, value: Killed) -> None:
        self._write("killed.json", msgspec.json.encode(value))

    @property
    def exit_path(self) -> Path:
        return self.folder / "exit.json"

    @property
    def exit(self) -> Exit | None:
        return self._read("exit.json", Exit)

    @property
    def pages_path(self) -> Path:
        """The exit code of the server of pages of a lazy restore, when it has ended."""
        return self.folder / "pages"

    def remove(self) -> None:
        """Forget the container, and the folders above that nobody else needs."""
        (self.folder / "marker").unlink(missing_ok=True)
        for _ in range(_REMOVALS):
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                break
        for above in self.folder.parents:
            if above == self._run:
                return
            try:
                above.rmdir()
            except OSError:  # another container's folder is in it
                return

    def _write(self, name: str, data: bytes) -> None:
        draft = self.folder / f".{name}.{os.getpid()}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        draft.rename(self.folder / name)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.folder / name).read_bytes(), type=kind)
        except (FileNotFoundError, NotADirectoryError):
            return None


def run_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the state of running containers is."""
    return Path(environ.get(constants.RUN_VARIABLE) or constants.DEFAULT_RUN_PATH)


def all_states(run: Path) -> Iterator[ContainerState]:
    """The state of every container that is known here."""
    top = run / "containers"
    for marker in sorted(top.rglob("@*/marker")):
        root = "/" + str(marker.parent.parent.relative_to(top))
        yield ContainerState(run, "/" if root == "/." else root, marker.parent.name[1:])


def _make_private(folder: Path) -> None:
    private_folder(folder)
    info = folder.stat()
    if info.st_uid != os.geteuid():
        raise Denied(f"{folder} belongs to somebody else", hint="remove it, as root")
    if info.st_mode & 0o077:
        folder.chmod(0o700)
