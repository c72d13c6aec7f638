"""Fixtures and options of all tests."""

from __future__ import annotations

import signal
from collections.abc import Set

import pytest
from hypothesis import HealthCheck, settings

# The duration of an example depends on the machine, not on the code. The examples are the same in each run, so that a
# failure is caused by a change; the profile `random` uses new ones.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("steady", untimed, derandomize=True)
settings.register_profile("random", untimed, derandomize=False)
settings.load_profile("steady")

# A shell starts background processes with SIGINT ignored, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)


_CREATED_BY_TOOLS = frozenset({"__pycache__", "dist", "site", "spark-warehouse"})
_ENTRIES: pytest.StashKey[Set[str]] = pytest.StashKey()
_NEW_ENTRIES = pytest.StashKey[list[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Records the entries of the repository's root."""
    session.stash[_ENTRIES] = _entries(session)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the run if a test created something in the repository's root; tests use `tmp_path`."""
    if new := sorted(_entries(session) - session.stash[_ENTRIES]):
        session.config.stash[_NEW_ENTRIES] = new
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _entries(session: pytest.Session) -> Set[str]:
    names = {path.name for path in session.config.rootpath.iterdir()}
    return frozenset(name for name in names - _CREATED_BY_TOOLS if not name.startswith("."))


_SHARED = ("site", "catalog")
"""Fixtures with session scope, each of which starts the server of its parameter."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Makes one process run all tests of a server, and all other tests of a file."""
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        group = next((parameters[name] for name in _SHARED if name in parameters), item.location[0])
        item.add_marker(pytest.mark.xdist_group(str(group)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints new entries of the repository's root, and the figures that tests recorded, also those that passed."""
    if new := terminalreporter.config.stash.get(_NEW_ENTRIES, []):
        terminalreporter.section("new files in the repository", red=True)
        terminalreporter.line(f"a test created {', '.join(new)}; use tmp_path")
    reports = [it for outcome in ("passed", "failed") for it in terminalreporter.stats.get(outcome, [])]
    figures = [value for report in reports for key, value in report.user_properties if key == "figures"]
    if figures:
        terminalreporter.section("figures")
    for value in figures:
        terminalreporter.line(str(value))
