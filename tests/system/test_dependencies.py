"""The metadata names every library that the code imports, with bounds that were tried."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

# Which extras a part of the package may rely on, beside what everything needs. A part that is
# not named here relies on no extra.
EXTRAS_OF: dict[str, set[str]] = {
    "server": {"server"},
    "server/mcp": {"server", "mcp"},
    "client": {"server"},
    "cli": {"server"},
    "cli/prompt": {"repl"},
    "integrations/ipython": {"jupyter"},
    "integrations/langgraph": {"langgraph"},
    "store/backends/objects": {"s3"},
    "store/cipher.py": {"encryption"},
    "store/slots.py": {"encryption"},
    "model/tracing.py": {"otel"},
    "testing": {"testing"},
}
# Libraries of the user's session: the worker imports them only when the session has done so.
OF_THE_SESSION = {
    *("PIL", "catboost", "cv2", "duckdb", "h5py", "jax", "lightgbm", "matplotlib", "netCDF4"),
    *("numba", "pandas", "sklearn", "spacy", "sqlalchemy", "torch", "xgboost"),
}


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, object]:
    metadata: dict[str, object] = tomllib.loads((repository / "pyproject.toml").read_text())
    found = metadata["project"]
    assert isinstance(found, dict)
    return found


def bare(requirement: str) -> str:
    """The name of a required distribution, in one spelling."""
    name = re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(project: dict[str, object], extras: set[str]) -> set[str]:
    groups = project["optional-dependencies"]
    assert isinstance(groups, dict)
    needs = [*project["dependencies"]]  # type: ignore[misc]
    for extra in extras:
        needs += groups[extra]
    return {bare(each) for each in needs}


def extras_of(module: str) -> set[str]:
    """The extras of the most specific part that holds a module."""
    parts = [part for part in EXTRAS_OF if module == part or module.startswith(f"{part}/")]
    return EXTRAS_OF[max(parts, key=len)] if parts else set()


def imports_of(source: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"holdfast"}


def test_every_import_is_declared(repository: Path, project: dict[str, object]) -> None:
    distributions = packages_distributions()
    package = repository / "src" / "holdfast"
    missing = []
    for source in sorted(package.rglob("*.py")):
        module = source.relative_to(package).as_posix()
        allowed = declared(project, extras_of(module))
        for name in imports_of(source):
            if name in OF_THE_SESSION and module.startswith("session/worker/"):
                continue
            names = {bare(each) for each in distributions.get(name, [name])}
            if not names & allowed:
                missing.append(f"{module} imports {name}")
    assert not missing


def test_lower_bounds_are_those_tried(repository: Path, project: dict[str, object]) -> None:
    lock = (repository / "requirements" / "lowest.txt").read_text()
    tried = {bare(name): version for name, version in re.findall(r"^(\S+)==(\S+)", lock, re.M)}
    groups = project["optional-dependencies"]
    assert isinstance(groups, dict)
    needs = [*project["dependencies"], *(each for group in groups.values() for each in group)]  # type: ignore[misc]
    wrong = []
    for need in needs:
        if need.startswith("holdfast["):
            continue
        bound = re.fullmatch(r"[\w.-]+>=([\d.]+)", need)
        assert bound, f"{need} has no plain lower bound"
        pinned = tried[bare(need)]
        if not re.fullmatch(rf"{re.escape(bound[1])}(\.0)*", pinned):
            wrong.append(f"{need}, but the tests with the lowest versions use {pinned}")
    assert not wrong
