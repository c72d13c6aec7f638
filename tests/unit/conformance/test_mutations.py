"""A catalog with one fault: the kit finds it, by the name of the rule; without a fault it finds nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance_namespace.errors as err
import pytest
from lance_namespace import DropNamespaceResponse, DropTableResponse, ListNamespacesResponse

from lance_ns_async import DirNamespace
from lance_ns_async.conformance import FEATURES, Report, Result, Target, run
from tests.support.budget import with_usual
from tests.unit.conformance.toy import Store, Toy, path, word

pytestmark = pytest.mark.long


Method = Callable[..., Any]

CATALOG_FEATURES = [it for it in FEATURES if it not in ("rows", "versions", "columns")]


def check(client: type[Toy], *features: str) -> Report:
    store = Store()
    return run(Target("toy", lambda: client(store), takes_mappings=True), features=features)


def mutant(operation: str, replacement: Callable[[Method], Method]) -> type[Toy]:
    """Returns the toy with another method in place of one."""
    return type("Mutant", (Toy,), {operation: replacement(getattr(Toy, operation))})


def answering(error: type[Exception], instead: Any) -> Callable[[Method], Method]:
    """Returns a fault: another error, or a response as after success, in place of an error."""

    def replace(method: Method) -> Method:
        def call(self: Toy, request: Any) -> Any:
            try:
                return method(self, request)
            except error as e:
                if isinstance(instead, type):
                    raise instead(str(e)) from e
                return instead

        return call

    return replace


def changing(**fields: Any) -> Callable[[Method], Method]:
    """Returns a fault: the operation is called with other fields."""
    return lambda method: lambda self, request: method(self, request.model_copy(update=fields))


def altering(change: Callable[[Any], Any]) -> Callable[[Method], Method]:
    """Returns a fault: the response is changed."""

    def replace(method: Method) -> Method:
        def call(self: Toy, request: Any) -> Any:
            response = method(self, request)
            change(response)
            return response

        return call

    return replace


def lose_page(response: Any) -> None:
    response.page_token = None


def never_end(response: Any) -> None:
    response.page_token = "0"


def repeat_name(response: Any) -> None:
    response.tables[:0] = response.tables[:1]


def join_names(response: Any) -> None:
    response.tables[:] = [f"x${it}" for it in response.tables]


def drop_again(method: Method) -> Method:
    dropped: set[object] = set()

    def call(self: Toy, request: Any) -> Any:
        if path(request) in dropped and path(request) not in self.store.tables:
            return DropTableResponse()
        dropped.add(path(request))
        return method(self, request)

    return call


def declare_again(method: Method) -> Method:
    def call(self: Toy, request: Any) -> Any:
        self.store.tables.pop(path(request), None)
        return method(self, request)

    return call


def decode_names(method: Method) -> Method:
    def call(self: Toy, request: Any) -> Any:
        return method(self, {"id": [it.replace("%2F", "/") for it in path(request)]})

    return call


def only_exact_modes(method: Method) -> Method:
    def call(self: Toy, request: Any) -> Any:
        if request.mode not in (None, "Create", "ExistOk", "Overwrite", "Replace"):
            raise err.InvalidInputError(request.mode)
        return method(self, request)

    return call


def drop_content(method: Method) -> Method:
    def call(self: Toy, request: Any) -> Any:
        for id in [it for it in self.store.tables if it[:-1] == path(request)]:
            del self.store.tables[id]
        return method(self, request)

    return call


def forget_properties(method: Method) -> Method:
    return lambda self, request: method(self, request.model_copy(update={"properties": {}}))


def any_mode(method: Method) -> Method:
    def call(self: Toy, request: Any) -> Any:
        known = word(request.mode or "create") in ("create", "existok", "overwrite")
        return method(self, request if known else request.model_copy(update={"mode": "create"}))

    return call


LISTS_NONE = answering(err.NamespaceNotFoundError, ListNamespacesResponse(namespaces=[]))
SUCCEEDS = answering(err.NamespaceNotFoundError, DropNamespaceResponse())
NOT_MISSING = answering(err.TableNotFoundError, err.InternalError)
NO_PARENT = answering(err.NamespaceNotFoundError, err.InvalidInputError)

MUTANTS = {
    "a lost page of tables": ("list_tables", altering(lose_page), "listing", "pages of tables have each name once"),
    "a lost page of namespaces": ("list_namespaces", altering(lose_page), "namespaces", "pages of namespaces have"),
    "pages that never end": ("list_tables", altering(never_end), "listing", "pages of tables have each name once"),
    "a limit that is ignored": ("list_tables", changing(limit=None), "listing", "pages of tables have each name once"),
    "a name that is listed twice": ("list_tables", altering(repeat_name), "listing", "a listing without a limit is"),
    "whole ids in place of names": ("list_tables", altering(join_names), "listing", "a listing without a limit is"),
    "declared tables": ("list_tables", changing(include_declared=None), "listing", "tables that are only declared"),
    "a missing namespace that is listed as empty": ("list_namespaces", LISTS_NONE, "reading", "a missing namespace is"),
    "another code for a missing table": ("describe_table", NOT_MISSING, "tables", "a missing table is not found"),
    "another code for a missing namespace": ("declare_table", NO_PARENT, "tables", "declaring needs the namespace"),
    "two that win a drop": ("drop_table", drop_again, "at once", "a table is dropped once"),
    "two that win a declare": ("declare_table", declare_again, "at once", "of concurrent declares one wins"),
    "names that are decoded": ("declare_table", decode_names, "names", "a name is stored as it is or refused"),
    "one spelling of modes": ("create_namespace", only_exact_modes, "namespaces", "mode exist ok keeps"),
    "a mode that nobody knows": ("create_namespace", any_mode, "namespaces", "an unknown mode is refused"),
    "lost properties of tables": ("declare_table", forget_properties, "tables", "a declared table keeps"),
    "an overwrite of all content": ("create_namespace", drop_content, "namespaces", "mode overwrite keeps one with a"),
    "a drop with content": ("drop_namespace", drop_content, "namespaces", "a drop refuses a namespace with a table"),
    "a skip that is ignored": ("drop_namespace", changing(mode=None), "namespaces", "a drop with mode skip accepts"),
    "a success for a missing namespace": ("drop_namespace", SUCCEEDS, "namespaces", "a missing namespace is not found"),
    "a register that replaces": ("register_table", changing(mode="Overwrite"), "tables", "registering an existing"),
    "a register that keeps": ("register_table", changing(mode=None), "tables", "registering with mode overwrite"),
    "a rename to nowhere": ("rename_table", changing(new_table_name="lost"), "tables", "a renamed table keeps its"),
}


def test_a_catalog_without_a_fault_conforms() -> None:
    report = check(Toy, *CATALOG_FEATURES)
    assert [it for it in report.checks if it.result is not Result.OK] == [] and report.conforms
    assert {it.feature for it in report.checks} == set(CATALOG_FEATURES) and report.leftovers == []


@pytest.mark.parametrize(("operation", "fault", "feature", "rule"), MUTANTS.values(), ids=list(MUTANTS))
def test_a_fault_is_found_by_name(operation: str, fault: Callable[[Method], Method], feature: str, rule: str) -> None:
    report = check(mutant(operation, fault), feature)
    wrong = [it for it in report.checks if it.result is Result.WRONG and it.name.startswith(rule)]
    assert wrong and not report.conforms
    assert wrong[0].reason and operation in {it.operation for it in wrong[0].calls}


DATA_MUTANTS = {
    "an insert that always appends": ("insert_into_table", {"mode": None}, "rows", "an insert appends or overwrites"),
    "a query without its filter": ("query_table", {"filter": None}, "rows", "a query filters and limits"),
    "a restore of another version": ("restore_table", {"version": 2}, "versions", "a restored version is the newest"),
    "a tag of another name": ("create_table_tag", {"tag": "y"}, "versions", "a tag is created listed moved and"),
    "an index of another name": ("drop_table_index", {"index_name": "z"}, "columns", "an index is created listed and"),
}


USUAL = [DATA_MUTANTS["an insert that always appends"], DATA_MUTANTS["a restore of another version"]]
"""One of a feature is enough: pylance takes seconds for the tables of each run."""


@pytest.mark.parametrize(("operation", "fields", "feature", "rule"), with_usual(DATA_MUTANTS.values(), *USUAL))
def test_faults_of_rows_are_found(tmp_path: Path, operation: str, fields: Any, feature: str, rule: str) -> None:
    def call(self: DirNamespace, request: Any, *data: bytes) -> Any:
        return getattr(DirNamespace, operation)(self, request.model_copy(update=fields), *data)

    client = type("Mutant", (DirNamespace,), {operation: call})
    report = run(Target("toy", lambda: client(root=str(tmp_path)), takes_mappings=True), features=[feature])
    assert [it for it in report.checks if it.result is Result.WRONG and it.name.startswith(rule)]


def test_what_is_not_supported_is_no_fault() -> None:
    def refuse(method: Method) -> Method:
        def call(self: Toy, request: Any) -> Any:
            raise err.UnsupportedOperationError("rename_table")

        return call

    report = check(mutant("rename_table", refuse), "tables")
    assert report.conforms and report.counts[Result.UNSUPPORTED] == 3


def test_a_catalog_that_has_none_of_the_operations_does_not_conform() -> None:
    class Nothing(Toy):
        def create_namespace(self, request: Any) -> Any:
            raise err.UnsupportedOperationError("create_namespace")

    report = check(Nothing, "listing")
    assert not report.conforms and report.counts == {Result.UNSUPPORTED: len(report.checks)}
