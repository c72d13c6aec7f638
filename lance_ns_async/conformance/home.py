"""The namespaces and the expectations of the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lance_namespace
import pyarrow as pa
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


def request_for(operation: str, id: list[str]) -> Any:
    """Returns the request of an operation that needs only an id."""
    return getattr(lance_namespace, f"{operation.title().replace('_', '')}Request")(id=id)


def pages(call: Callable[[Any], Any], request: Any) -> Iterator[Any]:
    """Yields the pages of a listing; fails if a page token comes again, because the listing would never end."""
    tokens: set[str] = set()
    while True:
        page = call(request)
        yield page
        if not (token := page.page_token):
            return
        if token in tokens:
            pytest.fail(f"the page token {token!r} comes again, so the listing never ends", pytrace=False)
        tokens.add(token)
        request = request.model_copy(update={"page_token": token})


@contextmanager
def expect(*errors: type[LanceNamespaceError]) -> Iterator[None]:
    """Fails unless the block raises an error with the code of one of these."""
    expected = " or ".join(f"{it.__name__} (code {int(it.code)})" for it in errors)
    try:
        yield
    except UnsupportedOperationError:
        if UnsupportedOperationError not in errors:
            raise
    except LanceNamespaceError as e:
        if e.code not in {it.code for it in errors}:
            pytest.fail(f"expected {expected}, got {type(e).__name__} (code {int(e.code)}): {e}", pytrace=False)
    else:
        pytest.fail(f"expected {expected}, but the call succeeded", pytrace=False)


ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "text": ["red apple", "green pear", "blue plum"],
        "v": pa.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], pa.list_(pa.float32(), 2)),
    }
)


def stream(rows: pa.Table) -> bytes:
    """Returns the rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_file(data: bytes) -> list[dict[str, Any]]:
    """Returns the rows in an Arrow IPC file."""
    rows: list[dict[str, Any]] = pa.ipc.open_file(data).read_all().to_pylist()
    return rows
