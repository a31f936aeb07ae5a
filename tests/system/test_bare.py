"""The set-up on a bare Debian 12, which is made for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_set_up_works_where_nothing_is_installed(tmp_path: Path, repository: Path) -> None:
    done = subprocess.run(
        [repository / "scripts" / "try-bare", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "as root and as a user without rights" in done.stdout
    # As root, the engines are there and work; without rights, what needs none does.
    as_root, _, as_someone = done.stdout.partition("make setup as someone")
    assert "whole processes are frozen" in as_root
    assert "yes  session" in as_someone
