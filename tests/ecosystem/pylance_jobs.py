"""Jobs that tests run in separate processes, which import this module."""

from __future__ import annotations

import lance_namespace
import pyarrow as pa

from lance_ns_async import Namespace
from tests.ecosystem.pylance_tables import ids, write


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
    """Raises an error, because the table does not exist."""
    ids(ns, id)
