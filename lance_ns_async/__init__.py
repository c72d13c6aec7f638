"""Async-first client of the Lance Namespace spec: finds thousands of Lance tables in a catalog at once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lance_ns_async.deferred import MODELS, defer

if TYPE_CHECKING:
    from lance_ns_async.calls.observers import Call
    from lance_ns_async.calls.policy import Policy
    from lance_ns_async.calls.tagged_results import CacheUse
    from lance_ns_async.calls.traffic import CallLoad
    from lance_ns_async.engine.list import Listed
    from lance_ns_async.engine.results import BulkResult
    from lance_ns_async.errors import http_status
    from lance_ns_async.model import NamespaceId, Partition, Table, TableId
    from lance_ns_async.namespace.changes import Change, ChangeKind
    from lance_ns_async.namespace.client import AsyncNamespace
    from lance_ns_async.namespace.row_results import RankedRows, RowCounts
    from lance_ns_async.namespace.sync import (
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
    from lance_ns_async.registry import register
    from lance_ns_async.spec.partitions import PartitionSpec
    from lance_ns_async.tables.partitioned_dataset import PartitionedDataset

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
    "Partition",
    "PartitionSpec",
    "PartitionedDataset",
    "PolarisNamespace",
    "Policy",
    "RankedRows",
    "RestNamespace",
    "RowCounts",
    "Table",
    "TableId",
    "UnityNamespace",
    "http_status",
    "register",
]

defer("lance_namespace", "lance_namespace_urllib3_client", MODELS)

# Names are imported at their first use. The class of a catalog, such as `GlueNamespace`, has no row here.
_HOMES = {
    "AsyncNamespace": "namespace.client",
    "CacheUse": "calls.tagged_results",
    "Call": "calls.observers",
    "CallLoad": "calls.traffic",
    "Change": "namespace.changes",
    "ChangeKind": "namespace.changes",
    "BulkResult": "engine.results",
    "RankedRows": "namespace.row_results",
    "Listed": "engine.list",
    "Namespace": "namespace.sync",
    "NamespaceId": "model",
    "Partition": "model",
    "PartitionSpec": "spec.partitions",
    "PartitionedDataset": "tables.partitioned_dataset",
    "Policy": "calls.policy",
    "RowCounts": "namespace.row_results",
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
        home = "namespace.sync"
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
