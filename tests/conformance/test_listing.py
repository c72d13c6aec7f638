"""The kit's checks of listing, on the sites of the contract."""

from __future__ import annotations

from lance_ns_async.conformance.checks.test_listing import *  # noqa: F403
