"""Rollback of failed creations and overwrites: the earlier state remains, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance.file
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateTableRequest,
)
from lance_namespace.errors import (
    InternalError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableSchemaValidationError,
)

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.model import Id, Table, TableId
from lance_ns_async.tables.lifecycle import creating
from tests.fakes.memory import MemoryBackend, over
from tests.support.lake import ROWS, stream

OTHER = pa.table({"id": [9]})


class Keeping(MemoryBackend):
    """A catalog that stores columns, with tables in a directory."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self.schemas: list[pa.Schema | None] = []

    async def default_location(self, id: TableId) -> str | None:
        return str(self._root / id.name)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Any, schema: pa.Schema | None = None
    ) -> Table:
        made = await super().declare_table(id, location or str(self._root / id.name), properties)
        self.schemas.append(schema)
        self.tables[id] = Table(id, made.location, dict(properties), schema=schema)
        return self.tables[id]


class Catalog:
    """A namespace on such a catalog."""

    id = TableId(["t"])

    def __init__(self, root: Path, policy: Policy | None = None) -> None:
        self.location = root / "t"
        self.backend = Keeping(root)
        self.ns = over(self.backend, Caller(policy or Policy(), {}))

    async def create(self, mode: str = "create", rows: pa.Table = ROWS, **fields: Any) -> None:
        await self.ns.create_table(CreateTableRequest(id=["t"], mode=mode, **fields), stream(rows))


