"""What all tests have in common."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# How long an example takes tells of the machine, not of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("untimed")

# A shell starts what it puts into the background deaf to interrupts, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)
