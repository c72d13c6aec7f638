"""How much a run tests: the usual line takes minutes, and `--thorough` adds what only a nightly run has time for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import settings

is_thorough = False  # Whether the run was started with `--thorough`; set before the tests are collected
thorough = pytest.mark.thorough  # Marks a test that only a thorough run has


def rounds(usual: int, at_night: int) -> int:
    """Returns the number of repetitions of a test whose inputs are random."""
    return at_night if is_thorough else usual


def examples(percent: int) -> int:
    """Returns a percentage of the examples of Hypothesis' profile, which depend on the run."""
    return max(1, settings().max_examples * percent // 100)


def with_usual(values: Iterable[Any], *usual: Any) -> Sequence[Any]:
    """Returns parameters of which the usual run has only `usual`; a thorough run has all. For values that take the same
    path through the package. The usual ones are named at the test."""
    return [
        value if value in usual else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=thorough)
        for value in values
    ]
