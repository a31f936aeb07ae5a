"""The one suite that every vault passes: what is saved comes back verified, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import uuid_utils

from holdfast.model.errors import Corrupt, Denied, HoldfastError
from holdfast.model.subject import Subject
from holdfast.oci.private import private_folder
from holdfast.oci.vault import Saved, Vault, part_files

SUBJECT = Subject("container", "default/tc")
OTHER = Subject("container", "default/shop/web-0/app")


class VaultContract:
    """Inherit it, and give `vault` and `harm`."""

    @pytest.fixture
    def vault(self, tmp_path: Path) -> Vault:
        """An empty vault; a second call with the same path opens the same one."""
        raise NotImplementedError  # whoever is tested says

    def harm(self, tmp_path: Path) -> None:
        """Flip a bit of the pages of the newest checkpoint, wherever the vault keeps them."""
        raise NotImplementedError  # whoever is tested says

    @staticmethod
    def put(
        vault: Vault,
        subject: Subject = SUBJECT,
        pages: bytes | None = None,
        clock: int | None = None,
    ) -> Saved:
        """Save a checkpoint with these pages, on a node whose clock shows these seconds."""
        staged = vault.stage()
        if clock is not None:
            staged = staged.with_name(str(uuid_utils.uuid7(timestamp=clock)))
        private_folder(staged)
        (staged / "memory").mkdir()
        (staged / "files").mkdir()
        (staged / ".work").mkdir()
        (staged / ".work/dump.log").write_text("not a part")
        (staged / "memory/pages-1.img").write_bytes(os.urandom(200_000) if pages is None else pages)
        (staged / "memory/empty.img").touch()
        (staged / "files/upper").write_bytes(b"HFLAYER1...")
        (staged / "environment").write_text('{"machine": "vax"}')
        saved = vault.save(subject, staged, "a reason")
        assert not staged.exists()
        return saved

    def test_what_was_saved_comes_back(self, vault: Vault, tmp_path: Path) -> None:
        pages = os.urandom(100_000)
        saved = self.put(vault, pages=pages)
        assert saved.subject == SUBJECT
        assert saved.size_bytes >= 100_000 + 11
        folder = vault.fetch(saved, tmp_path)
        found = {name: path.read_bytes() for name, path in part_files(folder)}
        assert found == {
            "memory/pages-1.img": pages,
            "memory/empty.img": b"",
            "files/upper": b"HFLAYER1...",
            "environment": b'{"machine": "vax"}',
        }

    def test_the_newest_comes_first_and_subjects_are_apart(self, vault: Vault) -> None:
        assert vault.list(SUBJECT) == []
        assert vault.subjects() == []
        saved = [self.put(vault) for _ in range(3)]
        other = self.put(vault, OTHER)
        assert [each.id for each in vault.list(SUBJECT)] == [each.id for each in reversed(saved)]
        assert [each.id for each in vault.list(OTHER)] == [other.id]
        assert vault.subjects() == [OTHER, SUBJECT]

    def test_what_is_forgotten_is_gone(self, vault: Vault, tmp_path: Path) -> None:
        first, second = self.put(vault), self.put(vault)
        vault.forget(second)
        assert [each.id for each in vault.list(SUBJECT)] == [first.id]
        with pytest.raises(HoldfastError):
            vault.fetch(second, tmp_path)
        vault.forget(first)
        assert vault.list(SUBJECT) == []

    def test_a_flipped_bit_is_found(self, vault: Vault, tmp_path: Path) -> None:
        saved = self.put(vault)
        self.harm(tmp_path)
        with pytest.raises(Corrupt):
            vault.fetch(saved, tmp_path)

    def test_another_key_makes_it_foreign(
        self, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        saved = self.put(vault)
        again = self.reopen(tmp_path, {"HOLDFAST_HOME": str(tmp_path / "elsewhere")})
        with pytest.raises(Denied):
            again.fetch(saved, tmp_path)

    def reopen(self, tmp_path: Path, environ: dict[str, str]) -> Vault:
        """The same vault as a node with another home sees it."""
        raise NotImplementedError  # whoever is tested says
