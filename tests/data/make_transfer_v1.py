"""Makes tests/data/transfer-v1 out of tests/data/store-v1: the same checkpoints as an archive of
format 1, and in an encrypted store.

    python tests/data/make_transfer_v1.py

It is made once and committed; every later version must read it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

DATA = Path(__file__).parent
PLACE = DATA / "transfer-v1"
PASSPHRASE = "nothing secret is behind this"
COST = 2**10  # of scrypt: little, for the sake of the tests


def main() -> None:
    from holdfast.store import open_store, slots
    from holdfast.store.backends.local.backend import LocalBackend
    from holdfast.store.keys import Key, Keyring
    from holdfast.store.slots import Secret

    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    keyring = Keyring(Key.from_text((DATA / "store-v1" / "key").read_text()))
    secret = slots.new_key_file(PLACE / "encryption.key")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(DATA / "store-v1" / "store", Path(folder, "store"))
        store = open_store(Path(folder, "store"), keyring=keyring)
        store.export("golden", PLACE / "archive.holdfast", ancestors=True)
        place = PLACE / "encrypted"
        with open_store(place, keyring=keyring, encrypt=True, secret=secret) as encrypted:
            store.copy_to(encrypted)
            for _ in range(5):  # so that the log grows long enough to be folded into a pack
                with encrypted.draft("state/bulk") as draft:
                    draft.put("state", os.urandom(950_000))
                    draft.commit()
            encrypted.delete(*encrypted.list("state/bulk"))
            encrypted.prune()
            assert encrypted.verify(deep=True).ok
    backend = LocalBackend(place)
    data_key, _ = slots.unlock(backend, [secret])
    slots.add(backend, data_key, Secret.passphrase(PASSPHRASE), COST)
    for name in ("holds", "tmp", "leases"):
        shutil.rmtree(place / name, ignore_errors=True)
    (place / "reserve").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
