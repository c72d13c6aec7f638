"""A test kit of the Lance Namespace spec, for any `lance_namespace.LanceNamespace` and any server of the REST protocol.

It knows the spec alone: no module of it imports another part of this package. `pip install
'lance-ns-async[conformance]'`, then `lance-ns conformance`, or `run` in Python, or `pytest -p
lance_ns_async.conformance.plugin --pyargs lance_ns_async.conformance`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from difflib import get_close_matches
from pathlib import Path
from unittest import mock

import lance_namespace.errors as err
import pytest
from lance_namespace import ListNamespacesRequest

from lance_ns_async.conformance import plugin
from lance_ns_async.conformance.home import UNSUPPORTED, describe_error
from lance_ns_async.conformance.plugin import Check, Report, Result
from lance_ns_async.conformance.targets import Target, class_target, close, server_target

__all__ = ["FEATURES", "Check", "Report", "Result", "Target", "class_target", "run", "server_target"]

FEATURES = ("reading", "namespaces", "tables", "listing", "names", "at once", "rows", "versions", "columns")
"""The groups of checks; `reading` changes nothing."""

_FOLDER = Path(__file__).parent


class _Run:
    """Passes the target to the checks, and tells the progress."""

    def __init__(self, target: Target, checks: Collection[str], progress: Callable[[int, int], None] | None) -> None:
        self.collector: plugin.Collector | None = None
        self._target = target
        self._checks = checks
        self.names: set[str] = set()
        """The names of all checks of the features, if some are chosen by name."""
        self._progress = progress
        self._done = self._total = 0

    @pytest.fixture(scope="session")
    def target(self) -> Target:
        return self._target

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._checks:
            self.names = {plugin.rule_of(item) for item in items}
            is_known = self.names.issuperset(self._checks)
            items[:] = [item for item in items if is_known and plugin.rule_of(item) in self._checks]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collector = plugin.collector(session.config)
        self._total = len(session.items)

    def pytest_runtest_logfinish(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)


def run(
    target: Target,
    *,
    features: Collection[str] = (),
    checks: Collection[str] = (),
    read_only: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Runs the checks, one after the other.

    The full run creates namespaces whose names begin with `conformance_` under the target's parent, and removes them.

    Args:
        target: What is tested.
        features: The groups of checks that are run, e.g. `tables`: names of `FEATURES`; empty for all.
        checks: The names of the checks that are run, as in a report, e.g. `a dropped table is gone`; empty for all.
        read_only: Whether only checks are run that change nothing.
        progress: Called with the numbers of checks that were run and that there are; None for no calls.

    Raises:
        InvalidInputError: There is no such feature, or no such check in the features, or the target refuses the parent,
            or cannot be constructed.
        ServiceUnavailableError: The target cannot be reached, or its first listing raises an error that is not of the
            spec.
        UnauthenticatedError: The target refuses the credentials.
    """
    chosen = ["reading"] if read_only else list(features or FEATURES)
    if unknown := set(chosen) - set(FEATURES):
        raise err.InvalidInputError(f"feature {min(unknown)!r}: there is none; use {', '.join(FEATURES)}")
    _check_reachable(target)
    this = _Run(target, checks, progress)
    # Plugins and settings of the caller's project would change the run.
    with mock.patch.dict(os.environ, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}):
        arguments = ["--rootdir", str(_FOLDER), "-c", os.devnull, "-p", "no:cacheprovider", "-p", "no:terminal"]
        modules = [str(_FOLDER / "checks" / f"test_{it.replace(' ', '_')}.py") for it in chosen]
        status = pytest.main([*arguments, *modules], plugins=[plugin, this])
    if absent := sorted(set(checks) - this.names):
        near = get_close_matches(absent[0], this.names, 1)
        hint = f"did you mean {near[0]!r}?" if near else "the report of a run without `checks` has all names"
        raise err.InvalidInputError(f"check {absent[0]!r}: there is none in {', '.join(chosen)}; {hint}")
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or this.collector is None:
        raise err.InvalidInputError(f"the checks were not run: pytest ended with {status!r}")
    return Report(target.name, this.collector.checks, this.collector.leftovers)


def _check_reachable(target: Target) -> None:
    """Raises the error of the connection or of a first call, if each check would fail with it."""
    try:
        client = target.connect()
    except (err.ServiceUnavailableError, err.UnauthenticatedError):
        raise
    except Exception as e:
        error = err.ServiceUnavailableError if isinstance(e, OSError) else err.InvalidInputError
        raise error(f"{target.name} cannot be constructed: {type(e).__name__}: {e}") from e
    try:
        client.list_namespaces(ListNamespacesRequest(id=list(target.parent), limit=1))
    except (err.ServiceUnavailableError, err.UnauthenticatedError):
        raise
    except UNSUPPORTED:
        return
    except Exception as e:
        error = err.InvalidInputError if isinstance(e, err.LanceNamespaceError) else err.ServiceUnavailableError
        subject = f"{target.name}: list_namespaces of {list(target.parent)}"
        raise error(f"{subject}: expected the namespaces, got {describe_error(e)}") from e
    finally:
        close(client)
