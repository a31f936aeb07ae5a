"""The directory of a local store: what belongs in it, making it, and knowing it again."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from holdfast.model import files
from holdfast.model.disk import Disk
from holdfast.model.errors import BadInput, Conflict, Denied, from_os_error
from holdfast.model.files import GROUP, PRIVATE, Access, Exposure
from holdfast.store.backends import marker
from holdfast.store.backends.files import Saying, open_file, write_all
from holdfast.store.backends.local import reserve, slotfiles
from holdfast.store.backends.local.sweeping import draft_path

_FOLDERS = ("log", "packs", "holds", "leases", "tmp")


def exists(root: Path) -> bool:
    """Whether there is a store."""
    with Saying("opening the store"):
        return (root / marker.NAME).is_file()


def create(root: Path, disk: Disk, access: Access = PRIVATE) -> None:
    """Make a store; another process may be making the same one. Raises BadInput and Denied."""
    try:
        _refuse_foreign(root)
        if not files.make_folder(root, access) and access is GROUP:
            root.chmod(access.folder)  # an empty folder that was made for it, with its group
        access = files.access_of(root)
        make_missing_folders(root, disk)
        if access is GROUP:
            # Here, and not by the first writer: whoever finds it before it is widened is refused.
            os.close(files.open_or_create(root / "log" / "lock", access))
        disk.sync_way(root, "store place")
        _write_marker(root, disk, access)
    except NotADirectoryError as error:
        raise BadInput(
            f"there cannot be a store at {root}: a file is in the way",
            hint="set HOLDFAST_HOME or HOLDFAST_STORE to a directory, or name one: --store",
        ) from error
    except OSError as error:
        raise from_os_error(error, f"making a store at {root}") from error


def make_missing_folders(root: Path, disk: Disk) -> None:
    """Backups and version control forget empty directories."""
    with Saying("opening the store"):
        missing = [name for name in _FOLDERS if not (root / name).is_dir()]
        try:
            for name in missing:
                files.make_folder(root / name, files.access_of(root))
        except PermissionError:
            return  # whoever may only read can do without
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            return
        if missing:
            disk.sync_directory(root, "layout")


def store_id(root: Path, disk: Disk) -> str:
    """The id of the store that is there; raises Corrupt or Unsupported."""
    path = root / marker.NAME
    with Saying("opening the store"):
        with open(open_file(path), "rb") as file:
            data = file.read()
        if path.stat().st_nlink > 1:
            # Its maker has not finished, or never will: see to it that the name lasts.
            disk.sync_directory(root, "another's marker name")
    return marker.decode(data, str(root))


def _refuse_foreign(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise BadInput(
            f"{root} is a file, not a store's directory",
            hint="give a directory; `holdfast import` reads exported files",
        )
    if root.is_dir():
        # The marker is there when another process makes the same store at this moment.
        expected = {*_FOLDERS, slotfiles.FOLDER, marker.NAME, reserve.NAME}
        strange = sorted(path.name for path in root.iterdir() if path.name not in expected)
        if strange:
            raise Denied(
                f"{root} is not empty and not a store (it has {strange[0]!r})",
                hint="give an empty or a new directory",
            )


def exposure(root: Path) -> Exposure | None:
    """Whether others than the store's user, or its group where it is made for one, can open what
    is in it."""
    allowed = stat.S_IRWXG if files.access_of(root) is GROUP else 0
    found = files.exposure(root, allowed=allowed)
    if found is None:
        return None
    inside = (files.exposure(root / name, allowed=allowed) for name in ("log", "packs", "keys"))
    return found if any(inside) else None


def check_shared(root: Path) -> None:
    """Raise Conflict unless the store is made for its group."""
    if files.access_of(root) is not GROUP:
        raise Conflict(
            f"the store at {root} is there already, for its user alone",
            hint=f"chgrp -R GROUP {root}; chmod -R u+rwX,g+rwX,o-rwx {root};"
            f" find {root} -type d -exec chmod g+s {{}} +",
        )


def _write_marker(root: Path, disk: Disk, access: Access) -> None:
    draft = draft_path(root / "tmp")
    fd = files.create(draft, access)
    try:
        write_all(fd, marker.encode_new(), 0)
        disk.sync_file(fd, "marker data")
    finally:
        os.close(fd)
    with suppress(FileExistsError):  # made by another process at the same moment: as good
        os.link(draft, root / marker.NAME)
    disk.sync_directory(root, "marker name")
    draft.unlink()
