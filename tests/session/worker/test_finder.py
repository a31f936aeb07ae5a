"""Modules that a worker finds by itself are those that the interpreter finds, as it leaves them."""

from __future__ import annotations

import json
import marshal
import os
import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from holdfast.session import Session

# What is there after some imports: of each module all that tells where it came from.
PROGRAM = """
import contextlib, importlib, json, sys
from holdfast.session.worker.finder import Finder

def told(module):
    spec = module.__spec__
    loader = getattr(spec, "loader", None)
    return [
        getattr(module, "__file__", None), getattr(module, "__cached__", None),
        list(getattr(module, "__path__", [])), getattr(module, "__package__", None),
        type(loader).__name__, loader is getattr(module, "__loader__", None),
        "" if isinstance(loader, type) else str(getattr(loader, "__dict__", "")),
        None if spec is None else [
            spec.name, spec.origin, spec.cached, spec.parent, spec.has_location,
            spec.loader_state is None, spec.submodule_search_locations is None,
        ],
        repr(getattr(module, "value", None)),
        str(getattr(getattr(module, "code", None), "co_filename", None)),
    ]

names, shorter, folders = json.loads(sys.argv[1])
before = set(sys.modules)
sys.path[:0] = folders
finder = contextlib.nullcontext()
if shorter:
    found, finder = [], Finder()
    find = finder.find_spec
    finder.find_spec = lambda *asked: found.append(find(*asked)) or found[-1]
with finder:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(name, error, file=sys.stderr)
assert not any(type(each).__name__ == "Finder" for each in sys.meta_path)
print(json.dumps({
    "modules": {n: told(sys.modules[n]) for n in sorted(set(sys.modules) - before)
                if getattr(sys.modules[n], "__spec__", None) is not None},
    "shortened": [each.name for each in found if each is not None] if shorter else [],
}))
"""


def imported(
    names: list[str], folders: list[Path], *, shorter: bool, cwd: Path | None = None
) -> dict[str, Any]:
    asked = json.dumps([names, shorter, [str(folder) for folder in folders]])
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, asked],
        capture_output=True, text=True, check=True, cwd=cwd, env=environment,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"said": done.stderr}


def same(names: list[str], folders: list[Path], cwd: Path | None = None) -> list[str]:
    """What was found in the shorter way, where all is as the interpreter leaves it."""
    plain = imported(names, folders, shorter=False, cwd=cwd)
    ours = imported(names, folders, shorter=True, cwd=cwd)
    assert ours["modules"] == plain["modules"]
    assert ours["said"] == plain["said"]
    shortened: list[str] = ours["shortened"]
    return shortened


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"value = {value!r}\ncode = (lambda: None).__code__\n")
    return path


def test_libraries_are_as_the_interpreter_leaves_them() -> None:
    shortened = same(["numpy", "decimal", "tomllib", "msgspec", "email.message", "xml.dom"], [])
    assert {"numpy", "numpy.lib", "tomllib", "email.message", "msgspec"} <= {*shortened}
    assert "numpy._core._multiarray_umath" not in shortened  # no source


def test_what_a_folder_can_hold(tmp_path: Path) -> None:
    write(tmp_path / "plain.py", 1)
    write(tmp_path / "package/__init__.py", 2)
    write(tmp_path / "package/inner.py", 3)
    write(tmp_path / "spaces/part.py", 4)  # a package without a file of its own
    py_compile.compile(str(write(tmp_path / "compiled.py", 5)), str(tmp_path / "compiled.pyc"))
    (tmp_path / "compiled.py").unlink()
    write(tmp_path / "both.py", 6)
    write(tmp_path / "both/__init__.py", 7)
    write(tmp_path / "empty.py", 8)
    (tmp_path / "empty").mkdir()
    (tmp_path / "wrong.py").write_text("raise ImportError('not today')")
    names = ["plain", "package.inner", "spaces.part", "compiled", "both", "empty", "wrong", "none"]
    shortened = same(names, [tmp_path])
    assert {"plain", "package", "package.inner", "both", "wrong"} <= {*shortened}
    assert {*shortened}.isdisjoint({"spaces", "compiled", "empty"})