async def test_data_that_is_there_already_is_neither_registered_nor_removed(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    lance.write_dataset(OTHER, catalog.location)
    for mode in ("create", "existok", "overwrite"):
        with pytest.raises(TableAlreadyExistsError, match=r"not in the catalog, but there is data at .*"):
            await catalog.create(mode)
        assert catalog.backend.tables == {}
    assert lance.dataset(catalog.location).to_table() == OTHER


async def test_other_tables_below_it_outlive_a_table_that_failed(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    lance.write_dataset(OTHER, catalog.location / "below")
    with pytest.raises(TableSchemaValidationError):
        await catalog.create(rows=pa.table({"a.b": [1]}))
    assert catalog.backend.tables == {}
    assert lance.dataset(catalog.location / "below").to_table() == OTHER


async def test_what_cannot_be_undone_is_reported(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.backend.faults["deregister_table", catalog.id] = PermissionDeniedError("Permission denied: t")
    with pytest.raises(TableSchemaValidationError) as raised:
        await catalog.create(rows=pa.table({"a.b": [1]}))
    (note,) = raised.value.__notes__
    assert "table t stays registered at" in note and "Permission denied: t" in note


async def test_a_declared_table_is_removed_if_its_describe_fails(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.backend.catalog_capabilities = replace(catalog.backend.catalog_capabilities, vends=True)
    catalog.backend.faults["describe_table", catalog.id] = ServiceUnavailableError("Service unavailable: t")

    def heal(operation: str, _: Id) -> None:
        if catalog.backend.calls.count(("describe_table", catalog.id)) > 1:
            catalog.backend.faults.clear()

    catalog.backend.on_call = heal
    with pytest.raises(ServiceUnavailableError):
        await catalog.create()
    assert catalog.backend.tables == {} and not catalog.location.exists()


async def test_a_declaration_stays_if_it_is_unknown_whether_it_was_written_to(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.backend.catalog_capabilities = replace(catalog.backend.catalog_capabilities, vends=True)
    catalog.backend.faults["describe_table", catalog.id] = ServiceUnavailableError("Service unavailable: t")
    with pytest.raises(ServiceUnavailableError) as raised:
        await catalog.create()
    (note,) = raised.value.__notes__
    assert "table t stays registered at" in note and "deregister_table removes it" in note
    assert list(catalog.backend.tables) == [catalog.id]


async def test_the_catalog_receives_the_columns(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    await catalog.create()
    assert catalog.backend.schemas == [ROWS.schema]


async def test_an_overwrite_updates_columns_and_properties_in_the_catalog(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    await catalog.create(properties={"owner": "me"})
    await catalog.create("overwrite", rows=OTHER)
    await catalog.create("overwrite", rows=OTHER, properties={"owner": "you"})
    table = catalog.backend.tables[catalog.id]
    assert (table.schema, table.properties) == (OTHER.schema, {"owner": "you"})
    assert table.location == str(catalog.location) and lance.dataset(catalog.location).version == 3


async def test_an_overwrite_that_fails_leaves_the_registration_as_it_was(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    await catalog.create(properties={"owner": "me"})
    before = catalog.backend.tables[catalog.id]
    with pytest.raises(TableSchemaValidationError):
        await catalog.create("overwrite", rows=pa.table({"a.b": [1]}), properties={"owner": "you"})
    assert catalog.backend.tables[catalog.id] == before
    assert lance.dataset(catalog.location).to_table() == ROWS


class Panic(BaseException):
    """The error of Lance's Rust side after an internal failure."""


@pytest.mark.parametrize("error", [AttributeError, MemoryError, Panic, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["write_fragments", "commit"])
async def test_whatever_ends_a_create_neither_table_nor_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], where: str
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error("it ends here")

    catalog = Catalog(tmp_path)
    monkeypatch.setattr(lance.LanceDataset if where == "commit" else lance.fragment, where, fail)
    with pytest.raises(error, match="it ends here"):
        await catalog.create()
    assert catalog.backend.tables == {} and not any(path.is_file() for path in catalog.location.rglob("*"))


async def test_a_first_version_that_is_ours_is_not_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = lance.LanceDataset.commit

    def done_and_forgotten(*args: Any, **kwargs: Any) -> None:
        commit(*args, **kwargs)
        raise OSError("LanceError(IO): the answer was lost, /lance/commit.rs:1:1")

    monkeypatch.setattr(lance.LanceDataset, "commit", done_and_forgotten)
    catalog = Catalog(tmp_path)
    await catalog.create()
    assert list(catalog.backend.tables) == [catalog.id] and lance.dataset(catalog.location).to_table() == ROWS


async def test_a_first_version_that_is_not_made_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise OSError("LanceError(IO): no, /lance/commit.rs:1:1")

    monkeypatch.setattr(lance.LanceDataset, "commit", refused)
    catalog = Catalog(tmp_path)
    with pytest.raises(InternalError):
        await catalog.create()
    assert catalog.backend.tables == {} and not any(path.is_file() for path in catalog.location.rglob("*"))


async def test_data_of_a_table_deregistered_meanwhile_is_kept(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    await catalog.create(rows=OTHER)
    before = {path for path in catalog.location.rglob("*") if path.is_file()}

    def meddle(operation: str, _: Id) -> None:
        if operation == "declare_table":
            catalog.backend.tables.clear()

    catalog.backend.on_call = meddle
    with pytest.raises(TableAlreadyExistsError, match=rf"there is data at {catalog.location}, which") as raised:
        await catalog.create()
    assert raised.value.__notes__ == [f"and table t stays registered, because a version of it is at {catalog.location}"]
    assert lance.dataset(catalog.location).to_table() == OTHER
    assert before == {path for path in catalog.location.rglob("*") if path.is_file()}


@pytest.mark.parametrize("fault", [None, PermissionDeniedError("Permission denied: t")], ids=["again", "refused"])
async def test_a_table_that_was_written_to_while_it_was_taken_back_is_reported_unchanged(
    tmp_path: Path, fault: PermissionDeniedError | None
) -> None:
    catalog = Catalog(tmp_path)

    def meddle(operation: str, id: Id) -> None:
        if operation == "deregister_table":
            lance.write_dataset(OTHER, catalog.location)
            if fault is not None:
                catalog.backend.faults["declare_table", id] = fault

    catalog.backend.on_call = meddle
    with pytest.raises(TableSchemaValidationError) as raised:
        await catalog.create(rows=pa.table({"a.b": [1]}))
    place = catalog.location
    refused = f"and another client wrote to {place}, but table t could not be registered again ({fault}); "
    assert raised.value.__notes__ == [
        "and table t is registered again, because another client wrote to it"
        if fault is None
        else f"{refused}if it is missing, register_table registers it again"
    ]
    assert list(catalog.backend.tables) == ([catalog.id] if fault is None else [])


async def test_files_that_cannot_be_removed_with_a_declaration_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise OSError("LanceError(IO): no, /lance/file.rs:1:1")

    catalog, error = Catalog(tmp_path), ValueError("first")
    table = await catalog.backend.declare_table(catalog.id, None, {})
    (catalog.location / "data").mkdir(parents=True)
    (catalog.location / "data" / "left.lance").write_bytes(b"left")
    monkeypatch.setattr(lance.file.LanceFileSession, "delete_file", fail)
    await creating.take_back(catalog.backend, table, error, clear=True)
    (note,) = error.__notes__
    assert note.startswith(f"and unused files are left at {catalog.location} (Internal error: t")
    assert catalog.backend.tables == {}
