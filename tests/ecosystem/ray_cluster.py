"""A Ray on this machine, as small as it gets."""

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
    # Ray forks to start its servers, of which pylance warns; its workers are no forks.
    pytest.mark.filterwarnings("ignore:lance is not fork-safe:UserWarning"),
    # Ray Data warns of its own old settings whenever it reads its settings.
    pytest.mark.filterwarnings("ignore:`use_.*` is deprecated:DeprecationWarning:ray.data.context"),
]


def running() -> Path:
    """Starts a Ray of two workers, unless one runs, until the process ends; gives the folder of its logs."""
    if not ray.is_initialized():
        # With a token Ray would leave that in the home directory; and it would tell of its use.
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
    # Sockets lie in there, and their paths must be short.
    directory = mkdtemp(prefix="ray-")
    atexit.register(_end, directory)
    return directory


def _end(directory: str) -> None:
    ray.shutdown()
    rmtree(directory, ignore_errors=True)
