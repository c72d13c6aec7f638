"""The kit's checks of versions, on the sites of the contract."""

from __future__ import annotations

from lance_ns_async.conformance.checks.test_versions import *  # noqa: F403
