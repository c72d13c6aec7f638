"""How much is tried: a share of what the profile says, so that one profile scales all of it."""

from __future__ import annotations

from hypothesis import settings


def examples(percent: int) -> int:
    """So many percent of the profile's examples, which usually are a hundred."""
    return max(1, settings().max_examples * percent // 100)


def steps(percent: int) -> int:
    """So many percent of the profile's steps of a state machine, which usually are fifty."""
    return max(1, settings().stateful_step_count * percent // 100)
