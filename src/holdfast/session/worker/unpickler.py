"""Reading a record: definitions and code come from the session, gaps become placeholders."""

from __future__ import annotations

import builtins
import functools
import importlib
import io
import pickle
import sys
from collections.abc import Iterable, Mapping
from types import CodeType
from typing import Any, Protocol

from holdfast.session import layout
from holdfast.session.worker import rebuild
from holdfast.session.worker.codes import Place
from holdfast.session.worker.flat import empty, fill_all
from holdfast.session.worker.kinds import arrays, tensors
from holdfast.session.worker.missing import Reading, missing_class, missing_module
from holdfast.session.worker.placeholder import Placeholder

# By these, and by nothing else, bytecode gets into a process through a pickle.
_BYTECODE = {("types", "CodeType"), ("marshal", "loads"), ("builtins", "code")}
_KINDS = "holdfast.session.worker.kinds"
_LINE = 256  # bytes; names are shorter, and only they end with a line
# Builders that open something outside of the session, and what they would have made.
_OUTSIDE = {
    (f"{_KINDS}.files", "reopen"): "file",
    (f"{_KINDS}.files", "remap"): "file",
    (f"{_KINDS}.databases", "connection"): "sqlite3.Connection",
    (f"{_KINDS}.connections", "connection"): "sqlalchemy.Connection",
    (f"{_KINDS}.connections", "duck"): "duckdb.DuckDBPyConnection",
    (f"{_KINDS}.connections", "hdf"): "h5py.File",
    (f"{_KINDS}.connections", "net_cdf"): "netCDF4.Dataset",
    (f"{_KINDS}.documents", "font"): "PIL.ImageFont.FreeTypeFont",
    (f"{_KINDS}.tables", "tar"): "tarfile.TarFile",
    (f"{_KINDS}.tables", "unpacked"): "file",
}

# Builders that need the session, or what is being read: methods of the unpickler stand for them.
_BUILDERS = {
    (rebuild.__name__, "definition"): "_definition",
    (rebuild.__name__, "code"): "_code",
    (rebuild.__name__, "namespace"): "_namespace",
    (rebuild.__name__, "module"): "_module",
    (rebuild.__name__, "named"): "_named",
    (rebuild.__name__, "revive"): "_revive",
    (arrays.__name__, "memory"): "_memory",
    (arrays.__name__, "array"): "_array",
    (arrays.__name__, "values"): "_values",
    (tensors.__name__, "storage"): "_storage",
    (tensors.__name__, "tensor"): "_tensor",
}


class Session(Protocol):
    """What a record may ask of the session that is being restored."""

    namespace: dict[str, object]
    secrets: Mapping[str, str | bytes]
    lost: dict[str, str]

    def definition(self, label: str) -> object: ...
    def code(self, place: Place) -> CodeType: ...
    def shared(self, label: str) -> object: ...
    def memory(self, label: str) -> memoryview: ...
    def lay(self, label: str, array: Any) -> bool: ...
    def made_of(self, array: Any, label: str) -> None: ...


