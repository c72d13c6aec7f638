"""The namespace that Lance calls back from its own threads during reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from lance_ns_async.calls.policy import Policy

if TYPE_CHECKING:
    from lance_namespace import LanceNamespace


def make_connector(impl: str, properties: Mapping[str, str], policy: Policy | None) -> Callable[[], LanceNamespace]:
    """Returns a function that creates a sync namespace with its own connections and event loop.

    It is separate from the caller's namespace, because a dataset may outlive that namespace, and may be read in the
    thread of its event loop.
    """

    def connect() -> LanceNamespace:
        # Imported by name, because this module is below `namespace` and is used by it.
        namespace: LanceNamespace = import_module("lance_ns_async.namespace.sync").Namespace(impl, properties, policy)
        return namespace

    return connect
