"""The contract of namespaces on a backend that consists of a folder, a registry row and a fake."""

from __future__ import annotations

from tests.contract.test_listing import *  # noqa: F403
from tests.contract.test_namespaces import *  # noqa: F403
