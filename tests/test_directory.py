"""What is particular to the embedded catalog: tables at the root, names, and what a manifest tells."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DescribeTableRequest,
    RegisterTableRequest,
    RenameTableRequest,
)
from lance_namespace.errors import InvalidInputError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.observing import Call

DATA = pa.table({"id": [1, 2]})


async def test_datasets_that_lie_in_the_directory_are_its_tables(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        lance.write_dataset(DATA, tmp_path / f"{name}.lance")
    calls: list[Call] = []
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        with ns.observe(calls.append):
            described = (await ns.describe_tables([[name] for name in "abcd"])).raise_for_errors()
        assert len(calls) == 1
        for name in "abcd":
            alone = await ns.describe_table(DescribeTableRequest(id=[name]))
            assert described.tables[TableId([name])].location == alone.location
            assert lance.dataset(alone.location).count_rows() == 2


async def test_a_root_with_odd_letters_is_served_as_well(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "é b%20c")}) as ns:
        await ns.create_namespace(CreateNamespaceRequest(id=["db"]))
        for name in "abcd":
            declared = await ns.declare_table(DeclareTableRequest(id=["db", name]))
            assert declared.location is not None
            lance.write_dataset(DATA, declared.location)
        described = (await ns.describe_tables([["db", name] for name in "abcd"])).raise_for_errors()
        assert [lance.dataset(table.location).count_rows() for table in described.tables.values()] == [2] * 4


async def test_overwriting_checks_before_it_takes_the_old_one_away(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace(CreateNamespaceRequest(id=["db"]))
        declared = await ns.declare_table(DeclareTableRequest(id=["db", "t"], properties={"k": "v"}))
        await ns.declare_table(DeclareTableRequest(id=["t"]))
        for id, location in ((["db", "t"], "/somewhere/else.lance"), (["t"], "other.lance")):
            with pytest.raises(InvalidInputError):
                await ns.register_table(RegisterTableRequest(id=id, location=location, mode="overwrite"))
        found = await ns.describe_table(DescribeTableRequest(id=["db", "t"]))
        assert found.location == declared.location and found.properties == {"k": "v"}
        assert await ns.exists(["t"])


async def test_what_the_directory_cannot_keep_is_refused(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        with pytest.raises(InvalidInputError, match="keeps properties only"):
            await ns.declare_table(DeclareTableRequest(id=["t"], properties={"k": "v"}))
        with pytest.raises(InvalidInputError, match=r"it is 247 characters long .* takes 246"):
            await ns.declare_table(DeclareTableRequest(id=["a" * 123, "b" * 123]))
        with pytest.raises(InvalidInputError, match=r"it is 245 characters long .* takes 244"):
            await ns.create_namespace(CreateNamespaceRequest(id=["a" * 245]))
        with pytest.raises(InvalidInputError, match=r"letters, digits.*'a\$b' is not"):
            await ns.create_namespace(CreateNamespaceRequest(id=["a$b"]))
        await ns.declare_table(DeclareTableRequest(id=["t"]))
        with pytest.raises(UnsupportedOperationError, match="derives locations from names"):
            await ns.rename_table(RenameTableRequest(id=["t"], new_table_name="u"))


async def test_storage_options_are_given_out_and_shown_nowhere(tmp_path: Path) -> None:
    properties = {"root": str(tmp_path), "storage.region": "eu", "storage.aws_secret_access_key": "sesame"}
    async with AsyncNamespace.connect("dir", properties) as ns:
        await ns.declare_table(DeclareTableRequest(id=["t"]))
        found = await ns.describe_table(DescribeTableRequest(id=["t"]))
        assert found.storage_options == {"region": "eu", "aws_secret_access_key": "sesame"}
        assert "sesame" not in repr(ns)


@pytest.mark.parametrize("home", [[], ["a"]])
async def test_a_name_is_free_again_once_its_table_is_gone(tmp_path: Path, home: list[str]) -> None:
    rows, id = pa.table({"id": [1]}), [*home, "t"]
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace({"id": ["a"]})
        await ns.write(id, rows)
        await ns.drop_table({"id": id})
        await ns.declare_table({"id": id})
        await ns.deregister_table({"id": id})
        with pytest.raises(TableNotFoundError):
            await ns.describe_table({"id": id})
        assert (await ns.write(id, rows)).to_table() == rows
        assert [*(await ns.list_tables({"id": home})).tables] == ["t"]
