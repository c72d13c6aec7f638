"""No wrong answer, no hang and bounded memory, whatever the proxy before a catalog does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.network.catalogs import CATALOGS, kinds_for

_MOST_MB = 64
"""Memory that all misbehaviours together may take, with answers of up to 1 MiB."""

_TIMEOUT = 300
"""Seconds after which the child is ended; it takes about 10."""


@pytest.mark.parametrize("impl", CATALOGS)
def test_nothing_a_proxy_does_is_believed_or_waited_for(
    impl: str, record_property: Callable[[str, object], None]
) -> None:
    """A process of its own, because memory is measured as the most that a process ever had."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.network", impl],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    record_property("report", report)
    assert report["wrong"] == [] and report["hangs"] == []
    assert report["kinds"] == len(kinds_for(impl)) and report["misdeeds"] > report["kinds"]
    assert report["peak_mb"] < _MOST_MB


@pytest.mark.parametrize("impl", CATALOGS)
def test_misbehaviours_are_many_and_each_has_a_name(impl: str) -> None:
    names = Counter(kind.name for kind in kinds_for(impl))
    assert len(names) > 50 and max(names.values()) == 1, names.most_common(3)
