"""The faults, and what is expected of each catalog where one befalls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lance_namespace.errors import InternalError, LanceNamespaceError, ServiceUnavailableError

from tests.faults.backends import Catalog, Iceberg, Polaris, Rest, Unity
from tests.faults.glue import Glue
from tests.faults.hive import Hive
from tests.faults.server import Deed

Then = Literal["again", "reads", "never", "doubt", "void"]
"""What is sent again.

`again`: everything, as nothing was done. `reads`: these alone. `never`: nothing, and a change did nothing. `doubt`:
nothing, and a change perhaps did something. `void`: nothing, for to a change it is the right answer.
"""

HTTP: Mapping[str, type[Catalog]] = {"iceberg": Iceberg, "polaris": Polaris, "unity": Unity, "rest": Rest}
CATALOGS: Mapping[str, type[Catalog]] = {**HTTP, "glue": Glue, "hive3": Hive}


@dataclass(frozen=True, slots=True)
class Expected:
    """What a user gets."""

    error: type[LanceNamespaceError]
    words: str
    """Some of what the error says."""
    then: Then
    declares: type[LanceNamespaceError] | None = None
    """What a declaration gets; None where that is the same."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A fault of one catalog's server."""

    deed: Deed
    expected: Expected | None
    """None where the answer is right all the same."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong on the wire, by catalog."""

    name: str
    cells: Mapping[str, Cell]
    lists: bool = True
    """Whether a listing that it befalls ends as a describe does."""

    def on(self, impl: str) -> tuple[Deed, Expected]:
        """What is done on a catalog that it does harm to, and what comes of it."""
        cell = self.cells[impl]
        assert cell.expected is not None, self.name
        return cell.deed, cell.expected


def fault(
    name: str,
    deed: Deed,
    http: Expected | None,
    *,
    lists: bool = True,
    **own: Expected | None,
) -> Fault:
    """A fault of all that speak HTTP, Glue included; `own` is what others of them make of it."""
    cells = {impl: Cell(deed, own.get(impl, http)) for impl in (*HTTP, "glue")}
    return Fault(name, cells, lists)


def with_thrift(original: Fault, deed: Deed, expected: Expected | None) -> Fault:
    """The same fault on a metastore, too."""
    return Fault(original.name, {**original.cells, "hive3": Cell(deed, expected)}, original.lists)


def without_glue(original: Fault) -> Fault:
    """The same fault, but on Glue, whose answers nobody bounds but the attempt's time."""
    cells = {impl: cell for impl, cell in original.cells.items() if impl != "glue"}
    return Fault(original.name, cells, original.lists)


def alone(impl: str, name: str, deed: Deed, expected: Expected | None) -> Fault:
    """A fault of one catalog's wire."""
    return Fault(name, {impl: Cell(deed, expected)})


LOST = Expected(ServiceUnavailableError, "the connection was lost", "reads")
SILENT = Expected(ServiceUnavailableError, "no answer within", "reads")
NO_AWS = Expected(InternalError, "an answer in a format that AWS does not use", "doubt")
NO_JSON = Expected(InternalError, "an answer that is no JSON", "doubt")
OTHER_FORM = Expected(InternalError, "an answer of unknown form", "doubt")
