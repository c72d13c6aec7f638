"""Async-first client of the Lance Namespace spec: finds thousands of Lance tables in a catalog at once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lance_ns_async.deferred import MODELS, defer

if TYPE_CHECKING:
    from lance_ns_async.calls.observers import Call
    from lance_ns_async.calls.policy import Policy
    from lance_ns_async.calls.slots import CallLoad
    from lance_ns_async.calls.tagged_results import CacheUse
    from lance_ns_async.client import AsyncNamespace
    from lance_ns_async.engine.list import Listed
    from lance_ns_async.engine.results import BulkResult
    from lance_ns_async.errors import http_status
    from lance_ns_async.many.changes import Change, ChangeKind
    from lance_ns_async.many.engines import OpenedTables
    from lance_ns_async.many.row_results import RankedRows, RowCounts
    from lance_ns_async.many.scanning import RowReader, RowStream
    from lance_ns_async.model import NamespaceId, Partition, Table, TableId
    from lance_ns_async.operations.partitions import PartitionedDataset
    from lance_ns_async.registry import register
    from lance_ns_async.spec.partitions import PartitionSpec
    from lance_ns_async.sql.run import SqlResult
    from lance_ns_async.sync import (
        DirNamespace,
        GlueNamespace,
        Hive2Namespace,
        Hive3Namespace,
        IcebergNamespace,
        LakekeeperNamespace,
        Namespace,
        PolarisNamespace,
        RestNamespace,
        UnityNamespace,
    )

    __version__: str

__all__ = [
    "AsyncNamespace",
    "BulkResult",
    "CacheUse",
    "Call",
    "CallLoad",
    "Change",
    "ChangeKind",
    "DirNamespace",
    "GlueNamespace",
    "Hive2Namespace",
    "Hive3Namespace",
    "IcebergNamespace",
    "LakekeeperNamespace",
    "Listed",
    "Namespace",
    "NamespaceId",
    "OpenedTables",
    "Partition",
    "PartitionSpec",
    "PartitionedDataset",
    "PolarisNamespace",
    "Policy",
    "RankedRows",
    "RestNamespace",
    "RowCounts",
    "RowReader",
    "RowStream",
    "SqlResult",
    "Table",
    "TableId",
    "UnityNamespace",
    "http_status",
    "register",
]

defer("lance_namespace", "lance_namespace_urllib3_client", MODELS)

# Names are imported at their first use. The class of a catalog, such as `GlueNamespace`, has no row here.
_HOMES = {
    "AsyncNamespace": "client",
    "CacheUse": "calls.tagged_results",
    "Call": "calls.observers",
    "CallLoad": "calls.slots",
    "Change": "many.changes",
    "ChangeKind": "many.changes",
    "BulkResult": "engine.results",
    "RankedRows": "many.row_results",
    "Listed": "engine.list",
    "Namespace": "sync",
    "NamespaceId": "model",
    "OpenedTables": "many.engines",
    "Partition": "model",
    "PartitionSpec": "spec.partitions",
    "PartitionedDataset": "operations.partitions",
    "Policy": "calls.policy",
    "RowCounts": "many.row_results",
    "RowReader": "many.scanning",
    "RowStream": "many.scanning",
    "SqlResult": "sql.run",
    "Table": "model",
    "TableId": "model",
    "http_status": "errors",
    "register": "registry",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("lance-ns-async")
    home = _HOMES.get(name)
    if home is None and name.endswith("Namespace"):
        home = "sync"
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
