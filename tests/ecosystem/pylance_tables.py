"""Tables as users of pylance access them: by a namespace and an id."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace
import pyarrow as pa

from lance_ns_async import Namespace

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})
MORE = pa.table({"id": [4, 5], "name": ["d", "e"]})


def write(namespace: Namespace, id: list[str], rows: pa.Table = ROWS, *, mode: str = "create", **options: Any) -> Any:
    return lance.write_dataset(rows, namespace_client=namespace, table_id=id, mode=mode, **options)


def opened(namespace: Namespace, id: list[str], version: int | str | None = None, **options: Any) -> Any:
    return lance.dataset(namespace_client=namespace, table_id=id, version=version, **options)


def ids(namespace: Namespace, id: list[str], version: int | str | None = None) -> list[int]:
    return sorted(opened(namespace, id, version).to_table()["id"].to_pylist())


def read_and_write(ns: Namespace, id: list[str], number: int) -> list[int]:
    """Returns the rows of a table, after one more was added; and of a table that the job creates."""
    write(ns, id, pa.table({"id": [number], "name": ["job"]}), mode="append")
    own = [*id[:-1], f"{id[-1]}{number}"]
    write(ns, own, pa.table({"id": [number]}))
    return [*ids(ns, own), len(ids(ns, id))]


def read_by_class_path(class_path: str, properties: dict[str, str], id: list[str]) -> list[int]:
    """Returns the rows of a table, with only strings as arguments."""
    ns = lance_namespace.connect(class_path, properties)
    assert isinstance(ns, Namespace)
    with ns:
        return ids(ns, id)


def missing(ns: Namespace, id: list[str]) -> None:
    ids(ns, id)
