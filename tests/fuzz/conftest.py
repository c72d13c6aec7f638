"""A profile for long runs by hand: `pytest tests/fuzz --hypothesis-profile deep`."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("deep", settings.get_profile("random"), max_examples=2000, stateful_step_count=150)
