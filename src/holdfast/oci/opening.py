"""From a mode to the vault that stands behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.oci.path_vault import PathVault
from holdfast.oci.policy import Mode, Policy
from holdfast.oci.vault import Vault

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.keys import Keyring


def open_vault(
    mode: Mode,
    base_path: str | None,
    policy: Policy,
    environ: Mapping[str, str],
    token: Callable[[], int | None] = lambda: None,
) -> Vault:
    """The vault of a mode. What takes long to import is imported when it is used. `token` is asked
    for the right to advance a container in a store."""
    if mode == "store":
        from holdfast.oci.store_vault import StoreVault

        def store() -> Store:
            from holdfast.store import open_store

            return open_store(policy.store, environ=environ)

        return StoreVault(store, Path(policy.work_path), Path(policy.ledger_path), token)

    def keyring() -> Keyring:
        from holdfast.store.keys import load_keyring

        return load_keyring(environ)

    base = Path(base_path or policy.checkpoint_path)
    return PathVault(base, keyring, increments=policy.line > 1)
