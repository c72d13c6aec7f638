"""REST gateway: serves any namespace as a Lance REST Namespace, `async with serving(namespace) as gateway`."""

from __future__ import annotations

from lance_ns_async.gateway.identities import CallerNamespaces
from lance_ns_async.gateway.mounts import MountedNamespace
from lance_ns_async.gateway.renewals import renewing
from lance_ns_async.gateway.server import Gateway, serving

__all__ = ["CallerNamespaces", "Gateway", "MountedNamespace", "renewing", "serving"]
