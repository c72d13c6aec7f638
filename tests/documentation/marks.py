"""Marks of the tests whose code uses Spark."""

from __future__ import annotations

import pytest

# Spark starts its JVM by a fork, of which pylance warns; the JVM does not use pylance.
SPARK = [pytest.mark.integration, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]
