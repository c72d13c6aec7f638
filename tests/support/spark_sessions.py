"""The Spark session of a process of tests."""

from __future__ import annotations


def stop_spark(*, unless: str | None = None) -> None:
    """Stops the session of this process, if there is one, except for one with the master `unless`."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None and session.sparkContext.master != unless:
        session.stop()
