"""Fixtures and options of all tests."""

from __future__ import annotations

import gc
import re
import signal
from collections.abc import Set
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from lance_ns_async import registry
from tests.support import budget
from tests.support.rooms import SELECTION, Selection, rooms

# The duration of an example depends on the machine, not on the code. The examples are the same in each run, so that a
# failure is caused by a change; the profile `random` uses new ones.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("usual", untimed, derandomize=True, max_examples=30)
settings.register_profile("thorough", untimed, derandomize=True)
settings.register_profile("random", untimed, derandomize=False)
settings.load_profile("usual")

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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options that choose tests."""
    group = parser.getgroup("lance_ns_async")
    group.addoption(
        "--thorough", action="store_true", help="also run the tests marked thorough, with long budgets, as each night"
    )
    group.addoption(
        "--backend",
        action="append",
        default=[],
        choices=[*registry.BACKENDS, "none"],
        help="run only the tests of this backend, or with none those of no backend; may be given several times",
    )
    group.addoption(
        "--room", action="append", default=[], choices=rooms(), help="run only the tests of this room of the package"
    )
    group.addoption(
        "--changed", metavar="REVISION", help="run only the tests of rooms changed since, and changed tests"
    )
    group.addoption("--marked", metavar="MARK", help="import only files that name this mark, and run its tests")
    group.addoption("--failed-to", metavar="FILE", type=Path, help="write the ids of the tests that failed into a file")


def pytest_configure(config: pytest.Config) -> None:
    """Sets the budget before the tests are collected."""
    if config.getoption("--thorough"):
        budget.is_thorough = True
        settings.load_profile("thorough")
    chosen, revision, mark = (config.getoption(name) for name in ("--room", "--changed", "--marked"))
    if chosen or revision is not None:
        config.stash[SELECTION] = Selection(set(chosen)) if chosen else Selection.since(revision)
    if mark is not None:
        expression = config.option.markexpr
        config.option.markexpr = f"({expression}) and {mark}" if expression else mark


def pytest_report_header(config: pytest.Config) -> str | None:
    """Returns the rooms whose tests run."""
    selection = config.stash.get(SELECTION, None)
    return None if selection is None else f"rooms: {', '.join(sorted(selection.rooms)) or 'none'}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Excludes files without selected tests, and folders without such files, whose fixtures may need other packages.
    Importing all tests takes each process half a minute."""
    selection, mark = config.stash.get(SELECTION, None), config.getoption("--marked")
    if selection is None and mark is None:
        return None

    def is_selected(path: Path) -> bool:
        has_mark = mark is None or f"pytest.mark.{mark}" in path.read_text(encoding="utf-8")
        return has_mark and (selection is None or selection.has(path))

    if collection_path.is_dir():
        return None if any(is_selected(path) for path in collection_path.rglob("test_*.py")) else True
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_test and not is_selected(collection_path) else None


def pytest_collection_finish() -> None:
    """Excludes the thousands of items from garbage collections, which libraries and tests request often."""
    # At the first example, Hypothesis looks for references to its new random generator, but not in what is excluded.
    given(strategies.none())(lambda example: None)()
    gc.collect()
    gc.freeze()


_SHARED = ("site", "catalog", "old")
"""Fixtures that start the server of their parameter, at most once in a process."""

_WITH_SERVERS = {
    *("conformance", "connector", "consistency", "contract", "documentation", "ecosystem", "integration", "issuer")
}
"""The folders whose tests of real servers have a session of nox."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Fails the collection of a test of a real server in a folder where no session runs it."""
    test = metafunc.definition
    if test.get_closest_marker("integration") and test.nodeid.split("/")[1] not in _WITH_SERVERS:
        pytest.fail("no session runs the tests of real servers in this folder", pytrace=False)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in its own hook.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Chooses tests, and makes one process run all tests of a server, and all other tests of a file."""
    backends, selection = set(config.getoption("--backend")), config.stash.get(SELECTION, None)
    excluded = {
        item
        for item in items
        if (item.get_closest_marker("thorough") and not budget.is_thorough)
        or (backends and not backends & _backends(item))
        or (selection is not None and _is_of_another_page(item, selection.pages))
    }
    if excluded:
        config.hook.pytest_deselected(items=list(excluded))
        items[:] = [item for item in items if item not in excluded]
    for item in items:
        parameters = _parameters(item)
        server = next((it for name in _SHARED if isinstance(it := parameters.get(name), str)), None)
        if _uses_spark(item):
            # Each JVM of Spark computes for half a minute before its queries are fast.
            group = "Spark: reads" if item.path.parent.name == "integration" else "Spark: writes and pages"
        else:
            # Ray uses all cores and takes long to start.
            group = "Ray" if _uses_ray(item) else server or item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_start)


def _uses_spark(item: pytest.Item) -> bool:
    """Returns whether a test uses the Spark session that all tests of a process share."""
    is_of_a_page = item.path.parent.name == "documentation" and item.get_closest_marker("integration") is not None
    return is_of_a_page or "shared_spark" in getattr(item, "fixturenames", ())


def _start(item: pytest.Item) -> int:
    """Returns the rank of a test among others: the groups that take the longest begin, the others fill the gaps."""
    return 0 if _uses_spark(item) else 1 if _uses_ray(item) or item.get_closest_marker("long") else 2


def _uses_ray(item: pytest.Item) -> bool:
    return "ray" in item.path.stem.split("_")


def _parameters(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def _is_of_another_page(item: pytest.Item, pages: Set[str]) -> bool:
    if item.path.stem != "test_docs":
        return False
    page = getattr(_parameters(item).get("page"), "name", None)
    return page is not None and page not in pages


_OTHER_NAMES = {"directory": "dir", "hive": "hive3", "nessie": "iceberg"}
"""The backends of folders, files and sites with another name."""


def _backends(item: pytest.Item) -> set[str]:
    """Returns the backends that a test is for: by its path, or by a parameter, such as the site `hive-fake-4.0.1`."""
    path = item.path.relative_to(item.config.rootpath).with_suffix("")
    texts = [*path.parts, *(it for it in _parameters(item).values() if isinstance(it, str))]
    words = {text.removeprefix("test_").split("-")[0] for text in texts}
    return {_OTHER_NAMES.get(word, word) for word in words} & registry.BACKENDS.keys() or {"none"}


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
    if (path := terminalreporter.config.getoption("--failed-to")) is not None:
        failed = [it.nodeid for outcome in ("failed", "error") for it in terminalreporter.stats.get(outcome, [])]
        # pytest-xdist adds the group to the id.
        path.write_text("\n".join(re.sub(r"@[^\]]*$", "", id) for id in failed), encoding="utf-8")
