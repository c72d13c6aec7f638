"""The kit's checks of rows, on the sites of the contract."""

from __future__ import annotations

from lance_ns_async.conformance.checks.test_rows import *  # noqa: F403
