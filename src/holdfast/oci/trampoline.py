"""The program that stands in front of runc: a shell script, and a quick way past it.

The script is the whole truth. Where there is a C compiler, a small program is put before it that
knows only which calls are certainly not ours; it saves them the shell, and `create` a search.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import BadInput
from holdfast.runtime.command import run

_HERE = Path(__file__).parent
_COMPILERS = ("cc", "gcc", "clang")
_SECONDS = 30.0
_SPECIAL = "\"'\\$`} \n"  # what a shell, or a C string, would read as something else


@dataclass(frozen=True, slots=True)
class Trampoline:
    """What an installation puts on a node. Without a compiler there is only the script."""

    script: str
    quick: bytes | None = None


def bake(python: str, runc: str) -> str:
    """The script with its two programs written in, so that it looks for nothing."""
    text = (_HERE / "holdfast-runc").read_text("utf-8")
    for name, value in (("PYTHON", python), ("RUNC", runc)):
        if any(character in value for character in _SPECIAL):
            raise BadInput(f"{value!r} cannot be written into a shell script")
        text = text.replace(f"${{HOLDFAST_{name}:-}}", f"${{HOLDFAST_{name}:-{value}}}", 1)
    return text


def compile_quick(runc: str, script: str, environ: Mapping[str, str]) -> bytes | None:
    """The quick way, for this machine; None where it cannot be made, or does not do its work."""
    found = (shutil.which(name, path=environ.get("PATH")) for name in _COMPILERS)
    compiler = next(filter(None, found), None)
    if compiler is None or any(character in runc + script for character in _SPECIAL):
        return None
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        program = Path(folder, "holdfast-runc")
        words = [compiler, "-O2", f'-DRUNC="{runc}"', f'-DSCRIPT="{script}"', "-o", str(program)]
        made = run([*words, str(_HERE / "holdfast-runc.c")], seconds=_SECONDS, environ=environ)
        if not made.succeeded:
            return None
        # A temporary folder may forbid running, and a compiler may be one for other machines.
        ours = run([program, "--version"], seconds=_SECONDS, environ={"HOLDFAST_RUNC": runc})
        plain = run([runc, "--version"], seconds=_SECONDS, environ={})
        same = (ours.code, ours.stdout) == (plain.code, plain.stdout)
        return program.read_bytes() if same else None
