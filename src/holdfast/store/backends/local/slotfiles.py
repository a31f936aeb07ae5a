"""Key slots in a directory: one small file each, whole or not there, never written over."""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.model.disk import Disk
from holdfast.model.errors import Conflict, from_os_error
from holdfast.model.files import PRIVATE, Access, make_folder, publish
from holdfast.store.backends.local.sweeping import draft_path

FOLDER = "keys"
_NAME = re.compile(r"([0-9a-f]{16})\.json")
_LIMIT = 64 * 1024  # bytes; no slot has more


class SlotFiles:
    """The folder `keys` of a store; there is none where nothing is encrypted."""

    def __init__(self, root: Path, disk: Disk, access: Access = PRIVATE) -> None:
        self._access = access
        self._root = root
        self._folder = root / FOLDER
        self._disk = disk

    def read(self) -> dict[str, bytes]:
        try:
            names = os.listdir(self._folder)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise from_os_error(error, "looking for key slots") from error
        found = {}
        for name in names:
            if match := _NAME.fullmatch(name):
                try:
                    with (self._folder / name).open("rb") as file:
                        found[match[1]] = file.read(_LIMIT)
                except FileNotFoundError:
                    continue  # taken away between listing and reading
                except OSError as error:
                    raise from_os_error(error, "reading a key slot") from error
        return found

    def put(self, name: str, data: bytes) -> None:
        try:
            make_folder(self._folder, self._access)
            self._disk.sync_directory(self._root, "slots' place")
            publish(
                self._folder / f"{name}.json",
                data,
                draft=draft_path(self._root / "tmp"),
                replace=False,
                access=self._access,
                sync=(self._disk, "slot data", "slot name"),
            )
        except FileExistsError:
            raise Conflict(f"there is a key slot {name} already") from None
        except OSError as error:
            raise from_os_error(error, "writing a key slot") from error

    def remove(self, name: str) -> None:
        try:
            # The slot that takes its place may be somebody's who died before its name was safe.
            self._disk.sync_directory(self._folder, "another's slot name")
            (self._folder / f"{name}.json").unlink(missing_ok=True)
            self._disk.sync_directory(self._folder, "slot's end")
        except OSError as error:
            raise from_os_error(error, "removing a key slot") from error
