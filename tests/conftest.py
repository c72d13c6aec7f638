"""Fixtures and options of all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes tells of the machine, not of the code. The same ones each time, so that a test that fails
# tells of the change; `random` looks for new ones.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("steady", untimed, derandomize=True)
settings.register_profile("random", untimed, derandomize=False)
settings.load_profile("steady")

# A shell starts what it puts into the background deaf to interrupts, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)


_SHARED = ("site", "catalog")
"""Fixtures of a whole session, each of which starts the server of its parameter."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Has one process run all tests of a server, and all other tests of a file."""
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        group = next((parameters[name] for name in _SHARED if name in parameters), item.location[0])
        item.add_marker(pytest.mark.xdist_group(str(group)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows the figures that tests recorded, those of tests that passed too."""
    reports = [it for outcome in ("passed", "failed") for it in terminalreporter.stats.get(outcome, [])]
    figures = [value for report in reports for key, value in report.user_properties if key == "figures"]
    if figures:
        terminalreporter.section("figures")
    for value in figures:
        terminalreporter.line(str(value))
