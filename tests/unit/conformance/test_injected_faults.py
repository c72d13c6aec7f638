"""Classes with one fault each, on a directory: the report names the check and says what was expected and found."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import DirNamespace
from lance_ns_async.conformance import Report, Result, Target, run
from lance_ns_async.conformance.home import normalize_location


class Lake:
    """A namespace without a fault."""

    def __init__(self, **properties: str) -> None:
        self.good = DirNamespace(**properties)

    def __getattr__(self, operation: str) -> Any:
        return getattr(self.good, operation)


class DropKeepsTheData(Lake):
    def drop_table(self, request: Any) -> Any:
        self.good.deregister_table(spec.DeregisterTableRequest(id=request.id))
        return spec.DropTableResponse(id=request.id)


class DropKeepsTheRegistration(Lake):
    def drop_table(self, request: Any) -> Any:
        self.good.table_exists(spec.TableExistsRequest(id=request.id))
        return spec.DropTableResponse(id=request.id)


class LosesProperties(Lake):
    def describe_namespace(self, request: Any) -> Any:
        return self.good.describe_namespace(request).model_copy(update={"properties": {}})


class RaisesKeyError(Lake):
    def describe_table(self, request: Any) -> Any:
        try:
            return self.good.describe_table(request)
        except err.TableNotFoundError as e:
            raise KeyError("t") from e


class NeverEndsAListing(Lake):
    """Each page has a new token; those after the last one are empty."""

    def list_tables(self, request: Any) -> Any:
        token = request.page_token or ""
        if token.startswith("end"):
            return spec.ListTablesResponse(tables=[], page_token=f"{token}.")
        page = self.good.list_tables(request)
        return page.model_copy(update={"page_token": page.page_token or "end"})


class RepeatsAPage(Lake):
    def list_tables(self, request: Any) -> Any:
        token = request.page_token or ""
        page = self.good.list_tables(request.model_copy(update={"page_token": token.removeprefix("again ") or None}))
        if page.page_token and not token.startswith("again "):
            page = page.model_copy(update={"page_token": f"again {token}"})
        return page


class OverwriteKeepsTheTable(Lake):
    def create_table(self, request: Any, request_data: bytes) -> Any:
        mode = "ExistOk" if (request.mode or "").lower() == "overwrite" else request.mode
        return self.good.create_table(request.model_copy(update={"mode": mode}), request_data)


class CreateAcceptsAnExistingTable(Lake):
    def create_table(self, request: Any, request_data: bytes) -> Any:
        return self.good.create_table(request.model_copy(update={"mode": request.mode or "ExistOk"}), request_data)


class InsertLosesARow(Lake):
    def insert_into_table(self, request: Any, request_data: bytes) -> Any:
        rows = pa.ipc.open_stream(request_data).read_all()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows.slice(1))
        return self.good.insert_into_table(request, sink.getvalue().to_pybytes())


class EachTableExists(Lake):
    def table_exists(self, request: Any) -> Any:
        return spec.TableExistsResponse()


class DescribesAnotherLocation(Lake):
    def describe_table(self, request: Any) -> Any:
        described = self.good.describe_table(request)
        return described.model_copy(update={"location": f"{described.location}-other"})


FAULTS = {
    DropKeepsTheData: ("rows", "a dropped table leaves no data", "expected no data at .* after the drop, found 3 rows"),
    DropKeepsTheRegistration: (
        "tables",
        "a dropped table is gone",
        r"expected TableNotFoundError \(code 4\), but the call succeeded",
    ),
    LosesProperties: ("namespaces", "a created namespace has its properties", "expected the property k='v', found {}"),
    RaisesKeyError: (
        "tables",
        "a missing table is not found (describe_table)",
        r"expected TableNotFoundError \(code 4\), got KeyError, which is no error of the spec: 't'",
    ),
    NeverEndsAListing: (
        "listing",
        "a listing without a limit is complete",
        "expected a last page without a token, found 101 pages that are empty",
    ),
    RepeatsAPage: (
        "listing",
        "pages of tables have each name once (3)",
        "expected each page once, found again {'tables': ",
    ),
    OverwriteKeepsTheTable: (
        "rows",
        "each mode keeps or replaces an existing table (Overwrite-1)",
        "expected a row count of 1, found 3",
    ),
    CreateAcceptsAnExistingTable: (
        "rows",
        "creating an existing table fails",
        r"expected TableAlreadyExistsError \(code 5\), but the call succeeded",
    ),
    InsertLosesARow: ("rows", "an insert appends or overwrites (Append-6)", "expected a row count of 6, found 5"),
    EachTableExists: (
        "tables",
        "a missing table is not found (table_exists)",
        r"expected TableNotFoundError \(code 4\), but the call succeeded",
    ),
    DescribesAnotherLocation: (
        "tables",
        "a declared table is described at its location",
        "the described table: expected the location .*, found .*-other",
    ),
}
"""The group of checks, the check that finds the fault, and the reason in the report."""


def check(client: Callable[..., Any], root: Path, *features: str, checks: Collection[str] = ()) -> Report:
    return run(Target("lake", lambda: client(root=str(root)), takes_mappings=True), features=features, checks=checks)


@pytest.mark.parametrize(("client", "expected"), FAULTS.items(), ids=[it.__name__ for it in FAULTS])
def test_a_fault_is_reported(tmp_path: Path, client: Callable[..., Any], expected: tuple[str, str, str]) -> None:
    feature, name, reason = expected
    [found] = check(client, tmp_path, feature, checks=[name]).checks
    assert found.result is Result.WRONG and re.match(reason, found.reason)


def test_a_class_without_a_fault_has_an_empty_report(tmp_path: Path) -> None:
    report = check(Lake, tmp_path, *{feature for feature, _, _ in FAULTS.values()})
    assert [it for it in report.checks if it.result is Result.WRONG] == [] and report.conforms
    assert report.leftovers == []


class SpellsLocationsInTwoWays(Lake):
    """Declares at `/x` what it describes at `file:/x`."""

    def declare_table(self, request: Any) -> Any:
        declared: Any = self.good.declare_table(request)
        return declared.model_copy(update={"location": normalize_location(declared.location)})

    def describe_table(self, request: Any) -> Any:
        described: Any = self.good.describe_table(request)
        return described.model_copy(update={"location": f"file:{normalize_location(described.location)}/"})


def test_spellings_of_one_location_are_equal(tmp_path: Path) -> None:
    assert check(SpellsLocationsInTwoWays, tmp_path, "tables").conforms


@pytest.mark.parametrize(
    "location", ["/tmp/a b", "/tmp/a b/", "file:/tmp/a b", "file:///tmp/a%20b", "file://localhost/tmp/a b"]
)
def test_a_folder_has_one_normal_location(location: str) -> None:
    assert normalize_location(location) == "/tmp/a b"


@pytest.mark.parametrize("location", ["s3://tmp/x", "/tmp/x%20", "/", "tmp/x", "file+uncompressed:///tmp/x"])
def test_other_locations_are_normal(location: str) -> None:
    assert normalize_location(location) == location


class ForeignError(Exception):
    """An error of another package."""


class FailsToList(Lake):
    def list_namespaces(self, request: Any) -> Any:
        raise ForeignError("no route to host")


class FailsToDrop(Lake):
    def drop_table(self, request: Any) -> Any:
        raise ForeignError("no route to host")


class ListsNoNamespaces(Lake):
    def list_namespaces(self, request: Any) -> Any:
        raise NotImplementedError("list_namespaces")


class IsNotConstructed(Lake):
    def __init__(self, **properties: str) -> None:
        raise ForeignError("no key")


def test_a_foreign_error_of_the_first_listing_is_named(tmp_path: Path) -> None:
    message = (
        r"lake: list_namespaces of \[\]: expected .*, got .*\.ForeignError, which is no error of the spec: no route"
    )
    with pytest.raises(err.ServiceUnavailableError, match=message):
        check(FailsToList, tmp_path, "listing")


def test_a_foreign_error_of_the_constructor_is_named(tmp_path: Path) -> None:
    with pytest.raises(err.InvalidInputError, match="lake cannot be constructed: ForeignError: no key"):
        check(IsNotConstructed, tmp_path, "listing")


def test_a_foreign_error_of_the_cleanup_is_a_leftover(tmp_path: Path) -> None:
    report = check(FailsToDrop, tmp_path, "listing", checks=["a listing without a limit is complete"])
    assert report.conforms and report.leftovers
    assert all(re.match(r"the data of .*, which is only deregistered: .*ForeignError", it) for it in report.leftovers)


def test_a_class_without_list_namespaces_is_checked(tmp_path: Path) -> None:
    assert check(ListsNoNamespaces, tmp_path, "listing", checks=["an empty namespace lists no tables"]).conforms


def test_a_check_must_be_there(tmp_path: Path) -> None:
    names = ["a dropped table is gone", "a dropped table stays"]
    message = "check 'a dropped table stays': there is none in tables; did you mean 'a d"
    with pytest.raises(err.InvalidInputError, match=message):
        check(Lake, tmp_path, "tables", checks=names)
