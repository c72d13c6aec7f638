"""The contract of tables on a backend that consists of a folder, a registry row and a fake."""

from __future__ import annotations

from tests.contract.test_data import *  # noqa: F403
from tests.contract.test_default_locations import *  # noqa: F403
from tests.contract.test_tables import *  # noqa: F403
