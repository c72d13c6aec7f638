"""Tables created with rows, and the rollback of failed creations and overwrites."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance.file
import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.lifecycle import creating
from lance_ns_async.model import Id, Table, TableId
from tests.fakes.memory import MemoryBackend, over
from tests.support.errors import catch, outcomes_of
from tests.support.lake import ID, ROWS, Lake, lake, stream

pytestmark = pytest.mark.environment
OTHER = pa.table({"id": [9]})


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, pa.py_buffer])
async def test_rows_may_be_in_any_bytes(here: Lake, form: Any) -> None:
    await here.ns.create_table(spec.CreateTableRequest(id=ID), form(stream(ROWS)))
    assert await here.values("id") == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        *((it, r"^request_data: not an Arrow IPC stream \(") for it in (b"", b"garbage", b"\0" * 64)),
        (stream(ROWS)[:-200], r"^request_data: not an Arrow IPC stream \("),
        (stream(ROWS)[:60] + b"\xff" * 40 + stream(ROWS)[100:], r"^request_data: not an Arrow IPC stream \("),
        (b"ARROW1\0\0", "^request_data: must be an Arrow IPC stream, not a file"),
        (None, "^request_data: must be the bytes of an Arrow IPC stream, not NoneType"),
        ("text", "^request_data: must be the bytes of an Arrow IPC stream, not str"),
    ],
)
async def test_what_is_no_stream_is_refused_before_anything_is_done(here: Lake, data: Any, message: str) -> None:
    await catch(err.InvalidInputError, here.ns.create_table(spec.CreateTableRequest(id=ID), data), message)
    assert not await here.ns.exists(ID) and here.left() == []


async def test_impossible_rows_and_namespaces_create_nothing(here: Lake) -> None:
    good = stream(pa.table({"s": ["abc"]}))
    # The string would end two gigabytes after its beginning.
    end = good.index(b"\0\0\0\0\x03\0\0\0") + 4
    with pytest.raises(err.InvalidInputError, match="request_data: not an Arrow IPC stream"):
        await here.ns.create_table(spec.CreateTableRequest(id=ID), good[:end] + b"\xff\xff\xff\x7f" + good[end + 4 :])
    await catch(err.NamespaceNotFoundError, here.create(["none", "t"]), r"^Namespace not found: none ")
    with pytest.raises(err.InvalidInputError, match=r"^mode 'append': unknown, known are create, exist_ok, overwrite$"):
        await here.create(mode="append")
    assert here.left() == []
    for rows in (pa.table({"a.b": [1]}), pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])):
        await catch(err.TableSchemaValidationError, here.create(rows=rows), r"^Table schema invalid: n\$t ")
        assert not await here.ns.exists(ID) and here.left() == []


async def test_one_that_is_only_declared_is_there(here: Lake) -> None:
    await here.ns.declare_table(spec.DeclareTableRequest(id=ID))
    await catch(err.TableAlreadyExistsError, here.create())
    kept = await here.ns.create_table(spec.CreateTableRequest(id=ID, mode="exist_ok"), stream(ROWS))
    assert kept.version is None and kept.location == await here.location()
    made = await here.ns.create_table(spec.CreateTableRequest(id=ID, mode="overwrite"), stream(ROWS))
    assert made.version == 1 and await here.values("id") == [1, 2, 3]


async def test_a_listing_of_all_can_exclude_declared_tables(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        for home in ([], ["a"], ["a", "b"]):
            if home:
                await ns.create_namespace({"id": home})
            await ns.declare_table({"id": [*home, "declared"]})
            await ns.write([*home, "written"], ROWS)
        every = ["declared", "written", "a$declared", "a$written", "a$b$declared", "a$b$written"]
        assert (await ns.list_all_tables({"id": []})).tables == every
        assert (await ns.list_all_tables({"id": [], "include_declared": True})).tables == every
        excluding = {"id": [], "include_declared": False}
        assert (await ns.list_all_tables(excluding)).tables == every[1::2]
        first = await ns.list_all_tables({**excluding, "limit": 2})
        rest = await ns.list_all_tables({**excluding, "limit": 2, "page_token": first.page_token})
        assert [*first.tables, *rest.tables] == every[1::2]
        assert (await ns.list_tables({"id": ["a"], "include_declared": False})).tables == ["written"]


async def test_an_overwrite_leaves_properties_that_are_not_given(here: Lake) -> None:
    await here.create(properties={"owner": "me"})
    await here.create(mode="overwrite", properties={"owner": "me"})
    await here.create(mode="overwrite")
    table = await here.ns.describe_table(spec.DescribeTableRequest(id=ID))
    assert table.properties == {"owner": "me"} and (await here.dataset()).version == 3


async def test_properties_that_the_catalog_would_not_keep_are_refused_first(here: Lake) -> None:
    await here.ns.write(["t"], ROWS)
    request = spec.CreateTableRequest(id=["t"], mode="overwrite", properties={"owner": "you"})
    with pytest.raises(err.InvalidInputError, match="stores properties only for tables"):
        await here.ns.create_table(request, stream(OTHER))
    assert (await here.ns.open(["t"])).to_table() == ROWS


async def test_of_many_that_create_it_at_once_one_does(here: Lake) -> None:
    outcomes = await _at_once(here.ns, "create")
    assert outcomes.count(None) == 1 and outcomes.count(err.TableAlreadyExistsError) == 7
    assert len(await here.values("id")) == 1


async def test_all_that_keep_what_is_there_find_it(here: Lake) -> None:
    assert await _at_once(here.ns, "existok") == [None] * 8 and len(await here.values("id")) == 1


async def test_the_older_name_of_declaring(here: Lake) -> None:
    made = await here.ns.create_empty_table(spec.CreateEmptyTableRequest(id=ID, properties={"k": "v"}))
    assert (made.location, made.version, made.properties) == (await here.location(), None, {"k": "v"})
    await catch(err.TableAlreadyExistsError, here.ns.create_empty_table(spec.CreateEmptyTableRequest(id=ID)))
    again = await here.ns.create_empty_table(spec.CreateEmptyTableRequest(id=ID, mode="ExistOk"))
    assert again.location == made.location
    with pytest.raises(err.InvalidInputError, match=r"^mode 'Overwrite': unknown, known are create, exist_ok"):
        await here.ns.create_empty_table(spec.CreateEmptyTableRequest(id=ID, mode="Overwrite"))


async def _at_once(ns: AsyncNamespace, mode: str) -> list[type[err.LanceNamespaceError] | None]:
    request = spec.CreateTableRequest(id=ID, mode=mode)
    return await outcomes_of(*(ns.create_table(request, stream(pa.table({"id": [n]}))) for n in range(8)))


class Keeping(MemoryBackend):
    """A catalog that stores columns, with tables in a directory."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    async def default_location(self, id: TableId) -> str | None:
        return str(self._root / id.name)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Any, schema: pa.Schema | None = None
    ) -> Table:
        made = await super().declare_table(id, location or str(self._root / id.name), properties)
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
        await self.ns.create_table(spec.CreateTableRequest(id=["t"], mode=mode, **fields), stream(rows))


