"""The explorer: server-rendered, read-only web pages of the catalog behind a gateway."""

from __future__ import annotations

from lance_ns_async.gateway.explorer.site import Explorer

__all__ = ["Explorer"]
