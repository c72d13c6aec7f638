"""Reads and writes of Lance tables with Spark: the driver resolves them, executors get locations and versions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_ns_async.many.schemas import Difference
    from lance_ns_async.spark.locations import Locations
    from lance_ns_async.spark.maintain import SparkEngine
    from lance_ns_async.spark.read.sql import Views, union, views
    from lance_ns_async.spark.resolve.location import Location
    from lance_ns_async.spark.resolve.report import PrefetchReport, Problem, WriteReport
    from lance_ns_async.spark.resolver import LocationResolver

__all__ = [
    "Difference",
    "Location",
    "LocationResolver",
    "Locations",
    "PrefetchReport",
    "Problem",
    "SparkEngine",
    "Views",
    "WriteReport",
    "union",
    "views",
]

# Loaded at the first access, because executors import this package too and need none of these names.
_HOMES = {
    "Difference": "many.schemas",
    "Location": "spark.resolve.location",
    "LocationResolver": "spark.resolver",
    "Locations": "spark.locations",
    "PrefetchReport": "spark.resolve.report",
    "Problem": "spark.resolve.report",
    "SparkEngine": "spark.maintain",
    "Views": "spark.read.sql",
    "WriteReport": "spark.resolve.report",
    "union": "spark.read.sql",
    "views": "spark.read.sql",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"lance_ns_async.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
