"""Tables: declared, described, registered, renamed and removed."""

from __future__ import annotations

from typing import Any

import lance_namespace as spec
import lance_namespace.errors as err
import pytest
from lance_namespace import LanceNamespace

from lance_ns_async.conformance.home import Home, check_location, expect, normalize_location, request_for
from lance_ns_async.conformance.targets import Target


def test_a_declared_table_is_described_at_its_location(ns: LanceNamespace, home: Home) -> None:
    declared = ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))
    described = ns.describe_table(spec.DescribeTableRequest(id=home.table("t")))
    assert declared.location, f"expected a location in the response, found {declared.location!r}"
    check_location("the described table", described.location, declared.location)


def test_a_declared_table_keeps_its_properties(ns: LanceNamespace, home: Home) -> None:
    ns.declare_table(spec.DeclareTableRequest(id=home.table("t"), properties={"k": "v"}))
    described = ns.describe_table(spec.DescribeTableRequest(id=home.table("t")))
    if described.properties is None:
        pytest.skip("it keeps no properties")
    assert described.properties.get("k") == "v", f"expected the property k='v', found {described.properties}"


def test_two_tables_have_two_locations(ns: LanceNamespace, home: Home) -> None:
    t, u = (ns.declare_table(spec.DeclareTableRequest(id=home.table(name))).location for name in ("t", "u"))
    assert t and u, f"expected a location of each table, found {t!r} and {u!r}"
    assert normalize_location(t) != normalize_location(u), f"expected two locations, found {t} and {u}"


def test_declaring_an_existing_table_fails(ns: LanceNamespace, home: Home) -> None:
    ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))
    with expect(err.TableAlreadyExistsError):
        ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))


def test_declaring_needs_the_namespace(ns: LanceNamespace, home: Home) -> None:
    with expect(err.NamespaceNotFoundError):
        ns.declare_table(spec.DeclareTableRequest(id=home.beside("none", "t")))
    with expect(err.TableNotFoundError, err.NamespaceNotFoundError):
        ns.describe_table(spec.DescribeTableRequest(id=home.beside("none", "t")))


@pytest.mark.parametrize("operation", ["describe_table", "table_exists", "deregister_table", "drop_table"])
def test_a_missing_table_is_not_found(ns: LanceNamespace, home: Home, operation: str) -> None:
    ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))
    with expect(err.TableNotFoundError):
        getattr(ns, operation)(request_for(operation, home.table("none")))


@pytest.mark.parametrize("operation", ["describe_table", "table_exists", "deregister_table", "drop_table"])
def test_a_table_of_a_missing_namespace_is_not_found(ns: LanceNamespace, home: Home, operation: str) -> None:
    with expect(err.TableNotFoundError, err.NamespaceNotFoundError):
        getattr(ns, operation)(request_for(operation, home.beside("none", "t")))


def test_an_existing_table_exists(ns: LanceNamespace, home: Home) -> None:
    ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))
    ns.table_exists(spec.TableExistsRequest(id=home.table("t")))


def test_a_deregistered_table_is_gone(ns: LanceNamespace, home: Home) -> None:
    location = ns.declare_table(spec.DeclareTableRequest(id=home.table("t"))).location
    answer = ns.deregister_table(spec.DeregisterTableRequest(id=home.table("t")))
    if answer.location is not None:
        check_location("the deregistered table", answer.location, location)
    _check_gone(ns, home, "t")


def test_a_dropped_table_is_gone(ns: LanceNamespace, home: Home) -> None:
    ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))
    ns.declare_table(spec.DeclareTableRequest(id=home.table("other")))
    ns.drop_table(spec.DropTableRequest(id=home.table("t")))
    _check_gone(ns, home, "t")
    ns.describe_table(spec.DescribeTableRequest(id=home.table("other")))


def test_a_registered_table_is_described_at_its_location(ns: LanceNamespace, home: Home) -> None:
    location = _free_location(ns, home, "t")
    _register(ns, home.table("again"), location)
    described = ns.describe_table(spec.DescribeTableRequest(id=home.table("again"))).location
    check_location("the registered table", described, location)


def test_registering_an_existing_table_fails(ns: LanceNamespace, home: Home) -> None:
    before = ns.declare_table(spec.DeclareTableRequest(id=home.table("t"))).location
    location = _free_location(ns, home, "free")
    with expect(err.TableAlreadyExistsError):
        _register(ns, home.table("t"), location)
    described = ns.describe_table(spec.DescribeTableRequest(id=home.table("t"))).location
    check_location("the table that existed", described, before)


