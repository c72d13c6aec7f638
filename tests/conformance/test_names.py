"""The kit's checks of names, on the sites of the contract."""

from __future__ import annotations

from lance_ns_async.conformance.checks.test_names import *  # noqa: F403
