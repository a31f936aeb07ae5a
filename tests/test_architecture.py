"""The layers of the design hold: an import only ever points downwards."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from holdfast.model.disk import Sync


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
    packages = {path.parent.name for path in (repository / "src/holdfast").glob("*/__init__.py")}
    assert packages <= layered(repository, "layers")


def test_all_that_is_in_the_store_has_its_layer(repository: Path) -> None:
    inside = (repository / "src/holdfast/store").glob("[!_]*")
    assert {path.stem for path in inside} == layered(repository, "store")


def layered(repository: Path, contract: str) -> set[str]:
    """What a contract has a layer for."""
    config = configparser.ConfigParser()
    config.read(repository / ".importlinter")
    text = config[f"importlinter:contract:{contract}"]["layers"]
    return {name.strip(" ()") for line in text.splitlines() for name in line.split("|")} - {""}


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


# What makes bytes durable: a call, a file that is opened so that each write does, a writing flag.
SYNCING = re.compile(
    r"\b(fsync|fdatasync|syncfs|sync_file_range|msync|O_D?SYNC|O_RSYNC|RWF_D?SYNC|MS_SYNC)\b"
    r"|\bos\.sync\b|\bfrom os import\b.*\bsync\b|\bsync\(\)"
)


def flushed_mappings(source: str) -> Iterator[str]:
    """Calls of `flush` for what is called after a mapping, or with a part of it to flush."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr="flush"), args=arguments):
                if arguments or re.search("map|memory|room", ast.unparse(of), re.IGNORECASE):
                    yield ast.unparse(node)


def sources(repository: Path) -> list[Path]:
    """Of the package; a disk that forgets has all syncs from its other side."""
    source = repository / "src/holdfast"
    return [path for path in source.rglob("*.py") if source / "testing" not in path.parents]


# Calls of that name on objects of the user's libraries: nothing of the store waits for them.
OF_LIBRARIES = {"session/worker/kinds/connections.py": "obj.sync()"}


def test_all_syncs_go_through_one_seam(repository: Path) -> None:
    """There each has a name, and test_power_loss.py leaves them out one by one."""

    def syncs(path: Path) -> bool:
        other = OF_LIBRARIES.get(path.relative_to(repository / "src/holdfast").as_posix(), "\0")
        source = path.read_text().replace(other, "pass")
        return bool(SYNCING.search(source) or [*flushed_mappings(source)])

    syncing = [path for path in sources(repository) if syncs(path)]
    assert syncing == [repository / "src/holdfast/model/disk.py"]


def test_a_sync_beside_the_seam_is_noticed() -> None:
    for wrong in (
        "os.fsync(fd)",
        "os.sync()",
        "from os import close, sync",
        "os.open(path, os.O_WRONLY | os.O_DSYNC)",
        "os.open(path, os.O_SYNC | os.O_CREAT)",
        "os.pwritev(fd, pieces, 0, os.RWF_SYNC)",
        "os.pwritev(fd, pieces, 0, os.RWF_DSYNC)",
        "libc.sync_file_range(fd, 0, 0, 7)",
        "libc.msync(address, size, MS_SYNC)",
    ):
        assert SYNCING.search(wrong), wrong
    for wrong in ("mapping.flush()", "self._memory.flush()", "file.flush(0, 4096)"):
        assert [*flushed_mappings(wrong)] == [wrong]
    for right in ("async with x:", "portal.sync_name()", "from holdfast import sync"):
        assert not SYNCING.search(right), right
    for right in ("file.flush()", "sys.stdout.flush()"):
        assert [*flushed_mappings(right)] == []


# What gives a sync its name.
SEAM = {"sync_file", "sync_directory", "sync_way", "write", "_publish"}


def named_syncs(source: str) -> Iterator[str]:
    """The names that syncs have in a piece of code, each as often as it stands there."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=attribute), args=[*_, ast.Constant(value=name)]):
                if attribute in SEAM and name in get_args(Sync):
                    yield name
            case ast.keyword(arg="sync", value=ast.Tuple(elts=[_, *names])):  # of `publish`
                found = [name.value for name in names if isinstance(name, ast.Constant)]
                yield from (str(name) for name in found if name in get_args(Sync))


def test_every_sync_has_a_name_of_its_own(repository: Path) -> None:
    """Or leaving one out would leave out others, and one that is needed would hide that they are
    not."""
    found = Counter(name for path in sources(repository) for name in named_syncs(path.read_text()))
    del found["probe"]  # which promises nothing
    assert found == Counter([name for name in get_args(Sync) if name != "probe"])


# The fencing token of a lease is a number that everybody may know.
FENCES = {
    "oci/container.py: record.token != token",
    "sandbox/handing.py: owner.token != plea.lease",
    "sandbox/leaving.py: sandbox.lease.token != plea.lease",
    "store/leases.py: o.token not in ours",
    "store/log/catalogue.py: owner.token == token",
    "store/log/catalogue.py: owner.token != fence",
}
PLAIN = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def plain_comparisons(source: str) -> Iterator[str]:
    """Comparisons that take the longer the more of a token is right."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(each, PLAIN) for each in node.ops):
            if any(is_secret(each) for each in (node.left, *node.comparators)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Match) and is_secret(node.subject):
            yield ast.unparse(node.subject)


def is_secret(value: ast.expr) -> bool:
    """Whether a value is by its name one that opens something, or what was made of one."""
    match value:
        case ast.Name(id=word) | ast.Attribute(attr=word):
            return re.search("token|cookie|bearer|proof|^mac$", word, re.IGNORECASE) is not None
        case ast.Call(func=function, args=arguments):
            of = [function.value] if isinstance(function, ast.Attribute) else []
            measured = isinstance(function, ast.Name) and function.id == "len"
            return not measured and any(is_secret(each) for each in (function, *of, *arguments))
        case ast.Subscript(value=whole, slice=ast.Constant(value=str(word))):
            return is_secret(whole) or is_secret(ast.Name(word))
        case _:
            return False


def test_tokens_are_compared_in_constant_time(repository: Path) -> None:
    """By `hmac.compare_digest` and by nothing else: a plain comparison tells by its time how much
    of a guess is right. Tokens of tenants are looked up by their digest, which tells nothing."""
    source = repository / "src/holdfast"
    files = [path for path in source.rglob("*.py") if source / "testing" not in path.parents]
    found = {
        f"{path.relative_to(source)}: {each}"
        for path in files
        for each in plain_comparisons(path.read_text())
    }
    assert found == FENCES
    comparing = {
        str(path.relative_to(source)) for path in files if "compare_digest(" in path.read_text()
    }
    assert {"sandbox/keeping.py", "sandbox/leaving.py", "server/guard.py"} <= comparing


def test_a_plain_comparison_is_noticed() -> None:
    for wrong in (
        "given == self._token",
        "token_hash(given) != kept",
        "given.encode() == token.encode()",
        "cookie in known",
        "headers['token'] == word",
        "held.value == self.cookie",
    ):
        assert [*plain_comparisons(wrong)] == [wrong]
    for right in ("hmac.compare_digest(given, token)", "token is None", "len(token) < 16"):
        assert [*plain_comparisons(right)] == []


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
