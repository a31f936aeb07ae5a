"""Reading a record: definitions and code come from the session, gaps become placeholders."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from collections.abc import Mapping
from types import CodeType
from typing import Any, Protocol

from holdfast.session.worker import rebuild
from holdfast.session.worker.codes import Place
from holdfast.session.worker.placeholder import Placeholder, missing_class

# By these, and by nothing else, bytecode gets into a process through a pickle.
_BYTECODE = {("types", "CodeType"), ("marshal", "loads"), ("builtins", "code")}


class Session(Protocol):
    """What a record may ask of the session that is being restored."""

    namespace: dict[str, object]
    secrets: Mapping[str, str]
    lost: dict[str, str]

    def definition(self, label: str) -> object: ...
    def code(self, place: Place) -> CodeType: ...


class RecordUnpickler(pickle.Unpickler):
    """Loads one record and notes what was missing."""

    def __init__(self, data: bytes, session: Session, bytecode: bool) -> None:
        super().__init__(io.BytesIO(data))
        self._session = session
        self._bytecode = bytecode
        self.missing: list[str] = []
        self._builders = {
            "definition": self._definition,
            "code": self._code,
            "namespace": self._namespace,
        }

    # `Any`: pickle takes any callable here.
    def find_class(self, module: str, name: str, /) -> Any:
        if module == rebuild.__name__ and name in self._builders:
            return self._builders[name]
        if not self._bytecode and (module, name) in _BYTECODE:
            raise pickle.UnpicklingError("bytecode of another Python version")
        try:
            return super().find_class(module, name)
        except ImportError as error:
            reason = f"{error}"
        except AttributeError:
            reason = f"{module} has no {name}"
        self.missing.append(reason)
        return missing_class(f"{module}.{name}", reason)

    def persistent_load(self, pid: object, /) -> object:
        match pid:
            case ("secret", str(name)):
                value = self._session.secrets.get(name)
                if value is not None:
                    return value
                self.missing.append(f"secret {name} was left out and not given again")
                return Placeholder("str", "a secret that was left out", b"", name)
        raise pickle.UnpicklingError(f"unknown reference {pid!r}")

    def _definition(self, label: str) -> object:
        made = self._session.definition(label)
        if label in self._session.lost:
            self.missing.append(self._session.lost[label])
        return made

    def _code(self, *place: Any) -> CodeType:
        return self._session.code(Place(*place))

    def _namespace(self, module: str) -> dict[str, Any]:
        if module == "__main__":
            return self._session.namespace
        if module not in sys.modules:
            importlib.import_module(module)
        return sys.modules[module].__dict__
