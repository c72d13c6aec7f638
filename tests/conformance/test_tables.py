"""The kit's checks of tables, on the sites of the contract."""

from __future__ import annotations

from lance_ns_async.conformance.checks.test_tables import *  # noqa: F403
