"""A minimal Ray on this machine."""

from __future__ import annotations

import atexit
import logging
import os
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest
import ray

from tests.servers.process import LOOPBACK

WARNINGS = [
    # Ray starts its servers by forks, of which pylance warns; its workers are not forks.
    pytest.mark.filterwarnings("ignore:lance is not fork-safe:UserWarning"),
    # Ray Data warns of its own deprecated settings.
    pytest.mark.filterwarnings("ignore:`use_.*` is deprecated:DeprecationWarning:ray.data.context"),
]


def running() -> Path:
    """Starts a Ray with two workers, unless one runs, until the process ends; returns the folder of its logs."""
    if not ray.is_initialized():
        # Ray would store a token in the home directory, and send usage statistics.
        os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_TMPDIR=_directory())
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=80 * 1024 * 1024,
            logging_level=logging.WARNING,
            _node_ip_address=LOOPBACK,
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.WARNING)
    return Path(_directory(), "ray", "session_latest", "logs")


@cache
def _directory() -> str:
    # It contains sockets, whose paths must be short.
    directory = mkdtemp(prefix="ray-")
    atexit.register(_end, directory)
    return directory


def _end(directory: str) -> None:
    ray.shutdown()
    rmtree(directory, ignore_errors=True)
