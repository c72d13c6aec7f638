"""No fault of the proxy causes a wrong result, a hang, or an unlimited use of memory."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.documentation.pages import Page
from tests.faults import page
from tests.faults.catalogs import ALL, CATALOGS
from tests.faults.operations import CASES
from tests.faults.trial import Report, faults_for, run_trial
from tests.support.budget import rounds, with_usual
from tests.support.processes import receive, started

pytestmark = pytest.mark.long

_MOST_MB = 64
"""Maximum memory for all faults together, with responses of up to 64 KiB."""

_TIMEOUT = 300
"""Seconds after which the child is ended; it takes about 10."""


def _run(connection: Connection, impl: str, tmp: Path, every: int) -> None:
    # The process ends without removing its temporary files.
    tempfile.tempdir = str(tmp)
    connection.send(asyncio.run(run_trial(impl, every=every)))


@pytest.mark.parametrize("impl", with_usual(ALL, "iceberg", "hive3"))
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


@pytest.mark.parametrize("impl", ALL)
def test_faults_are_many_and_have_unique_names(impl: str) -> None:
    names = Counter(fault.name for fault in faults_for(impl))
    assert len(names) > 80 and max(names.values()) == 1, names.most_common(3)


@pytest.mark.parametrize("impl", CATALOGS)
def test_every_catalog_has_faults_with_expectations(impl: str) -> None:
    assert sum(result == impl for _, result in CASES) > 20


def test_the_documentation_is_current() -> None:
    assert Page(page.PAGE).text == page.render(), "run: python -m tests.faults page"
