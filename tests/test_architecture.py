"""The layers of the design hold: an import only ever points downwards."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path


def lint_imports(folder: Path, config: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-cache", "--config", config],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_imports_point_downwards(repository: Path) -> None:
    result = lint_imports(repository, repository / ".importlinter")
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_package_has_its_layer(repository: Path) -> None:
    """A new package must be put somewhere, or nothing would hold it."""
    config = configparser.ConfigParser()
    config.read(repository / ".importlinter")
    text = config["importlinter:contract:layers"]["layers"]
    layered = {name.strip(" ()") for line in text.splitlines() for name in line.split("|")} - {""}
    packages = {path.parent.name for path in (repository / "src/holdfast").glob("*/__init__.py")}
    assert packages <= layered


def test_an_upward_import_is_noticed(tmp_path: Path, repository: Path) -> None:
    """The check itself is checked: a store that imports the command line breaks the contract."""
    package = tmp_path / "src/holdfast"
    for name in ("", "cli", "store", "oci"):  # those that have contracts of their own
        (package / name).mkdir(parents=True, exist_ok=True)
        (package / name / "__init__.py").write_text("")
    (package / "store/upwards.py").write_text("from holdfast import cli\n")
    config = tmp_path / ".importlinter"
    config.write_text((repository / ".importlinter").read_text())
    program = "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports; "
    program += "sys.exit(lint_imports(config_filename='.importlinter', cache_dir=None))"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "holdfast.store.upwards" in result.stdout


def test_all_syncs_go_through_one_seam(repository: Path) -> None:
    """There each has a name, and test_power_loss.py leaves them out one by one."""
    source = repository / "src/holdfast"
    sync = re.compile(r"\b(fsync|fdatasync|syncfs|sync_file_range|msync)\b|\bos\.sync\b")
    others = {source / "testing"}  # a disk that forgets has them from its other side
    syncing = [
        path
        for path in source.rglob("*.py")
        if sync.search(path.read_text()) and not others & set(path.parents)
    ]
    assert syncing == [source / "model/disk.py"]


def test_the_tests_mirror_the_source(repository: Path) -> None:
    """Each package has a folder with tests, or a file of them beside those of its parent."""
    source, tests = repository / "src/holdfast", repository / "tests"
    packages = [each.parent.relative_to(source) for each in source.rglob("*/__init__.py")]
    assert Path("store/backends") in packages
    alone = [
        str(package)
        for package in packages
        if not any((tests / package).rglob("test_*.py"))
        and not any((tests / package.parent).glob(f"test_{package.name}*.py"))
    ]
    assert alone == []
