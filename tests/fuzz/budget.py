"""The number of examples: a share of the profile's number, so that one profile scales all tests."""

from __future__ import annotations

from hypothesis import settings


def examples(percent: int) -> int:
    """Returns a percentage of the profile's examples, which are a hundred by default."""
    return max(1, settings().max_examples * percent // 100)


def steps(percent: int) -> int:
    """Returns a percentage of the profile's steps of a state machine, which are fifty by default."""
    return max(1, settings().stateful_step_count * percent // 100)
