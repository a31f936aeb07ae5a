"""Watching a shell's cells: their source, and the definitions and imports that run in them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from holdfast.session.worker.runner import FUTURE
from holdfast.session.worker.workspace import Workspace


class Cells(ast.NodeTransformer):
    """Follows a shell from the text of a cell to its tree. The shell calls it as a transformer.

    A tree that is not that of the cell itself, such as the body of `%%time`, is left alone: its
    lines are not those of the cell.
    """

    def __init__(
        self, shell: Any, workspace: Workspace, admit: Callable[[ast.Module], None]
    ) -> None:
        """`admit` is given each tree before it runs, and raises InputRejected to keep it from
        running."""
        self._shell = shell
        self._workspace = workspace
        self._admit = admit
        self.watching = False  # whether the cell that runs is the user's own
        self._waiting: int | None = None  # the number of a cell whose tree is still to come
        # `Any`: the method of the shell's compiler that names a cell.
        self._named: Any = shell.compile.cache

    def install(self) -> None:
        self._workspace.watch()
        self._shell.compile.cache = self._cache  # nothing else tells the name of a cell's code
        self._shell.ast_transformers.append(self)

    def uninstall(self) -> None:
        self._shell.compile.cache = self._named
        self._shell.ast_transformers.remove(self)

    def visit(self, node: ast.AST) -> ast.AST:
        """The cell's tree, with calls that note what is defined and imported."""
        number, self._waiting = self._waiting, None
        if isinstance(node, ast.Module):
            self._admit(node)
        if number is not None and isinstance(node, ast.Module):
            cell = self._workspace.cells.get(number)
            flags = self._future(node)
            if cell is not None and flags:
                self._workspace.cells.add(number, cell.text, flags, cell.filename)
            self._workspace.definitions.instrument(node, number)
        return node

    def _future(self, tree: ast.Module) -> int:
        """The features that hold for a cell: those of cells before it, and its own."""
        import __future__

        flags: int = self._shell.compile.flags & FUTURE
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                for alias in node.names:
                    feature = getattr(__future__, alias.name, None)
                    flags |= getattr(feature, "compiler_flag", 0)
        return flags

    def _cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        name: str = self._named(transformed_code, number, raw_code=raw_code)
        if self.watching:
            self.watching = False  # what the cell runs in its turn is not the cell
            cells = self._workspace.cells
            self._waiting = 1 + max((cell.number for cell in cells.all()), default=0)
            cells.add(self._waiting, transformed_code, filename=name)
        return name
