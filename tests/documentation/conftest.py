"""The Spark session that the code of pages continues."""

from __future__ import annotations

from tests.support.spark import shared_spark, stopping

__all__ = ["shared_spark", "stopping"]
