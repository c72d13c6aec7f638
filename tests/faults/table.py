"""The form of a fault, with the expected outcome for each catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lance_namespace.errors import InternalError, LanceNamespaceError, ServiceUnavailableError

from tests.faults.backends import Catalog, Iceberg, Polaris, Rest, Unity
from tests.faults.glue import Glue
from tests.faults.hive import Hive
from tests.faults.server import Action

Then = Literal["again", "reads", "never", "doubt", "void"]
"""Which calls are retried.

`again`: all calls, because they had no effect. `reads`: only reads. `never`: none, and a change had no effect. `doubt`:
none, and it is unknown whether a change took effect. `void`: none, because the response is correct for a change.
"""

HTTP: Mapping[str, type[Catalog]] = {"iceberg": Iceberg, "polaris": Polaris, "unity": Unity, "rest": Rest}
CATALOGS: Mapping[str, type[Catalog]] = {**HTTP, "glue": Glue, "hive3": Hive}


@dataclass(frozen=True, slots=True)
class Expected:
    """The error that users get."""

    error: type[LanceNamespaceError]
    message: str
    """A part of the message."""
    then: Then
    declares: type[LanceNamespaceError] | None = None
    """The error of a declaration; None if it is the same."""


@dataclass(frozen=True, slots=True)
class Case:
    """A fault of the server of one catalog."""

    action: Action
    expected: Expected | None
    """None if the response is usable in spite of the fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a server or a connection, by catalog."""

    name: str
    cases: Mapping[str, Case]
    lists: bool = True
    """Whether a listing with the fault has the same outcome as a describe."""

    def on(self, impl: str) -> tuple[Action, Expected]:
        """Returns the action and the expected error for a catalog."""
        case = self.cases[impl]
        assert case.expected is not None, self.name
        return case.action, case.expected


def fault(name: str, action: Action, http: Expected | None, *, lists: bool = True, **own: Expected | None) -> Fault:
    """Returns a fault of all HTTP catalogs and Glue; `own` has the outcomes that differ from `http`, by catalog."""
    cases = {impl: Case(action, own.get(impl, http)) for impl in (*HTTP, "glue")}
    return Fault(name, cases, lists)


def with_thrift(original: Fault, action: Action, expected: Expected | None) -> Fault:
    """Returns the fault with a case for a Hive Metastore."""
    return Fault(original.name, {**original.cases, "hive3": Case(action, expected)}, original.lists)


def without_glue(original: Fault) -> Fault:
    """Returns the fault without Glue, whose responses are limited only by the time of an attempt."""
    cases = {impl: case for impl, case in original.cases.items() if impl != "glue"}
    return Fault(original.name, cases, original.lists)


def alone(impl: str, name: str, action: Action, expected: Expected | None) -> Fault:
    """Returns a fault of one catalog only."""
    return Fault(name, {impl: Case(action, expected)})


LOST = Expected(ServiceUnavailableError, "the connection was lost", "reads")
SILENT = Expected(ServiceUnavailableError, "no answer within", "reads")
NO_AWS = Expected(InternalError, "an answer in a format that AWS does not use", "doubt")
NO_JSON = Expected(InternalError, "an answer that is no JSON", "doubt")
OTHER_FORM = Expected(InternalError, "an answer of unknown form", "doubt")
