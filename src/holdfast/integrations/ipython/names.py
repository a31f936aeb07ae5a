"""What a kernel is told in words: its session and its window; and which names are its own. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.errors import BadInput

# What IPython and its front ends put among the user's names: `In`, `_`, `_3`, `_i3`, ...
_OWN = re.compile(r"In|Out|_+|_[io]h|_dh|_i{1,3}|_i?\d+|_{1,2}(?:vsc|VSC)\w*|__annotations_cache__")
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST = 60


def session_name(environ: Mapping[str, str], namespace: Mapping[str, object], folder: Path) -> str:
    """The session of a notebook: `HOLDFAST_SESSION`, else one for the notebook's path.

    JupyterLab tells a kernel its notebook in the environment, VS Code in a variable; without
    either, as for `ipython` in a terminal, the folder stands for it.
    """
    chosen = environ.get("HOLDFAST_SESSION")
    if chosen:
        return chosen
    told = namespace.get("__vsc_ipynb_file__") or environ.get("JPY_SESSION_NAME")
    path = folder / told if isinstance(told, str) and told else folder
    stem = _ODD.sub("-", path.stem).strip("-.") or "notebook"
    # Notebooks of one name in several folders are not one session.
    return f"{stem[:_LONGEST]}-{hashlib.sha256(str(path).encode()).hexdigest()[:6]}"


def window(text: str) -> float:
    """Seconds of work that may be unsaved, as somebody wrote them. Raises BadInput."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise BadInput(
            f"{text!r} is no number of seconds",
            hint="%holdfast --window 2 (or HOLDFAST_WINDOW=2 in the environment)",
        )
    return seconds


def is_own(name: object, value: object, hidden: Mapping[str, object]) -> bool:
    """Whether a name is IPython's; one of those that it hides may have become the user's."""
    if not isinstance(name, str) or _OWN.fullmatch(name):
        return True
    return name in hidden and hidden[name] is value
