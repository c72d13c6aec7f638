"""No fault of a proxy causes a wrong result, a hang, or an unlimited use of memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.network.catalogs import CATALOGS, faults_for
from tests.network.trial import Report, run_trial
from tests.support.budget import rounds, with_usual
from tests.support.processes import receive, started

_MOST_MB = 64
"""Maximum memory for all faults together, with responses of up to 1 MiB."""

_TIMEOUT = 300
"""Seconds after which the child is ended; it takes about 10."""


def _run(connection: Connection, impl: str, tmp: Path, every: int) -> None:
    connection.send(asyncio.run(run_trial(impl, tmp, every=every)))


@pytest.mark.parametrize("impl", with_usual(CATALOGS, "iceberg", "hive3"))
def test_faults_cause_no_wrong_results_and_no_hangs(
    impl: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """It runs in a separate process, because the maximum memory of a process is measured."""
    every = rounds(3, 1)
    with started(_run, impl, tmp_path, every) as (_, connection):
        assert connection.poll(_TIMEOUT), f"no report within {_TIMEOUT} s"
        report: Report = receive(connection)
    record_property("report", asdict(report))
    assert report.wrong == [] and report.hangs == []
    assert report.faults == len(faults_for(impl)[::every]) and report.injected > report.faults
    assert report.peak_mb < _MOST_MB


@pytest.mark.parametrize("impl", CATALOGS)
def test_faults_are_many_and_have_unique_names(impl: str) -> None:
    names = Counter(fault.name for fault in faults_for(impl))
    assert len(names) > (25 if impl == "rest" else 50) and max(names.values()) == 1, names.most_common(3)
