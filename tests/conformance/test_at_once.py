"""The kit's checks of at once, on the sites of the contract."""

from __future__ import annotations

from lance_ns_async.conformance.checks.test_at_once import *  # noqa: F403
