"""Async-first client of the Lance Namespace spec: finds thousands of Lance tables in a catalog at once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_ns_async.calls.observers import Call
    from lance_ns_async.calls.policy import Policy
    from lance_ns_async.calls.traffic import CallLoad
    from lance_ns_async.engine.declare import Registered
    from lance_ns_async.engine.describe import Described
    from lance_ns_async.engine.list import Listed
    from lance_ns_async.model import NamespaceId, Table, TableId
    from lance_ns_async.namespace.client import AsyncNamespace
    from lance_ns_async.namespace.sync import (
        DirNamespace,
        GlueNamespace,
        Hive3Namespace,
        IcebergNamespace,
        LakekeeperNamespace,
        Namespace,
        PolarisNamespace,
        UnityNamespace,
    )
    from lance_ns_async.registry import register
    from lance_ns_async.tables.open_many import Opened

__all__ = [
    "AsyncNamespace",
    "Call",
    "CallLoad",
    "Described",
    "DirNamespace",
    "GlueNamespace",
    "Hive3Namespace",
    "IcebergNamespace",
    "LakekeeperNamespace",
    "Listed",
    "Namespace",
    "NamespaceId",
    "Opened",
    "PolarisNamespace",
    "Policy",
    "Registered",
    "Table",
    "TableId",
    "UnityNamespace",
    "register",
]

# Names are imported at their first use: the spec's models alone take half a second to import.
_HOMES = {
    "AsyncNamespace": "namespace.client",
    "Call": "calls.observers",
    "CallLoad": "calls.traffic",
    "Described": "engine.describe",
    "DirNamespace": "namespace.sync",
    "GlueNamespace": "namespace.sync",
    "Hive3Namespace": "namespace.sync",
    "IcebergNamespace": "namespace.sync",
    "LakekeeperNamespace": "namespace.sync",
    "Listed": "engine.list",
    "Namespace": "namespace.sync",
    "NamespaceId": "model",
    "Opened": "tables.open_many",
    "Policy": "calls.policy",
    "PolarisNamespace": "namespace.sync",
    "Registered": "engine.declare",
    "Table": "model",
    "TableId": "model",
    "UnityNamespace": "namespace.sync",
    "register": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
