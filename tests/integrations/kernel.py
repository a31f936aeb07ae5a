"""A real Jupyter kernel, as a front end sees it."""

from __future__ import annotations

import ast
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

DEADLINE = 60.0


class Kernel:
    """A Jupyter kernel, as a front end sees it."""

    def __init__(self, home: Path, python: str = sys.executable, **environ: str) -> None:
        self.home = home
        self._manager = KernelManager(kernel_name="python3")
        command = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._manager._kernel_spec = KernelSpec(argv=command, display_name="", language="python")
        # Front ends set these; a kernel of the tests has none but those it is given.
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "JPY_"))}
        self._manager.start_kernel(
            env={**clean, "HOLDFAST_HOME": str(home), "MPLBACKEND": "agg", **environ},
            cwd=str(home),
        )
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=DEADLINE)
        self.said = ""

    def run_silently(self, code: str, fails: bool = False) -> None:
        """As a front end does for itself."""
        reply = self._client.execute(code, silent=True, store_history=False, reply=True)
        assert reply["content"]["status"] == ("error" if fails else "ok")

    def run(self, code: str, fails: bool = False) -> Any:
        """Run a cell; its value, if that is plain data. What it printed is in `said`."""
        values = self._run(code, fails)
        plain = [value for value in values if not value.startswith("<")]
        return ast.literal_eval(plain[-1]) if plain else None

    def show(self, code: str) -> str:
        """Run a cell; the text of its value, and what it printed, without addresses."""
        return re.sub(r"0x[0-9a-f]+", "0x", "".join([*self._run(code, False), self.said]))

    def _run(self, code: str, fails: bool) -> list[str]:
        said: list[str] = []
        values: list[str] = []

        def heard(message: dict[str, Any]) -> None:
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    said.append(content["text"])
                case "execute_result":
                    values.append(content["data"]["text/plain"])
                case "error":
                    said.append(f"{content['ename']}: {content['evalue']}")

        # After a cell that fails, some kernels refuse for a moment whatever else they are sent.
        reply = self._client.execute_interactive(
            code, output_hook=heard, timeout=DEADLINE, stop_on_error=False
        )
        self.said = "".join(said)
        self.number = reply["content"]["execution_count"]
        assert reply["content"]["status"] == ("error" if fails else "ok"), self.said
        return values

    @property
    def ports(self) -> list[int]:
        names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
        return [getattr(self._manager, name) for name in names]

    def ask_to_end(self) -> None:
        self._manager.request_shutdown()

    def ends(self) -> None:
        wait_for(lambda: not self._manager.is_alive())

    def kill(self) -> None:
        self.die()
        self.close()

    def run_until_it_dies(self, code: str) -> None:
        """Run a cell that ends the kernel itself."""
        self._client.execute(code)
        wait_for(lambda: not self._manager.is_alive())

    def die(self) -> None:
        """Only the kernel itself, without what it started."""
        os.kill(self._manager.provisioner.process.pid, 9)
        wait_for(lambda: not self._manager.is_alive())

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


def wait_for(done: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)
