"""The namespaces and the expectations of the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import lance_namespace
import pyarrow as pa
import pytest
from lance_namespace.errors import LanceNamespaceError, UnsupportedOperationError

UNSUPPORTED = (UnsupportedOperationError, NotImplementedError)
"""Errors of an operation that an implementation does not have; pylance raises the second."""

MOST_EMPTY = 100
"""Empty pages of a listing; a catalog may filter what is on a page."""

_LONGEST = 300  # Characters of a page in a message.


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
    """Yields the pages of a listing; fails if a token or a page comes again, because the listing may never end."""
    tokens: set[str] = set()
    contents: set[int] = set()
    empty = 0
    while True:
        page = call(request)
        content = page.model_dump(exclude={"page_token"}, exclude_none=True)
        if not any(content.values()):
            empty += 1
        elif (key := hash(repr(content))) in contents:
            pytest.fail(f"expected each page once, found again {content}"[:_LONGEST], pytrace=False)
        else:
            contents.add(key)
        yield page
        if not (token := page.page_token):
            return
        if token in tokens:
            pytest.fail(f"expected a last page without a token, found again the token {token!r}", pytrace=False)
        if empty > MOST_EMPTY:
            pytest.fail(f"expected a last page without a token, found {empty} pages that are empty", pytrace=False)
        tokens.add(token)
        request = request.model_copy(update={"page_token": token})


@contextmanager
def expect(*errors: type[LanceNamespaceError]) -> Iterator[None]:
    """Fails unless the block raises an error with the code of one of these."""
    expected = " or ".join(f"{it.__name__} (code {int(it.code)})" for it in errors)
    try:
        yield
    except UNSUPPORTED:
        raise
    except Exception as e:
        if not isinstance(e, LanceNamespaceError) or e.code not in {it.code for it in errors}:
            pytest.fail(f"expected {expected}, got {describe_error(e)}", pytrace=False)
    else:
        pytest.fail(f"expected {expected}, but the call succeeded", pytrace=False)


def describe_error(error: BaseException) -> str:
    """Returns the class of an error, with its code if it has one, and the message."""
    cls = type(error)
    if isinstance(error, LanceNamespaceError):
        return f"{cls.__name__} (code {int(error.code)}): {error}"
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    return f"{name}, which is no error of the spec: {error}"


def check_location(subject: str, found: str | None, expected: str | None) -> None:
    """Fails unless two locations are the same place.

    Args:
        subject: The table whose location was found, e.g. `the renamed table`.
        found: The location in a response.
        expected: The location that it must be.
    """
    if found is None or expected is None or normalize_location(found) != normalize_location(expected):
        pytest.fail(f"{subject}: expected the location {expected}, found {found}", pytrace=False)


def normalize_location(location: str) -> str:
    """Returns the spelling that all spellings of a location share.

    `/tmp/x`, `file:/tmp/x`, `file:///tmp/x` and `file://localhost/tmp/x` are one folder; so is each with a slash at its
    end. Only a URI has percent escapes.
    """
    scheme, colon, path = location.partition(":")
    if colon and scheme.lower() == "file":
        path = path.removeprefix("//localhost")
        location = f"/{unquote(path).lstrip('/')}"
    return location.rstrip("/") or "/"


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
