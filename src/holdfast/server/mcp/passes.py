"""What lets one back into sandboxes, by the names that agents gave them; for their owner only."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from holdfast.model.disk import Disk
from holdfast.model.errors import Conflict, Corrupt, from_os_error
from holdfast.model.files import make_folder
from holdfast.sandbox.keeping import check_name


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox's id, and the token that attaches to it."""

    sandbox_id: str
    sandbox_token: str


class Passes:
    """One small file for each sandbox of a server. Blocking."""

    def __init__(self, folder: Path, url: str, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self._folder = folder / hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]

    def names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(each.stem for each in self._folder.glob("*.json"))
        return []

    def find(self, name: str) -> Pass | None:
        """Raises BadInput for an impossible name, Corrupt for a file that is none of ours."""
        path = self._path(name)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Pass)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise Corrupt(f"{path}: {error}", hint="remove the file to begin anew") from None
        except OSError as error:
            raise from_os_error(error, "finding a sandbox again") from error

    def keep(self, name: str, given: Pass) -> None:
        """Durable when this returns. Raises Conflict when the name is taken."""
        path = self._path(name)
        try:
            make_folder(self._folder)
            self._disk.sync_way(self._folder, "pass place")
            beside = path.with_suffix(f".{given.sandbox_id[:8]}")
            beside.unlink(missing_ok=True)  # somebody died who was about to keep the same
            self._disk.write(beside, msgspec.json.encode(given), "pass data")
            try:
                os.link(beside, path)
            except FileExistsError:
                raise Conflict(
                    f"there is a sandbox/{name} already", hint="choose another name"
                ) from None
            finally:
                beside.unlink()
            self._disk.sync_directory(self._folder, "pass name")
        except OSError as error:
            raise from_os_error(error, "remembering a sandbox") from error

    def forget(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        check_name(name)
        return self._folder / f"{name}.json"
