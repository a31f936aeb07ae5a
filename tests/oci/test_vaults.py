"""Both vaults pass the one suite; and what is a directory's alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt, Denied
from holdfast.oci.ledger import Ledger, count
from holdfast.oci.opening import open_vault
from holdfast.oci.policy import Policy
from holdfast.oci.private import private_folder
from holdfast.oci.vault import Vault, sweep
from holdfast.store import open_store
from holdfast.testing.dumps import Dump, read, write
from holdfast.testing.vaults import OTHER, SUBJECT, VaultContract


def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOLDFAST_HOME": str(tmp_path / "home")}


class TestPathVault(VaultContract):
    @pytest.fixture
    def vault(self, tmp_path: Path) -> Vault:
        return self.reopen(tmp_path, environ(tmp_path))

    def reopen(self, tmp_path: Path, environ: dict[str, str]) -> Vault:
        return open_vault("local", str(tmp_path / "base"), Policy(), environ)

    def harm(self, tmp_path: Path) -> None:
        (path,) = (tmp_path / "base").rglob("pages-1.img")
        data = bytearray(path.read_bytes())
        data[77_777] ^= 4
        path.write_bytes(data)

    def test_files_that_nobody_signed_or_that_are_gone(self, vault: Vault, tmp_path: Path) -> None:
        saved = self.put(vault)
        place = tmp_path / f"base/default/tc/@{saved.id}"
        (place / "memory/extra.img").touch()
        with pytest.raises(Corrupt, match="nobody signed"):
            vault.fetch(saved, tmp_path)
        (place / "memory/extra.img").unlink()
        vault.fetch(saved, tmp_path)
        (place / "environment").unlink()
        with pytest.raises(Corrupt, match="lost environment"):
            vault.fetch(saved, tmp_path)

    def test_a_changed_manifest(self, vault: Vault, tmp_path: Path) -> None:
        saved = self.put(vault)
        path = tmp_path / f"base/default/tc/@{saved.id}/manifest.json"
        path.write_text(path.read_text().replace("a reason", "another"))
        with pytest.raises(Corrupt, match="changed after it was signed"):
            vault.fetch(saved, tmp_path)

    def test_a_checkpoint_of_another_container(self, vault: Vault, tmp_path: Path) -> None:
        saved = self.put(vault)
        theirs = tmp_path / f"base/{OTHER.name}/@{saved.id}"
        theirs.parent.mkdir(parents=True)
        (tmp_path / f"base/default/tc/@{saved.id}").rename(theirs)
        (found,) = vault.list(OTHER)
        with pytest.raises(Denied, match="belongs to container/default/tc"):
            vault.fetch(found, tmp_path)

    def test_only_the_newest_are_kept(self, vault: Vault) -> None:
        saved = [self.put(vault) for _ in range(4)]
        vault.keep(SUBJECT, 2)
        assert [each.id for each in vault.list(SUBJECT)] == [saved[3].id, saved[2].id]

    def test_clocks_do_not_decide_the_newest(self, vault: Vault) -> None:
        """One node's clock is a day ahead of the other's."""
        ahead = time.time_ns() // 1_000_000_000 + 86_400
        saved = [self.put(vault, clock=clock) for clock in (ahead, None, None, ahead)]
        found = [each.id for each in vault.list(SUBJECT)]
        assert found == [each.id for each in reversed(saved)]
        vault.keep(SUBJECT, 1)
        assert [each.id for each in vault.list(SUBJECT)] == [saved[-1].id]

    def test_nobody_else_may_look(self, vault: Vault, tmp_path: Path) -> None:
        self.put(vault)
        assert (tmp_path / "base").stat().st_mode & 0o077 == 0


class TestStoreVault(VaultContract):
    @pytest.fixture
    def vault(self, tmp_path: Path) -> Vault:
        return self.reopen(tmp_path, environ(tmp_path))

    def reopen(self, tmp_path: Path, environ: dict[str, str]) -> Vault:
        policy = Policy(
            mode="store",
            store=str(tmp_path / "store"),
            work_path=str(tmp_path / "work"),
            ledger_path=str(tmp_path / "ledgers"),
        )
        return open_vault("store", None, policy, environ)

    def harm(self, tmp_path: Path) -> None:
        files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
        largest = max(files, key=lambda path: path.stat().st_size)
        data = bytearray(largest.read_bytes())
        data[len(data) // 2] ^= 4
        largest.write_bytes(data)

    def test_nothing_leans_on_anything(self, vault: Vault, tmp_path: Path) -> None:
        """So there is nothing to fold: what is older may go at any time."""
        dumps: list[Dump] = [
            {"pagemap-1.img": {**dict.fromkeys(range(1, 60), 1), number: 9}} for number in (3, 7)
        ]
        saved = []
        for dump in dumps:
            staged = vault.stage()
            private_folder(staged / "files")
            write(staged / "memory", dump)
            (staged / "files/upper").write_bytes(b"HFLAYER1...")
            saved.append(vault.save(SUBJECT, staged, "a reason"))
        written = [each.written_bytes or 0 for each in saved]
        vault.forget(saved[0])
        with open_store(tmp_path / "store", environ=environ(tmp_path)) as store:
            store.prune()
        (tmp_path / "scratch").mkdir()
        assert read(vault.fetch(saved[1], tmp_path / "scratch") / "memory") == dumps[1]
        assert written[1] < written[0] + 4096

    def test_a_rollback_decides_what_is_newest(self, vault: Vault, tmp_path: Path) -> None:
        first, _ = self.put(vault), self.put(vault)
        with open_store(tmp_path / "store", environ=environ(tmp_path)) as store:
            back = store.rollback(str(SUBJECT))
            assert back.rollback_of == first.id
        assert vault.list(SUBJECT)[0].id == back.id


def test_a_ledger_counts_by_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "deep/@ledger.json"
    assert Ledger.read(path).of("a") == 0
    for by in (+1, +1, -1):
        count(path, "a", by)
    count(path, "b", +1)
    assert (Ledger.read(path).of("a"), Ledger.read(path).of("b")) == (1, 1)
    count(path, "a", -5)
    assert Ledger.read(path) == Ledger(failures={"b": 1})
    path.write_text("{broken")
    assert Ledger.read(path) == Ledger()


def test_old_scratch_is_swept(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / "old", (1, 1))
    sweep(tmp_path)
    assert os.listdir(tmp_path) == ["new"]
