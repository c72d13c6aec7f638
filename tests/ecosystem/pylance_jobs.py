"""Jobs that tests run in processes of their own, which import this module."""

from __future__ import annotations

import lance_namespace
import pyarrow as pa

from lance_ns_async import Namespace
from tests.ecosystem.pylance_tables import ids, write


def read_and_write(ns: Namespace, id: list[str], number: int) -> list[int]:
    """What is in a table, after a row more; and in a table of the job's own, which it makes."""
    write(ns, id, pa.table({"id": [number], "name": ["job"]}), mode="append")
    own = [*id[:-1], f"{id[-1]}{number}"]
    write(ns, own, pa.table({"id": [number]}))
    return [*ids(ns, own), len(ids(ns, id))]


def read_by_class_path(class_path: str, properties: dict[str, str], id: list[str]) -> list[int]:
    """What is in a table, to who knows no more than strings."""
    ns = lance_namespace.connect(class_path, properties)
    assert isinstance(ns, Namespace)
    with ns:
        return ids(ns, id)


def missing(ns: Namespace, id: list[str]) -> None:
    """Raises, for the table is not there."""
    ids(ns, id)
