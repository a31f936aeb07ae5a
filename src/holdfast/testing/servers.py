"""Real object stores on loopback, started and stopped by tests."""

from __future__ import annotations

import base64
import ctypes
import hmac
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path

from holdfast.model.errors import HoldfastError
from holdfast.store.backends.objects.address import Address
from holdfast.store.backends.objects.bucket import Bucket
from holdfast.store.backends.objects.clients import connect

ACCESS, SECRET = "holdfast-test", "holdfast-secret"
_TRIES = 3  # between choosing a port and listening there, somebody else may have taken it


class Server:
    """A process that is an object store at `endpoint`. It can be stopped and started again."""

    scheme = "s3"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._served = False
        self._choose_ports()

    def _choose_ports(self) -> None:
        self.port = free_port()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs to find it."""
        return {
            "HOLDFAST_S3_ENDPOINT": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def command(self) -> list[str]:
        raise NotImplementedError  # whoever is tested says

    def settings(self) -> dict[str, str]:
        """What its own environment says to it."""
        return {}

    def start(self) -> None:
        """Serve at `endpoint`, which stays the same once it has served. Raises RuntimeError."""
        if self._served and self._process is not None:
            return
        for _ in range(_TRIES):
            if self._begins():
                self._served = True
                return
            if not self._served:
                self._choose_ports()
        log_text = (self._folder / "server.log").read_text(errors="replace")
        raise RuntimeError(f"the object store did not start:\n{log_text[-3000:]}")

    def _begins(self) -> bool:
        """Start the process and wait until it answers; False when it ends or never does."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, **self.settings()},
                preexec_fn=_die_with_parent,
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                return False
            time.sleep(0.1)
        return True

    def stop(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let it hang: it has connections, and answers none."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        """Whether objects can be written: the port alone is open before that."""
        bucket = Bucket(connect(Address(self.scheme, "bucket", "ready"), self.environ), patience=0)
        try:
            bucket.put("ready", b"?")
        except HoldfastError:
            return False
        return True


class SeaweedServer(Server):
    """SeaweedFS, which honours conditional writes."""

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self._others = [free_port() for _ in range(7)]

    def stop(self) -> None:
        super().stop()
        for port in self._others[3:]:
            for socket_file in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):
                socket_file.unlink(missing_ok=True)

    def command(self) -> list[str]:
        master, volume, filer, *grpc = self._others
        identity = {
            "name": "test",
            "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
        (self._folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        return [
            _tool("weed"),
            "server",
            f"-dir={data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            f"-master.port.grpc={grpc[0]}",
            "-master.telemetry=false",
            # It reckons its volumes by the space that is left, and each bucket takes some.
            "-master.volumeSizeLimitMB=1024",
            f"-volume.port={volume}",
            f"-volume.port.grpc={grpc[1]}",
            "-volume.max=0",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.port.grpc={grpc[2]}",
            f"-filer.localSocket={self._folder / 'filer.sock'}",
            "-s3",
            f"-s3.port={self.port}",
            f"-s3.port.grpc={grpc[3]}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={self._folder / 's3.json'}",
            f"-s3.localSocket={self._folder / 's3.sock'}",
            "-s3.iam=false",
        ]


class RcloneServer(Server):
    """`rclone serve s3`, which ignores conditions."""

    def command(self) -> list[str]:
        data = self._folder / "data"
        (data / "bucket").mkdir(parents=True, exist_ok=True)
        return [
            _tool("rclone"),
            "serve",
            "s3",
            str(data),
            "--addr",
            f"127.0.0.1:{self.port}",
            "--auth-key",
            f"{ACCESS},{SECRET}",
            "--vfs-cache-mode",
            "off",
        ]


class AzuriteServer(Server):
    """Azurite, Microsoft's own emulator of Azure Blob Storage."""

    scheme = "az"
    _ACCOUNT = "holdfasttest"
    _KEY = base64.b64encode(SECRET.encode()).decode()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self._ACCOUNT}"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_CONNECTION_STRING": f"AccountName={self._ACCOUNT};"
            f"AccountKey={self._KEY};BlobEndpoint={self.endpoint}"
        }

    def settings(self) -> dict[str, str]:
        return {"AZURITE_ACCOUNTS": f"{self._ACCOUNT}:{self._KEY}"}

    def command(self) -> list[str]:
        program = Path(__file__).parents[3] / "tests/emulators/node_modules/.bin/azurite-blob"
        if not program.exists():
            raise RuntimeError("azurite is not installed; `make setup-test` installs it")
        return [
            "node",
            str(program),
            "--disableTelemetry",
            "--skipApiVersionCheck",
            "--blobHost=127.0.0.1",
            f"--blobPort={self.port}",
            f"--location={self._folder}",
        ]

    def _answers(self) -> bool:
        try:
            self._make_container("bucket")
        except OSError:
            return False
        return super()._answers()

    def _make_container(self, name: str) -> None:
        """No client of objects makes containers; this is one signed request."""
        path = f"/{self._ACCOUNT}/{name}"
        about = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        lines = ["PUT", *[""] * 11, *(f"{key}:{value}" for key, value in about.items())]
        text = "\n".join([*lines, f"/{self._ACCOUNT}{path}", "restype:container"])
        mac = hmac.digest(base64.b64decode(self._KEY), text.encode(), "sha256")
        about["Authorization"] = f"SharedKey {self._ACCOUNT}:{base64.b64encode(mac).decode()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("PUT", f"{path}?restype=container", headers=about)
            status = connection.getresponse().status
        finally:
            connection.close()
        if status not in (201, 409):
            raise OSError(f"the container was not made: {status}")


def _die_with_parent() -> None:
    """A server must not outlive its test, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed; `make setup-test` installs it")
    return found
