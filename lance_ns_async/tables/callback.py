"""The namespace that Lance calls back, from threads of its own, while it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from lance_ns_async.calls.policy import Policy

if TYPE_CHECKING:
    from lance_namespace import LanceNamespace


def connecting(impl: str, properties: Mapping[str, str], policy: Policy | None) -> Callable[[], LanceNamespace]:
    """Makes the sync namespace of these properties, which has connections and a loop of its own.

    Another than the one in use, for a dataset may outlive that, and be read in the very thread of its loop.
    """

    def connect() -> LanceNamespace:
        # By name, as it stands above this: it is made of the namespace that uses this.
        made: LanceNamespace = import_module("lance_ns_async.namespace.sync").Namespace(impl, properties, policy)
        return made

    return connect
