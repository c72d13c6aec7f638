"""Sessions whose datasets call the catalog back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lance_ns_async.calls.policy import Policy
from lance_ns_async.session import Session, open_catalog

if TYPE_CHECKING:
    from lance_ns_async.facade.callback_namespace import CallbackNamespace


def open_with_callbacks(impl: str, properties: Mapping[str, str], policy: Policy | None) -> Session:
    """Returns a session whose datasets can renew their credentials and commit versions; see `open_catalog`."""

    def connect() -> CallbackNamespace:
        # Its class is a `LanceNamespace`, whose module needs all models of the spec.
        from lance_ns_async.facade.callback_namespace import CallbackNamespace

        return CallbackNamespace(impl, dict(properties), policy)

    return open_catalog(impl, properties, policy=policy, connect_callbacks=connect)
