"""The namespaces and the expectations of the checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from lance_namespace.errors import LanceNamespaceError, UnsupportedOperationError


@dataclass(frozen=True)
class Home:
    """A namespace for tables, with names beside it for more namespaces."""

    parent: tuple[str, ...]
    name: str

    @property
    def id(self) -> list[str]:
        """Returns the id."""
        return [*self.parent, self.name]

    def table(self, name: str) -> list[str]:
        """Returns the id of a table in it."""
        return [*self.id, name]

    def beside(self, name: str, *below: str) -> list[str]:
        """Returns the id of a namespace beside it, or below that one."""
        return [*self.parent, f"{self.name}_{name}", *below]

    def listed(self, names: Iterable[str]) -> list[str]:
        """Returns, in order, which names for `beside` are in a listing of the parent; some catalogs list whole ids."""
        prefix = f"{self.name}_"
        last = [name.rsplit(".", 1)[-1] for name in names]
        return sorted(name.removeprefix(prefix) for name in last if name.startswith(prefix))


@contextmanager
def expect(*errors: type[LanceNamespaceError]) -> Iterator[None]:
    """Fails unless the block raises an error with the code of one of these."""
    wanted = " or ".join(f"{it.__name__} (code {int(it.code)})" for it in errors)
    try:
        yield
    except UnsupportedOperationError:
        if UnsupportedOperationError not in errors:
            raise
    except LanceNamespaceError as e:
        if e.code not in {it.code for it in errors}:
            pytest.fail(f"expected {wanted}, got {type(e).__name__} (code {int(e.code)}): {e}", pytrace=False)
    else:
        pytest.fail(f"expected {wanted}, but the call succeeded", pytrace=False)
