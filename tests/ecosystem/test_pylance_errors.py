"""Errors in pylance: ours from the catalog, pylance's from the storage."""

from __future__ import annotations

from collections.abc import Iterator

import lance_namespace
import pyarrow as pa
import pytest
from lance_namespace import DeclareTableRequest, DeregisterTableRequest, DropTableRequest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async import Namespace
from tests.ecosystem.catalogs import Catalog, on_each_kind
from tests.ecosystem.pylance_tables import MORE, ROWS, ids, opened, write


@on_each_kind
def test_a_missing_table_is_missing_whatever_is_wanted_of_it(ns: Namespace, home: list[str]) -> None:
    id = [*home, "t"]
    message = rf"^Table not found: {'[$]'.join(id)} \("
    with pytest.raises(TableNotFoundError, match=message):
        opened(ns, id)
    for mode in ("append", "overwrite"):
        with pytest.raises(TableNotFoundError, match=message):
            write(ns, id, mode=mode)
    assert not ns.exists(id)


@on_each_kind
def test_a_missing_namespace_is_missing(ns: Namespace, home: list[str]) -> None:
    missing = [*home[:-1], "nowhere"]
    with pytest.raises(NamespaceNotFoundError, match=rf"^Namespace not found: {'[$]'.join(missing)} \("):
        write(ns, [*missing, "t"])
    with pytest.raises((NamespaceNotFoundError, TableNotFoundError), match=r" not found: (\w+\$)*nowhere"):
        opened(ns, [*missing, "t"])


def test_a_table_is_made_once(ns: Namespace, home: list[str]) -> None:
    id = [*home, "t"]
    write(ns, id)
    with pytest.raises(TableAlreadyExistsError, match=rf"^Table already exists: {'[$]'.join(id)} \("):
        write(ns, id, MORE)
    assert opened(ns, id).to_table() == ROWS


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_what_was_declared_and_never_written_can_be_written_but_not_made_again(
    ns: Namespace, home: list[str], mode: str
) -> None:
    id = [*home, "t"]
    ns.declare_table(DeclareTableRequest(id=id))
    with pytest.raises(ValueError, match=r"Dataset at path .* was not found"):
        opened(ns, id)
    with pytest.raises(TableAlreadyExistsError):
        write(ns, id)
    write(ns, id, mode=mode)
    assert ids(ns, id) == [1, 2, 3]


def test_a_create_that_fails_leaves_the_table_declared(ns: Namespace, home: list[str]) -> None:
    id = [*home, "t"]

    def broken() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise OSError("the source is gone")

    for again in ("overwrite", "create"):
        with pytest.raises(OSError, match="the source is gone"):
            write(ns, id, pa.RecordBatchReader.from_batches(ROWS.schema, broken()))
        assert ns.exists(id)
        with pytest.raises(ValueError, match=r"Dataset at path .* was not found"):
            opened(ns, id)
        with pytest.raises(TableAlreadyExistsError):
            write(ns, id)
        if again == "create":
            ns.deregister_table(DeregisterTableRequest(id=id))
        write(ns, id, mode=again)
        assert ids(ns, id) == [1, 2, 3]
        ns.drop_table(DropTableRequest(id=id))


def test_missing_data_is_reported_by_pylance(ns: Namespace, home: list[str]) -> None:
    id = [*home, "t"]
    write(ns, id)
    with pytest.raises(ValueError, match=r"_versions/99.manifest was not found"):
        opened(ns, id, 99)
    with pytest.raises(ValueError, match="tag nix does not exist"):
        opened(ns, id, "nix")
    with pytest.raises(OSError, match="Append with different schema"):
        write(ns, id, ROWS.rename_columns(["x", "y"]), mode="append")


@pytest.mark.parametrize("wrong", [[], ["t", ""]])
def test_an_id_that_names_no_table_is_refused_before_any_call(ns: Namespace, wrong: list[str]) -> None:
    for use in (opened, write):
        with pytest.raises(InvalidInputError, match=r"^table id \["):
            use(ns, wrong)


def test_a_closed_namespace_says_so(catalog: Catalog, home: list[str]) -> None:
    ns = catalog.connect()
    write(ns, [*home, "t"])
    dataset = opened(ns, [*home, "t"])
    ns.close()
    with pytest.raises(InvalidInputError, match=r"it is closed; connect anew$"):
        opened(ns, [*home, "t"])
    assert dataset.to_table() == ROWS


def test_errors_are_of_the_spec(ns: Namespace, home: list[str]) -> None:
    with pytest.raises(LanceNamespaceError) as caught:
        opened(ns, [*home, "t"])
    assert caught.value.code == lance_namespace.errors.ErrorCode.TABLE_NOT_FOUND


def test_a_wrong_property_is_named_by_connect(catalog: Catalog) -> None:
    message = rf"Failed to construct namespace impl {catalog.class_path}: {catalog.impl} properties: nix: unknown"
    with pytest.raises(ValueError, match=message):
        lance_namespace.connect(catalog.class_path, {**catalog.properties, "nix": "1"})