def test_whoever_comes_first_is_found(tmp_path: Path) -> None:
    first, second, here = tmp_path / "first", tmp_path / "second", tmp_path / "here"
    write(second / "one.py", "second")
    write(second / "two.py", "second")
    write(second / "three.py", "second")
    write(here / "colorsys.py", "here")  # instead of the library's
    first.mkdir()
    py_compile.compile(str(second / "one.py"), str(first / "one.pyc"))
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("three.py", "value = 'archive'")
    folders = [tmp_path / "missing", first, tmp_path / "archive.zip", second]
    same(["one", "two", "three", "colorsys"], folders, here)


def test_what_only_has_the_name_of_source_is_passed_over(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    names = ["linked", "folder", "pipe", "package", "inside"]
    for name in names[:3]:
        write(second / f"{name}.py", name)
    for name in names[3:]:
        write(second / f"{name}/__init__.py", name)
    for name in ("folder.py", "inside/__init__.py", "package"):
        (first / name).mkdir(parents=True)
    for name in ("linked.py", "package/__init__.py"):
        (first / name).symlink_to(tmp_path / "nowhere.py")
    os.mkfifo(first / "pipe.py")
    same(names, [first, second])
    assert imported(names, [first, second], shorter=True)["said"] == ""


@pytest.mark.parametrize("content", [None, {"no": "code"}])
def test_compiled_files_without_code_are_refused_as_ever(tmp_path: Path, content: object) -> None:
    cached = Path(py_compile.compile(str(write(tmp_path / "odd.py", 1))) or "")
    cached.write_bytes(cached.read_bytes()[:16] + marshal.dumps(content))
    same(["odd"], [tmp_path])
    assert "Non-code object" in imported(["odd"], [tmp_path], shorter=True)["said"]


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_source_that_changed_is_compiled_again(
    tmp_path: Path, mode: py_compile.PycInvalidationMode
) -> None:
    source = write(tmp_path / "changing.py", 1)
    cached = Path(py_compile.compile(str(source), invalidation_mode=mode) or "")
    before = imported(["changing"], [tmp_path], shorter=True)
    assert before["modules"]["changing"][8] == "1"
    write(source, 22)
    assert "changing" in same(["changing"], [tmp_path])
    cached.write_bytes(cached.read_bytes()[:40])  # of a writer that was cut off
    # A compiled file that is cut short is an error, or not, as the interpreter has it.
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    ours = "from holdfast.session.worker.finder import Finder\nwith Finder(): "
    said = [
        subprocess.run(
            [sys.executable, "-B", "-c", f"{code}{within}import changing"],
            capture_output=True, text=True, check=False,
        ).stderr.splitlines()[-1:]
        for within in ("", ours)
    ]  # fmt: skip
    assert said[0] == said[1]


def test_code_knows_where_its_source_is_now(tmp_path: Path) -> None:
    write(tmp_path / "old/moved.py", 1)
    imported(["moved"], [tmp_path / "old"], shorter=False)
    (tmp_path / "old").rename(tmp_path / "new")
    found = imported(["moved"], [tmp_path / "new"], shorter=True)["modules"]["moved"]
    assert found[9] == str(tmp_path / "new/moved.py")


async def test_a_session_is_left_alone(tmp_path: Path) -> None:
    looks = "import sys\n[type(each).__name__ for each in sys.meta_path if type(each) is not type]"
    async with Session("work", store=str(tmp_path)) as session:
        await session.execute("import numpy as np\na = np.arange(10)", check=True)
        await session.checkpoint()
    async with await Session.resume("work", store=str(tmp_path)) as session:
        assert "Finder" not in (await session.execute(looks, check=True)).value
        loader = "vars(np.__loader__)['path'] == np.__file__ and len(vars(np.__loader__))"
        assert (await session.execute(loader, check=True)).value == 2
