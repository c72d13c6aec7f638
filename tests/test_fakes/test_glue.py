"""The fake Glue server: stored values, listings and refusals, by calls of aiobotocore over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.glue import LANCE, FakeGlue
from tests.fakes.glue.clients import Clients, code
from tests.servers.glue import glue

ACCOUNT = "123456789012"


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    async with AsyncExitStack() as stack:
        yield Clients(stack)


@pytest.fixture
def server() -> Iterator[FakeGlue]:
    with FakeGlue() as running:
        yield running


@pytest.fixture
async def client(server: FakeGlue, clients: Clients) -> Any:
    return await clients(server)


def held(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def names(body: Any, key: str = "TableList") -> list[str]:
    return [each["Name"] for each in body[key]]


async def test_servers_have_a_state_and_a_log_of_their_own(clients: Clients) -> None:
    with FakeGlue() as one, FakeGlue(region="eu-west-1") as other:
        assert one.endpoint != other.endpoint
        one_client, other_client = await clients(one), await clients(other)
        await one_client.create_database(DatabaseInput={"Name": "db"})
        assert await code(other_client.get_database(Name="db")) == "EntityNotFoundException"
        assert (one.calls, other.calls) == (["CreateDatabase"], ["GetDatabase"])
        assert other.requests[0].region == "eu-west-1"
    with FakeGlue() as later:
        assert await code((await clients(later)).get_database(Name="db")) == "EntityNotFoundException"


async def test_calls_are_noted_with_their_parameters_and_signer(server: FakeGlue, client: Any) -> None:
    await client.get_databases(MaxResults=7)
    (call,) = server.requests
    assert (call.operation, call.parameters, call.access_key_id) == (
        "GetDatabases",
        {"MaxResults": 7},
        "AKIAIOSFODNN7EXAMPLE",
    )
    assert call.headers["x-amz-target"] == "AWSGlue.GetDatabases"
    assert (server.connections, server.most_in_flight) == (1, 1)
    server.calls.clear()
    assert (server.calls, len(server.requests)) == ([], 0)


async def test_names_are_kept_in_lower_case_and_locations_as_they_are(server: FakeGlue, client: Any) -> None:
    await client.create_database(DatabaseInput={"Name": "UpDb", "LocationUri": "s3://B/UpDb"})
    table = {"Name": "UpTable", "StorageDescriptor": {"Location": "s3://B/UpTable.lance"}}
    await client.create_table(DatabaseName="updB", TableInput=table)
    database = (await client.get_database(Name="UPDB"))["Database"]
    assert (database["Name"], database["LocationUri"]) == ("updb", "s3://B/UpDb")
    result = (await client.get_table(DatabaseName="UpDb", Name="UPTABLE"))["Table"]
    assert (result["DatabaseName"], result["Name"]) == ("updb", "uptable")
    assert result["StorageDescriptor"]["Location"] == "s3://B/UpTable.lance"
    assert names(await client.get_tables(DatabaseName="UPdb")) == ["uptable"]
    await client.delete_table(DatabaseName="UpDb", Name="UpTable")
    await client.delete_database(Name="UpDb")
    assert (await client.get_databases())["DatabaseList"] == []


async def test_names_have_at_most_255_characters(client: Any) -> None:
    assert await code(client.create_database(DatabaseInput={"Name": "d" * 256})) == "InvalidInputException"
    await client.create_database(DatabaseInput={"Name": "d" * 255})
    assert await code(client.create_table(DatabaseName="d" * 255, TableInput={"Name": "t" * 256})) == (
        "InvalidInputException"
    )
    await client.create_table(DatabaseName="d" * 255, TableInput={"Name": "t" * 255})
    assert await code(client.get_table(DatabaseName="d" * 255, Name="")) == "InvalidInputException"


async def test_what_is_missing_and_what_exists_already(client: Any) -> None:
    await client.create_database(DatabaseInput={"Name": "db"})
    await client.create_table(DatabaseName="db", TableInput={"Name": "t"})
    assert await code(client.create_database(DatabaseInput={"Name": "DB"})) == "AlreadyExistsException"
    assert await code(client.create_table(DatabaseName="db", TableInput={"Name": "T"})) == "AlreadyExistsException"
    for missing in (
        client.get_database(Name="no"),
        client.get_tables(DatabaseName="no"),
        client.get_table(DatabaseName="no", Name="t"),
        client.get_table(DatabaseName="db", Name="no"),
        client.create_table(DatabaseName="no", TableInput={"Name": "t"}),
        client.delete_table(DatabaseName="db", Name="no"),
        client.delete_database(Name="no"),
    ):
        assert await code(missing) == "EntityNotFoundException"


async def test_a_database_is_deleted_with_its_tables(server: FakeGlue, client: Any) -> None:
    server.add_database("", "db")
    server.add_table("", "db", "t")
    await client.delete_database(Name="db")
    assert await code(client.get_table(DatabaseName="db", Name="t")) == "EntityNotFoundException"


async def test_a_database_is_given_other_properties(server: FakeGlue, client: Any) -> None:
    server.add_database("", "db", parameters={"a": "b"}, Description="told")
    assert (await client.get_database(Name="db"))["Database"]["Parameters"] == {"a": "b"}
    await client.update_database(Name="DB", DatabaseInput={"Name": "db", "Parameters": {"c": "d"}})
    database = (await client.get_database(Name="db"))["Database"]
    assert (database["Parameters"], database.get("Description")) == ({"c": "d"}, None)


async def test_planted_tables_are_lances_by_default(server: FakeGlue, client: Any) -> None:
    server.add_database("", "db")
    server.add_table("", "db", "T", columns={"id": "bigint"})
    link = {"CatalogId": ACCOUNT, "DatabaseName": "db", "Name": "t"}
    server.add_table("", "db", "bare", parameters=None, table_type=None, location=None, TargetTable=link)
    server.add_tables("", "db", ["x", "y"], parameters={"table_type": "ICEBERG"})
    table = (await client.get_table(DatabaseName="db", Name="t"))["Table"]
    assert (table["TableType"], table["Parameters"]) == ("EXTERNAL_TABLE", LANCE)
    descriptor = {"Columns": [{"Name": "id", "Type": "bigint"}], "Location": "s3://bucket/db/T.lance"}
    assert table["StorageDescriptor"] == descriptor
    bare = (await client.get_table(DatabaseName="db", Name="bare"))["Table"]
    assert bare["TargetTable"] == link
    assert not bare.keys() & {"TableType", "Parameters", "StorageDescriptor"}
    assert server.table("", "db", "X")["Parameters"] == {"table_type": "ICEBERG"}
    with pytest.raises(ValueError, match=r"^Table no not found\.$"):
        server.table("", "db", "no")


async def test_a_table_is_replaced_if_its_version_is_still_the_one_that_was_read(server: FakeGlue, client: Any) -> None:
    server.add_database("", "db")
    server.add_table("", "db", "t")

    async def update(text: str, **how: Any) -> None:
        await client.update_table(DatabaseName="db", TableInput={"Name": "T", "Description": text}, **how)

    async def versions() -> list[str]:
        body = await client.get_table_versions(DatabaseName="db", TableName="t")
        return [each["VersionId"] for each in body["TableVersions"]]

    await update("second", VersionId="1")
    assert await versions() == ["1", "2"]
    assert await code(update("lost", VersionId="1")) == "ConcurrentModificationException"
    await update("third", VersionId="2", SkipArchive=True)
    assert await versions() == ["1", "3"]
    table = (await client.get_table(DatabaseName="db", Name="t"))["Table"]
    assert (table["Name"], table["Description"], table["VersionId"]) == ("t", "third", "3")
    assert await code(client.update_table(DatabaseName="db", TableInput={"Name": "no"})) == "EntityNotFoundException"


async def test_listings_come_in_pages_of_at_most_100(server: FakeGlue, client: Any) -> None:
    for number in range(150):
        server.add_database("", f"db{number:03}")
    server.add_tables("", "db000", [f"t{number:03}" for number in range(250)])
    lengths: list[int] = []
    token: dict[str, str] = {}
    while True:
        body = await client.get_tables(DatabaseName="db000", **token)
        lengths.append(len(body["TableList"]))
        if "NextToken" not in body:
            break
        token = {"NextToken": body["NextToken"]}
    assert lengths == [100, 100, 50]
    first = await client.get_databases()
    assert names(first, "DatabaseList") == [f"db{number:03}" for number in range(100)]
    second = await client.get_databases(MaxResults=20, NextToken=first["NextToken"])
    assert names(second, "DatabaseList") == [f"db{number:03}" for number in range(100, 120)]
    for wrong in ({"MaxResults": 101}, {"MaxResults": 0}, {"NextToken": "bogus"}, {"NextToken": first["NextToken"]}):
        assert await code(client.get_tables(DatabaseName="db000", **wrong)) == "InvalidInputException"


async def test_an_expression_is_a_pattern_for_whole_names(server: FakeGlue, client: Any) -> None:
    server.add_database("", "db")
    server.add_tables("", "db", ["t1", "t10", "t2", "a.b", "a-b"])

    async def chosen(expression: str) -> list[str]:
        return names(await client.get_tables(DatabaseName="db", Expression=expression))

    assert await chosen("t1") == ["t1"]
    assert await chosen("t2|t1|no") == ["t1", "t2"]
    assert await chosen(r"a\.b|a\-b") == ["a.b", "a-b"]
    assert await chosen("t1.*") == ["t1", "t10"]
    assert await chosen("T1") == []
    assert await chosen("t1|" * 682 + "t2") == ["t1", "t2"]
    assert await code(chosen("t1|" * 682 + "t10")) == "InvalidInputException"
    assert await code(chosen("[")) == "InvalidInputException"
    body = await client.get_tables(DatabaseName="db", Expression="t.*", MaxResults=2)
    assert names(body) == ["t1", "t10"]
    rest = await client.get_tables(DatabaseName="db", Expression="t.*", NextToken=body["NextToken"])
    assert names(rest) == ["t2"]
    assert await code(client.get_tables(DatabaseName="db", NextToken=body["NextToken"])) == "InvalidInputException"


async def test_listings_give_no_more_than_the_attributes_requested(server: FakeGlue, client: Any) -> None:
    server.add_database("", "db", location="s3://b/db")
    server.add_table("", "db", "t")
    assert (await client.get_databases(AttributesToGet=["NAME"]))["DatabaseList"] == [{"Name": "db"}]
    tables = {("NAME",): {"Name": "t"}, ("NAME", "TABLE_TYPE"): {"Name": "t", "TableType": "EXTERNAL_TABLE"}}
    for attributes, expected in tables.items():
        assert (await client.get_tables(DatabaseName="db", AttributesToGet=list(attributes)))["TableList"] == [expected]
    for wrong in ([], ["TABLE_TYPE"], ["NAME", "PARAMETERS"]):
        assert await code(client.get_tables(DatabaseName="db", AttributesToGet=wrong)) == "InvalidInputException"
        assert await code(client.get_databases(AttributesToGet=wrong)) == "InvalidInputException"


async def test_the_demo_server_has_a_database_whose_tables_lie_in_its_directory(
    tmp_path: Path, clients: Clients
) -> None:
    with glue(tmp_path) as server:
        database = (await (await clients(server)).get_database(Name="demo"))["Database"]
        assert database["LocationUri"].startswith(tmp_path.as_uri())
        assert held(tmp_path) == [database["LocationUri"].rpartition("/")[2]]
    assert held(tmp_path) == []
