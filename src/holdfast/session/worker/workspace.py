"""What a session consists of inside its worker: the namespace, and all that is known about it."""

from __future__ import annotations

import builtins
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from holdfast.model.fault_points import fault_point
from holdfast.protocol.session_messages import ItemReport
from holdfast.session import layout
from holdfast.session.worker.boot import Unshadowed
from holdfast.session.worker.cells import CellLog
from holdfast.session.worker.codes import CodeIndex
from holdfast.session.worker.definitions import Definitions
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.memory.overlay import Overlay
from holdfast.session.worker.originals import Originals
from holdfast.session.worker.runner import FUTURE, Runner
from holdfast.session.worker.texts import clean


class Workspace:
    """The module `__main__`, its cells, definitions and code. Needs no host: a template has one."""

    def __init__(self) -> None:
        main = sys.modules["__main__"]
        self.namespace: dict[str, object] = main.__dict__
        self.cells = CellLog()
        self.codes = CodeIndex(self.cells)
        self.originals = Originals()
        self.definitions = Definitions(self.namespace, self.originals)
        self.runner = Runner(self.namespace, self.cells, self.definitions, self.originals)

        self.given: tuple[str, ...] = ()  # names of the secrets that the last restore was given

    def install(self) -> None:
        """Make the process's own `__main__` the session's, with nothing in it."""
        self.namespace.clear()
        self.namespace.update(
            __name__="__main__", __doc__=None, __spec__=None, __builtins__=builtins
        )
        self.definitions.install()

    def watch(self) -> None:
        """Watch over the process from now on, if nobody does: for a shell that goes on with it."""
        if self.definitions.circumstances is None:
            self.definitions.install()

    def restore(
        self,
        parts: Mapping[str, bytes],
        secrets: Mapping[str, str | bytes],
        labels: Labels,
        within: AbstractContextManager[None] | None = None,
        overlay: Overlay | None = None,
    ) -> tuple[ItemReport, ...]:
        """Replace the namespace by a checkpoint's. Whatever it raises, all is as it was then.

        `overlay` has the memory that is not among the parts.

        `within` is entered for the work, and may raise at its end, too.
        """
        with self.at_work():
            return self._restore(parts, secrets, labels, within, overlay)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Builtins and modules of the library are what they were before the session changed them:
        the worker's own work must not fail because of that."""
        with self.originals.worker, self.definitions.patches.aside():
            yield

    def _restore(
        self,
        parts: Mapping[str, bytes],
        secrets: Mapping[str, str | bytes],
        labels: Labels,
        within: AbstractContextManager[None] | None,
        overlay: Overlay | None,
    ) -> tuple[ItemReport, ...]:
        with Unshadowed():
            from contextvars import copy_context

            from holdfast.session.worker.pieces import Taken, adopt
            from holdfast.session.worker.restore import Restore

        taken, context = Taken(self, labels), copy_context()
        try:
            with within or nullcontext():
                restore = Restore(
                    parts,
                    self.namespace,
                    self.cells,
                    self.codes,
                    self.definitions,
                    secrets,
                    labels,
                    overlay,
                )
                try:
                    items = context.run(restore.run)
                    environment = restore.environment
                    fault_point("the namespace is filled")
                finally:
                    restore.let_go()
        except BaseException as error:
            taken.put_back(error)
            raise
        adopt(context)
        taken.let_go()
        self.runner.count = environment.execution_count
        self.runner.flags = environment.future & FUTURE
        self.given = tuple(secrets)
        return items

    def environment(self) -> layout.Environment:
        """Where and when a capture is made."""
        # Only what is imported already, and without reading anything from disk.
        tops = {name for name in self.definitions.imports if "." not in name}
        versions = {name: _version(name) for name in sorted(tops)}
        created = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        micros = time.time_ns() // 1000 % 1_000_000
        return layout.Environment(
            created=f"{created}.{micros:06d}Z",
            python=platform.python_version(),
            implementation=platform.python_implementation(),
            platform=f"{sys.platform}-{platform.machine()}",
            execution_count=self.runner.count,
            future=self.runner.flags,
            libraries={name: version for name, version in versions.items() if version},
        )


def _version(module: str) -> str:
    try:
        version = getattr(sys.modules.get(module), "__version__", "")
    except Interrupted:
        raise
    except BaseException:  # noqa: BLE001  # a module may look its version up in any way
        return ""
    return clean(version) if type(version) is str else ""
