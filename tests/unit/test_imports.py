"""Imports by `import_module`, which the contracts of import-linter do not see."""

from __future__ import annotations

import ast
from pathlib import Path

import lance_ns_async

PACKAGE = Path(lance_ns_async.__file__).parent
LAZY = {
    "registry.py",
    "__init__.py",
    "fleet/__init__.py",
    "spark/__init__.py",
}
"""The registry of the backends, and the lazy exports of packages."""


def test_modules_of_the_package_are_imported_by_statements() -> None:
    """A name that is computed may be one of this package, so only literals of other packages are allowed elsewhere."""
    importers = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__"))
        if not (isinstance(node.args[0], ast.Constant) and not str(node.args[0].value).startswith("lance_ns_async"))
    }
    assert importers == LAZY
