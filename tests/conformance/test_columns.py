"""The kit's checks of columns, on the sites of the contract."""

from __future__ import annotations

from lance_ns_async.conformance.checks.test_columns import *  # noqa: F403
