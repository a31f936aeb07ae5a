"""IPython and Jupyter: `%load_ext holdfast` makes a kernel's session durable.

Every cell is followed by a checkpoint, beside the kernel; a kernel that died is resumed by
`%load_ext holdfast` in a new one. The commands are those of `holdfast repl`.
"""

from __future__ import annotations

from typing import Any

# `Any` here and below: the shell is IPython's, whose types differ from version to version.
__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext holdfast` calls. Raises IPython's UsageError, in one line."""
    from holdfast.integrations.ipython.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """What `%unload_ext holdfast` calls: the session is kept, and no longer owned."""
    from holdfast.integrations.ipython.magics import unload

    unload(shell)
