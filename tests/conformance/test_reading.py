"""The kit's checks of reading, on the sites of the contract."""

from __future__ import annotations

from lance_ns_async.conformance.checks.test_reading import *  # noqa: F403
