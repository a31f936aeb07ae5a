"""A process of its own that takes up a saved state and saves what it has: `stranger.py FOLDER
SESSION VERSION [MODULE:CLASS=FILE]...`. Exit code 3: a class is not to be found here."""

from __future__ import annotations

import importlib.util
import sys
from functools import reduce
from pathlib import Path

from holdfast.state import StateManager


def _class(named: str) -> type:
    name, _, file = named.partition("=")
    module, _, path = name.partition(":")
    if module not in sys.modules:
        try:
            importlib.import_module(module)
        except ImportError:
            spec = importlib.util.spec_from_file_location(module, file)
            if spec is None or spec.loader is None:
                raise
            sys.modules[module] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[module])
    found = reduce(getattr, path.split("."), sys.modules[module])
    assert isinstance(found, type)
    return found


def main() -> None:
    folder, session, version, *named = sys.argv[1:]
    try:
        classes = [_class(each) for each in named]
    except (ImportError, AttributeError):
        sys.exit(3)
    manager = StateManager.load(
        session,
        directory=Path(folder),
        types=classes,
        keep_secrets=True,
        version=int(version),
    )
    manager.save_state()


if __name__ == "__main__":
    main()
