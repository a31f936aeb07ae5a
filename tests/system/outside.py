"""What is kept durably outside of a store and of states: containers' checkpoints in folders, their
ledgers, and files of the server for agents. Each promise is text that says how to look for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from blake3 import blake3
from tests.system import slot_acts

from holdfast.model.disk import Disk
from holdfast.model.errors import HoldfastError, from_os_error
from holdfast.model.subject import Subject
from holdfast.oci.ledger import Ledger, count
from holdfast.oci.path_vault import PathVault
from holdfast.oci.private import private_folder
from holdfast.oci.vault import LAYER, MEMORY
from holdfast.server.mcp.arguments import WriteFile
from holdfast.server.mcp.passes import Pass, Passes
from holdfast.server.mcp.workspace import Workspace
from holdfast.store.keys import Key, Keyring

SUBJECT = Subject("container", "default/tc")
SIZE = 9_000
_KEYRING = Keyring(Key(bytes(range(32))))
_VAULT = "place/of/containers"
_LEDGERS = "place/of/ledgers"
_PASSES = "place/of/passes"
_WORKSPACE = "workspace"


def vault_at(base: str, disk: Disk | None = None) -> PathVault:
    # Whole ones: an increment is no other way to the disk, and needs links.
    return PathVault(Path(base, _VAULT), lambda: _KEYRING, increments=False, disk=disk)


def save_container(base: str, number: int, disk: Disk | None = None) -> str:
    """Save a checkpoint of a container; the promise of it."""
    vault = vault_at(base, disk)
    staged = vault.stage()
    try:
        for name, data in _parts(number).items():
            private_folder((staged / name).parent)
            (staged / name).write_bytes(data)
    except OSError as error:
        raise from_os_error(error, "dumping a container") from error
    return f"{base}/=container {vault.save(SUBJECT, staged, str(number)).id} {number}"


def rewrite_containers(base: str, disk: Disk) -> None:
    """Compress every checkpoint; whatever was promised of it holds as before."""
    vault = vault_at(base, disk)
    for saved in vault.list(SUBJECT):
        assert vault.rewrite(saved, whole=False, compress=True)


def count_failure(base: str, disk: Disk) -> str:
    """Count a failure where no checkpoint has made the folders, as a vault in a store does."""
    try:
        count(Path(base, _LEDGERS, "ledger.json"), "a checkpoint", +1, disk)
    except OSError as error:
        raise from_os_error(error, "counting a failure") from error
    return f"{base}/=ledger"


def keep_pass(base: str, number: int, disk: Disk) -> str:
    passes = _passes(base, disk)
    if passes.find(f"agent{number}") is None:  # whoever was told of an error tries again
        passes.keep(f"agent{number}", _pass(number))
    return f"{base}/=pass {number}"


def write_file(base: str, number: int, disk: Disk) -> str:
    """Replace a file. It promises no more than to do so whole or not at all."""
    asked = WriteFile(path="notes.txt", content=_text(number))
    Workspace(Path(base, _WORKSPACE), disk).write("sandbox/a", asked)
    return f"{base}/=file"


def losses(base: str, promised: Iterable[str]) -> list[str]:
    """Which promises are not kept, and what does not go on."""
    found = []
    known: dict[str, Callable[..., bool]] = {
        "container": _container_is_there,
        "secret": slot_acts.is_kept,
        "ledger": _failure_is_counted,
        "pass": _pass_is_there,
        "file": _file_is_whole,
    }
    kinds = set()
    for one in sorted(promised):
        kind, *which = one.removeprefix(f"{base}/=").split()
        kinds.add(kind)
        try:
            if not known[kind](base, *which):
                found.append(f"{one} is lost")
        except HoldfastError as error:
            found.append(f"{one}: {error.kind}: {error}")
    if "container" in kinds and not found:
        found += losses_of_next(base)
    return found


def losses_of_next(base: str) -> list[str]:
    try:
        _, which, number = save_container(base, 99).split()
        return [] if _container_is_there(base, which, number) else ["the next one is lost"]
    except HoldfastError as error:
        return [f"containers do not go on: {error}"]


def _container_is_there(base: str, checkpoint: str, number: str) -> bool:
    vault = vault_at(base)
    saved = [each for each in vault.list(SUBJECT) if each.id == checkpoint]
    if not saved:
        return False
    vault.check(saved[0])
    with tempfile.TemporaryDirectory() as scratch:
        place = vault.fetch(saved[0], Path(scratch))
        return all((place / n).read_bytes() == data for n, data in _parts(int(number)).items())


def _failure_is_counted(base: str) -> bool:
    return Ledger.read(Path(base, _LEDGERS, "ledger.json")).of("a checkpoint") > 0


def _pass_is_there(base: str, number: str) -> bool:
    return _passes(base).find(f"agent{number}") == _pass(int(number))


def _file_is_whole(base: str) -> bool:
    path = Path(base, _WORKSPACE, "notes.txt")
    return not path.exists() or path.read_text() in (_text(0), _text(1))


def _passes(base: str, disk: Disk | None = None) -> Passes:
    return Passes(Path(base, _PASSES), "http://host:1", disk)


def _pass(number: int) -> Pass:
    return Pass(sandbox_id=f"{number}" * 32, sandbox_token=f"{number}" * 64)


def _text(number: int) -> str:
    return f"line {number}\n" * 700


def _parts(number: int) -> dict[str, bytes]:
    names = (f"{MEMORY}/pages-1.img", f"{MEMORY}/core-1.img", LAYER, "environment")
    parts = {name: blake3(f"{name} {number}".encode()).digest(length=SIZE) for name in names}
    return {**parts, LAYER: parts[LAYER] * 8}  # large enough to be compressed, and worth it
