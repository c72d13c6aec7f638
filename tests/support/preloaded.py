"""Imports of all processes of these tests, loaded once by the server that forks them."""

from __future__ import annotations

import warnings
from importlib import import_module

for _module in (
    "aiobotocore.session",
    "lance.file",
    "lance.namespace",
    "lance_ns_async.backends.directory.backend",
    "lance_ns_async.backends.glue.backend",
    "lance_ns_async.backends.hive3.backend",
    "lance_ns_async.backends.iceberg.backend",
    "lance_ns_async.backends.polaris.backend",
    "lance_ns_async.backends.unity.backend",
    "lance_ns_async.client",
    "lance_ns_async.backends.directory.transport",
    "lance_ns_async.fleet.maintenance.daemon",
    "tests.consistency.crash",
    "tests.consistency.maintained",
    "tests.consistency.races",
    "tests.consistency.undrops",
):
    import_module(_module)

# pylance warns of every fork, and Python of threads that numpy and Arrow start during their import.
warnings.filterwarnings("ignore", message="lance is not fork-safe")
warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
