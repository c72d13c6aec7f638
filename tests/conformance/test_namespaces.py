"""The kit's checks of namespaces, on the sites of the contract."""

from __future__ import annotations

from lance_ns_async.conformance.checks.test_namespaces import *  # noqa: F403
