"""What all tests have in common."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes tells of the machine, not of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("untimed")