def test_registering_with_mode_overwrite_replaces_the_table(ns: LanceNamespace, home: Home) -> None:
    ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))
    location = _free_location(ns, home, "free")
    _register(ns, home.table("t"), location, mode="Overwrite")
    described = ns.describe_table(spec.DescribeTableRequest(id=home.table("t"))).location
    check_location("the registered table", described, location)


def test_registering_needs_the_namespace(ns: LanceNamespace, home: Home) -> None:
    location = _free_location(ns, home, "free")
    with expect(err.NamespaceNotFoundError):
        _register(ns, home.beside("none", "t"), location)


def test_a_location_that_leads_out_of_its_folder_is_refused(ns: LanceNamespace, home: Home) -> None:
    with expect(err.InvalidInputError):
        ns.register_table(spec.RegisterTableRequest(id=home.table("t"), location="../outside/t"))
    _check_gone(ns, home, "t")


def test_a_renamed_table_keeps_its_location(ns: LanceNamespace, home: Home) -> None:
    location = ns.declare_table(spec.DeclareTableRequest(id=home.table("t"))).location
    ns.rename_table(spec.RenameTableRequest(id=home.table("t"), new_table_name="new"))
    described = ns.describe_table(spec.DescribeTableRequest(id=home.table("new"))).location
    check_location("the renamed table", described, location)
    _check_gone(ns, home, "t")


def test_renaming_to_an_existing_name_fails(ns: LanceNamespace, home: Home) -> None:
    for name in ("t", "taken"):
        ns.declare_table(spec.DeclareTableRequest(id=home.table(name)))
    with expect(err.TableAlreadyExistsError):
        ns.rename_table(spec.RenameTableRequest(id=home.table("t"), new_table_name="taken"))
    ns.describe_table(spec.DescribeTableRequest(id=home.table("t")))


def test_renaming_a_missing_table_fails(ns: LanceNamespace, home: Home) -> None:
    with expect(err.TableNotFoundError):
        ns.rename_table(spec.RenameTableRequest(id=home.table("none"), new_table_name="new"))


@pytest.mark.parametrize("id", [[""], ["", "t"]], ids=["empty name", "empty namespace"])
def test_an_id_with_an_empty_name_is_refused(ns: LanceNamespace, home: Home, id: list[str]) -> None:
    with expect(err.InvalidInputError, err.TableNotFoundError, err.NamespaceNotFoundError):
        ns.declare_table(spec.DeclareTableRequest(id=id if id == [""] else [*home.parent, *id]))


def test_a_request_may_be_a_mapping(ns: LanceNamespace, home: Home, target: Target) -> None:
    if not target.takes_mappings:
        pytest.skip("a server receives JSON alone")

    class Mapping(dict[str, Any]):
        """The kind of mapping that Lance's Rust side passes."""

        def model_dump(self) -> dict[str, Any]:
            return self

    requests: Any = ns
    requests.declare_table(Mapping(id=home.table("t")))
    location = requests.describe_table(Mapping(id=home.table("t"), vend_credentials=True)).location
    assert location, f"expected a location, found {location!r}"


def _free_location(ns: LanceNamespace, home: Home, name: str) -> str:
    """Returns the location of a table that was declared and deregistered."""
    location = ns.declare_table(spec.DeclareTableRequest(id=home.table(name))).location
    assert location is not None, "expected a location in the response of declare_table, found None"
    ns.deregister_table(spec.DeregisterTableRequest(id=home.table(name)))
    return location


def _register(ns: LanceNamespace, id: list[str], location: str, mode: str | None = None) -> None:
    """Registers a location, as it is or relative to the root of the catalog, if that is what it accepts."""
    try:
        ns.register_table(spec.RegisterTableRequest(id=id, location=location, mode=mode))
    except err.InvalidInputError as e:
        relative = location.rstrip("/").rsplit("/", 1)[-1]
        try:
            ns.register_table(spec.RegisterTableRequest(id=id, location=relative, mode=mode))
        except err.InvalidInputError:
            # The catalog has another reason, for example that a deleted table keeps its location.
            raise e from None


def _check_gone(ns: LanceNamespace, home: Home, name: str) -> None:
    with expect(err.TableNotFoundError):
        ns.describe_table(spec.DescribeTableRequest(id=home.table(name)))
    listed = ns.list_tables(spec.ListTablesRequest(id=home.id)).tables
    assert name not in listed, f"expected a listing without {name}, found {listed}"
