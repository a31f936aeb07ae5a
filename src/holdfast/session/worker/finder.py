"""A shorter way to modules: what the interpreter finds in folders, with fewer looks at the disk.

Of a module that it has compiled before, this finds just what the interpreter would, and leaves it
as that would. Whatever else there is, or could be, is left to the interpreter itself. A finder
stands in `sys.meta_path` for moments in which only libraries run: it lists each folder once.
"""

from __future__ import annotations

import _imp
import marshal
import posix
import sys

# What `importlib.machinery` and `importlib.util` have; these two are always there.
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import (
    EXTENSION_SUFFIXES,
    MAGIC_NUMBER,
    FileFinder,
    PathFinder,
    SourceFileLoader,
)

TYPE_CHECKING = False  # `typing` is one of the modules that should be found in this way
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

_OTHER_KINDS = (*EXTENSION_SUFFIXES, ".pyc")
_MAGIC = MAGIC_NUMBER + bytes(4)  # of a file that is told by its source's time and size
_FOUR = 0xFFFFFFFF
_CODE = type((lambda: None).__code__)
_KIND, _REGULAR = 0o170000, 0o100000  # of a file, in its mode; as `_stat` has them


class Finder:
    """Finds modules that lie in folders as source, with the interpreter's own cache beside them."""

    def __init__(self) -> None:
        self._listed: dict[str, frozenset[str] | None] = {}
        self._caches: dict[str, tuple[str, str]] = {}

    def __enter__(self) -> None:
        if PathFinder not in sys.meta_path or sys.implementation.cache_tag is None:
            return
        hooks = [getattr(hook, "__module__", "") for hook in sys.path_hooks[:2]]
        if hooks == ["zipimport", "_frozen_importlib_external"]:  # and nobody's before them
            # Just before whoever it stands for: those that come earlier may know better.
            sys.meta_path.insert(sys.meta_path.index(PathFinder), self)

    def __exit__(self, *raised: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module of that name; None when the interpreter should look for it."""
        tail = name.rpartition(".")[2]
        for folder in sys.path if path is None else path:
            names = self._names(folder)
            if names is None:
                return None
            if tail in names:
                inside = f"{folder}/{tail}"
                own = self._names(inside)
                if not folder or own is None or not _is_source("__init__", inside, own):
                    return None
                return self._spec(name, inside, "__init__", [inside])
            if f"{tail}.py" in names:
                if not folder or not _is_source(tail, folder, names):
                    return None
                return self._spec(name, folder, tail, None)
            if any(tail + kind in names for kind in _OTHER_KINDS):
                return None
        return None

    def _names(self, folder: str) -> frozenset[str] | None:
        """What is in a folder; None where that cannot be said, or is not for us to say."""
        try:
            return self._listed[folder]
        except KeyError:
            self._listed[folder] = names = _listed(folder)
            return names

    def _spec(self, name: str, folder: str, stem: str, inside: list[str] | None) -> ModuleSpec:
        path = f"{folder}/{stem}.py"
        loader = SourceFileLoader(name, path)
        spec = ModuleSpec(name, loader, origin=path)
        spec.has_location = True
        spec.submodule_search_locations = inside
        if folder not in self._caches:  # where it is cached is the interpreter's to say
            before, _, after = (spec.cached or "").rpartition(f"/{stem}.")
            self._caches[folder] = before, after
        before, after = self._caches[folder]
        spec.cached = cached = f"{before}/{stem}.{after}"
        vars(loader)["get_code"] = lambda name: _code(loader, cached)
        return spec


def _listed(folder: object) -> frozenset[str] | None:
    if not isinstance(folder, str) or folder.endswith("/"):
        return None
    if folder and folder[0] != "/":
        return None
    known = sys.path_importer_cache.get(folder)
    if known is not None and type(known) is not FileFinder:
        return None
    try:
        return frozenset(posix.listdir(folder or posix.getcwd()))
    except FileNotFoundError:
        return frozenset()
    except OSError:  # an archive, for one
        return None


def _is_source(stem: str, folder: str, names: frozenset[str]) -> bool:
    """Whether a module is there as source, and as nothing else. A folder of that name, or a link
    that leads nowhere, is no source: the interpreter goes on to the next one."""
    if f"{stem}.py" not in names or any(stem + kind in names for kind in _OTHER_KINDS):
        return False
    try:
        mode = posix.stat(f"{folder}/{stem}.py").st_mode
    except OSError:
        return False
    return mode & _KIND == _REGULAR


def _code(loader: SourceFileLoader, cached: str) -> CodeType | None:
    """As the loader itself would get it, which is left to that in all but the simplest case."""
    vars(loader).pop("get_code", None)
    return _compiled(loader.path, cached) or loader.get_code(loader.name)


def _compiled(path: str, cached: str) -> CodeType | None:
    """The code, if it is of this very source by its time and size, as the interpreter tells."""
    try:
        source = posix.stat(path)
        file = posix.open(cached, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = posix.read(file, posix.fstat(file).st_size)
    except OSError:
        return None
    finally:
        posix.close(file)
    made = (int(source.st_mtime) & _FOUR).to_bytes(4, "little")
    if data[:16] != _MAGIC + made + (source.st_size & _FOUR).to_bytes(4, "little"):
        return None
    try:
        loaded = marshal.loads(memoryview(data)[16:])
    except (EOFError, ValueError, TypeError):
        return None
    if type(loaded) is not _CODE:
        return None
    code: CodeType = loaded
    _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]  # if it was moved here
    return code