async def test_data_that_is_there_already_is_neither_registered_nor_removed(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    lance.write_dataset(OTHER, catalog.location)
    for mode in ("create", "existok", "overwrite"):
        await catch(err.TableAlreadyExistsError, catalog.create(mode), r"not in the catalog, but there is data at .*")
        assert catalog.backend.tables == {}
    assert lance.dataset(catalog.location).to_table() == OTHER


async def test_other_tables_below_it_outlive_a_table_that_failed(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    lance.write_dataset(OTHER, catalog.location / "below")
    await catch(err.TableSchemaValidationError, catalog.create(rows=pa.table({"a.b": [1]})))
    assert catalog.backend.tables == {} and lance.dataset(catalog.location / "below").to_table() == OTHER


async def test_what_cannot_be_undone_is_reported(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.backend.faults["deregister_table", catalog.id] = err.PermissionDeniedError("Permission denied: t")
    raised = await catch(err.TableSchemaValidationError, catalog.create(rows=pa.table({"a.b": [1]})))
    (note,) = raised.value.__notes__
    assert "table t stays registered at" in note and "Permission denied: t" in note


async def test_a_declared_table_is_removed_if_its_describe_fails(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.backend.capabilities = replace(catalog.backend.capabilities, vends=True)
    catalog.backend.faults["describe_table", catalog.id] = err.ServiceUnavailableError("Service unavailable: t")

    def heal(operation: str, _: Id) -> None:
        if catalog.backend.calls.count(("describe_table", catalog.id)) > 1:
            catalog.backend.faults.clear()

    catalog.backend.on_call = heal
    await catch(err.ServiceUnavailableError, catalog.create())
    assert catalog.backend.tables == {} and not catalog.location.exists()


async def test_a_declaration_stays_if_it_is_unknown_whether_it_was_written_to(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.backend.capabilities = replace(catalog.backend.capabilities, vends=True)
    catalog.backend.faults["describe_table", catalog.id] = err.ServiceUnavailableError("Service unavailable: t")
    raised = await catch(err.ServiceUnavailableError, catalog.create())
    (note,) = raised.value.__notes__
    assert "table t stays registered at" in note and "deregister_table removes it" in note
    assert list(catalog.backend.tables) == [catalog.id]


async def test_an_overwrite_updates_columns_and_properties_in_the_catalog(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    await catalog.create(properties={"owner": "me"})
    assert catalog.backend.tables[catalog.id].schema == ROWS.schema
    await catalog.create("overwrite", rows=OTHER)
    await catalog.create("overwrite", rows=OTHER, properties={"owner": "you"})
    table = catalog.backend.tables[catalog.id]
    assert (table.schema, table.properties) == (OTHER.schema, {"owner": "you"})
    assert table.location == str(catalog.location) and lance.dataset(catalog.location).version == 3


class Panic(BaseException):
    """The error of Lance's Rust side after an internal failure."""


@pytest.mark.parametrize("error", [AttributeError, MemoryError, Panic, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("where", ["write_fragments", "commit"])
async def test_a_failed_create_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], where: str
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error("LanceError(IO): it ends here, /lance/commit.rs:1:1")

    catalog = Catalog(tmp_path)
    monkeypatch.setattr(lance.LanceDataset if where == "commit" else lance.fragment, where, fail)
    await catch(err.InternalError if error is OSError else error, catalog.create(), "it ends here")
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


async def test_data_of_a_table_deregistered_meanwhile_is_kept(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    await catalog.create(rows=OTHER)
    before = {path for path in catalog.location.rglob("*") if path.is_file()}

    def meddle(operation: str, _: Id) -> None:
        if operation == "declare_table":
            catalog.backend.tables.clear()

    catalog.backend.on_call = meddle
    raised = await catch(err.TableAlreadyExistsError, catalog.create(), rf"there is data at {catalog.location}, which")
    assert raised.value.__notes__ == [f"and table t stays registered, because a version of it is at {catalog.location}"]
    assert lance.dataset(catalog.location).to_table() == OTHER
    assert before == {path for path in catalog.location.rglob("*") if path.is_file()}


@pytest.mark.parametrize("fault", [None, err.PermissionDeniedError("Permission denied: t")], ids=["again", "refused"])
async def test_a_table_that_others_wrote_to_is_unchanged(
    tmp_path: Path, fault: err.PermissionDeniedError | None
) -> None:
    catalog = Catalog(tmp_path)

    def meddle(operation: str, id: Id) -> None:
        if operation == "deregister_table":
            lance.write_dataset(OTHER, catalog.location)
            if fault is not None:
                catalog.backend.faults["declare_table", id] = fault

    catalog.backend.on_call = meddle
    raised = await catch(err.TableSchemaValidationError, catalog.create(rows=pa.table({"a.b": [1]})))
    place = catalog.location
    refused = f"and another client wrote to {place}, but table t could not be registered again ({fault}); "
    assert raised.value.__notes__ == [
        "and table t is registered again, because another client wrote to it"
        if fault is None
        else f"{refused}if it is missing, register_table registers it again"
    ]
    assert list(catalog.backend.tables) == ([catalog.id] if fault is None else [])


async def test_undeleted_files_of_a_declaration_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise OSError("LanceError(IO): no, /lance/file.rs:1:1")

    catalog, error = Catalog(tmp_path), ValueError("first")
    table = await catalog.backend.declare_table(catalog.id, None, {})
    (catalog.location / "data").mkdir(parents=True)
    (catalog.location / "data" / "left.lance").write_bytes(b"left")
    monkeypatch.setattr(lance.file.LanceFileSession, "delete_file", fail)
    await creating.undo_declaration(catalog.backend, table, error, clear=True)
    (note,) = error.__notes__
    assert note.startswith(f"and unused files are left at {catalog.location} (Internal error: t")
    assert catalog.backend.tables == {}