class View:
    """A file of memory that is there already, read a frame at a time: `BytesIO` would copy all of
    it before anything is read, into new memory, which takes longer than the rest."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int = -1, /) -> bytes:
        end = len(self._data) if size < 0 else self._at + size
        found = bytes(self._data[self._at : end])
        self._at += len(found)
        return found

    def readinto(self, into: memoryview, /) -> int:
        """Large bytes, straight to where they belong."""
        found = self._data[self._at : self._at + len(into)]
        into[: len(found)] = found
        self._at += len(found)
        return len(found)

    def readline(self) -> bytes:
        line = bytearray()
        while piece := self.read(_LINE):
            head, end, _ = piece.partition(b"\n")
            line += head + end
            if end:
                self._at += len(head) + 1 - len(piece)
                break
        return bytes(line)


class RecordUnpickler(pickle.Unpickler):
    """Loads one record and notes what was missing."""

    def __init__(
        self,
        data: bytes | memoryview,
        session: Session,
        bytecode: bool,
        buffers: Iterable[str] = (),
    ) -> None:
        file = io.BytesIO(data) if isinstance(data, bytes) else View(data)
        super().__init__(file, buffers=map(session.memory, buffers))
        self._session = session
        self._bytecode = bytecode
        self.missing: list[str] = []
        self._nodes: list[Any] = []  # of a structure that was laid flat
        self._filled: dict[int, dict[Any, Any]] = {}  # dicts that had secrets in them

    # `Any`: pickle takes any callable here.
    def find_class(self, module: str, name: str, /) -> Any:
        which = module, name
        if which in _BUILDERS:
            return getattr(self, _BUILDERS[which])
        if which in _OUTSIDE:
            return functools.partial(self._outside, which)
        if not self._bytecode and which in _BYTECODE:
            raise pickle.UnpicklingError("bytecode of another Python version")
        try:
            return super().find_class(module, name)
        except ImportError as error:
            reason = f"{error}"
        except AttributeError:
            reason = f"{module} has no {name}"
        except ValueError:
            reason = f"{name} is not there"  # a definition of a session, lost before
        self.missing.append(reason)
        return missing_class(module, name, reason)

    def values(self, flat: bool) -> object:
        """The tuple of a record's values. It can be asked for once."""
        try:
            with Reading():
                if not flat:
                    return super().load()
                self._nodes = [empty(kind) for kind in super().load()]
                states, values = super().load()
                fill_all(self._nodes, states)
                return values
        finally:
            # It has methods of its own in it, and would hold all that it has made for good.
            self.memo.clear()
            self._nodes = []
            self._filled = {}

    def persistent_load(self, pid: object, /) -> object:
        match pid:
            case ("secret", str(name), *kind):
                from holdfast.session.worker.secrets import again

                given = again(self._session.secrets, name, bool(kind))
                if type(given) is Placeholder:
                    self.missing.append(f"{layout.LEFT_OUT}{name}")
                return given
            case ("filled", int(number)):
                return self._filled.setdefault(number, {})
            case ("filled", int(number), list(entries)):
                found = self._filled.setdefault(number, {})
                found.update(zip(entries[::2], entries[1::2], strict=True))
                return found
            case ("node", int(number)):
                return self._nodes[number]
            case ("object", layout.GLOBALS):
                return self._session.namespace
            case ("object", layout.BUILTINS):
                return builtins.__dict__
            case ("object", str(label)):
                return self._session.shared(label)
        raise pickle.UnpicklingError(f"unknown reference {pid!r}")

    def _definition(self, label: str) -> object:
        made = self._session.definition(label)
        if label in self._session.lost:
            self.missing.append(self._session.lost[label])
        return made

    def _code(self, *place: Any) -> CodeType:
        return self._session.code(Place(*place))

    def _outside(self, which: tuple[str, str], *how: Any) -> Any:
        """A file, or what says why it is not there: it costs nothing that is around it."""
        module, builder = which
        try:
            return getattr(importlib.import_module(module), builder)(*how)
        except OSError as error:
            self.missing.append(f"{error}")
            return Placeholder(_OUTSIDE[which], f"{error}")

    def _memory(self, label: str) -> arrays.Memory:
        return arrays.Memory(label)  # it is not read before it is known what for

    def _array(self, memory: arrays.Memory, *form: Any) -> Any:
        made = arrays.empty(*form)
        if not self._session.lay(memory.label, made):
            arrays.fill(made, self._session.memory(memory.label))
        self._session.made_of(made, memory.label)
        return made

    def _values(self, label: str) -> object:
        return self._session.shared(label)

    def _storage(self, memory: arrays.Memory | bytes, size: int) -> Any:
        data = memory if isinstance(memory, bytes) else self._session.memory(memory.label)
        made = self._of_torch(tensors.storage, data, size)
        if not isinstance(memory, bytes) and not isinstance(made, Placeholder):
            self._session.made_of(tensors.over(made), memory.label)
        return made

    def _tensor(self, *form: Any, **options: Any) -> Any:
        return self._of_torch(tensors.tensor, *form, **options)

    def _of_torch(self, builder: Any, *args: Any, **options: Any) -> Any:
        """What torch makes, or what revives where torch is."""
        try:
            return builder(*args, **options)
        except ImportError as error:
            self.missing.append(f"{error}")
            name, shown = builder.__name__, f"torch.{builder.__name__.title()}"
            kept = [bytes(each) if isinstance(each, memoryview) else each for each in args]
            return missing_class(tensors.__name__, name, f"{error}", shown)(*kept, **options)

    def _module(self, name: str) -> object:
        try:
            return importlib.import_module(name) if name not in sys.modules else sys.modules[name]
        except ImportError as error:
            self.missing.append(f"{error}")
            return missing_module(name, f"{error}")

    def _named(self, module: str, name: str) -> object:
        return self._definition(module[1:]) if module[:1] == "@" else self.find_class(module, name)

    def _revive(
        self, module: str, name: str, called: bool, args: Any, options: dict[str, Any]
    ) -> object:
        if not name:
            return self._module(module)
        cls: Any = self._named(module, name)
        return cls(*args, **options) if called else cls.__new__(cls, *args, **options)

    def _namespace(self, module: str) -> dict[str, Any]:
        if module == "__main__":
            return self._session.namespace
        if module not in sys.modules:
            importlib.import_module(module)
        return sys.modules[module].__dict__
