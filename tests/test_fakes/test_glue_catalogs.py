"""The fake Glue server: nested catalogs, other accounts, roles, and differences between servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.fakes.glue import FakeGlue
from tests.fakes.glue.clients import Clients, code

ACCOUNT = "123456789012"
OTHER = "999999999999"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/reader"


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


async def catalogs(client: Any, **parameters: Any) -> list[str]:
    body = await client.get_catalogs(**parameters)
    assert "NextToken" not in body
    return [each["CatalogId"] for each in body["CatalogList"]]


async def assume(client: Any, role: str = ROLE, seconds: int = 900) -> dict[str, Any]:
    body = await client.assume_role(RoleArn=role, RoleSessionName="test", DurationSeconds=seconds)
    credentials: dict[str, Any] = body["Credentials"]
    return credentials


def signing(credentials: dict[str, Any]) -> dict[str, str]:
    return {
        "aws_access_key_id": credentials["AccessKeyId"],
        "aws_secret_access_key": credentials["SecretAccessKey"],
        "aws_session_token": credentials["SessionToken"],
    }


async def test_catalogs_are_made_changed_and_deleted_with_what_they_hold(client: Any) -> None:
    await client.create_catalog(Name="Lake", CatalogInput={"Description": "old", "Parameters": {"a": "b"}})
    result = (await client.get_catalog(CatalogId=f"{ACCOUNT}:LAKE"))["Catalog"]
    assert (result["CatalogId"], result["Name"], result["Parameters"]) == (f"{ACCOUNT}:lake", "lake", {"a": "b"})
    assert result["ResourceArn"] == f"arn:aws:glue:us-east-1:{ACCOUNT}:catalog/lake"
    assert await code(client.create_catalog(Name="lake", CatalogInput={})) == "AlreadyExistsException"
    await client.update_catalog(CatalogId=f"{ACCOUNT}:lake", CatalogInput={"Parameters": {"c": "d"}})
    result = (await client.get_catalog(CatalogId=f"{ACCOUNT}:lake"))["Catalog"]
    assert (result["Parameters"], result.get("Description")) == ({"c": "d"}, None)
    await client.create_database(CatalogId=f"{ACCOUNT}:lake", DatabaseInput={"Name": "db"})
    await client.delete_catalog(CatalogId=f"{ACCOUNT}:lake")
    assert await code(client.get_database(CatalogId=f"{ACCOUNT}:lake", Name="db")) == "EntityNotFoundException"
    assert await code(client.delete_catalog(CatalogId=f"{ACCOUNT}:lake")) == "EntityNotFoundException"
    assert await code(client.delete_catalog(CatalogId=ACCOUNT)) == "InvalidInputException"


@pytest.mark.parametrize("name", ["a.b", "a/b", "a\\b", "aws:a", "c" * 65, "", ACCOUNT])
async def test_some_names_are_none_of_catalogs(client: Any, name: str) -> None:
    assert await code(client.create_catalog(Name=name, CatalogInput={})) == "InvalidInputException"


async def test_catalogs_are_listed_by_level_or_all_at_once(server: FakeGlue, client: Any) -> None:
    assert server.add_nested_catalog("s3tablescatalog/Bucket/deep", {"x": "y"}) == (
        f"{ACCOUNT}:s3tablescatalog/bucket/deep"
    )
    server.add_nested_catalog("lake")
    server.add_database("lake", "db")
    s3, bucket = f"{ACCOUNT}:s3tablescatalog", f"{ACCOUNT}:s3tablescatalog/bucket"
    lake, deep = f"{ACCOUNT}:lake", f"{ACCOUNT}:s3tablescatalog/bucket/deep"
    assert await catalogs(client) == [s3, lake]
    assert await catalogs(client, IncludeRoot=True) == [ACCOUNT, s3, lake]
    assert await catalogs(client, IncludeRoot=False, Recursive=True) == [s3, bucket, deep, lake]
    assert await catalogs(client, ParentCatalogId=ACCOUNT) == [s3, lake]
    assert await catalogs(client, ParentCatalogId=s3) == [bucket]
    assert await catalogs(client, ParentCatalogId=s3, Recursive=True) == [bucket, deep]
    assert await catalogs(client, ParentCatalogId=deep) == []
    assert await catalogs(client, HasDatabases=True) == [lake]
    assert (await client.get_catalog(CatalogId=deep))["Catalog"]["Parameters"] == {"x": "y"}
    assert (await client.get_catalog())["Catalog"]["CatalogId"] == ACCOUNT
    for both in (True, False):
        assert await code(client.get_catalogs(ParentCatalogId=s3, IncludeRoot=both)) == "InvalidInputException"
    assert await code(client.get_catalogs(ParentCatalogId=f"{ACCOUNT}:no")) == "EntityNotFoundException"


async def test_catalogs_come_in_pages_of_at_most_1000(server: FakeGlue, client: Any) -> None:
    for name in ("a", "b", "c"):
        server.add_nested_catalog(name)
    first = await client.get_catalogs(MaxResults=2)
    second = await client.get_catalogs(MaxResults=1000, NextToken=first["NextToken"])
    assert [each["Name"] for each in first["CatalogList"] + second["CatalogList"]] == ["a", "b", "c"]
    assert await code(client.get_catalogs(MaxResults=1001)) == "InvalidInputException"


async def test_each_catalog_has_databases_and_tables_of_its_own(server: FakeGlue, client: Any) -> None:
    ids = {"": ACCOUNT, "a": f"{ACCOUNT}:a", "a/b": f"{ACCOUNT}:a/b"}
    server.add_nested_catalog("a/b")
    for path, id in ids.items():
        server.add_database(path, "db")
        server.add_tables(path, "db", [f"t{number}" for number in range(len(id))])
    for path, id in ids.items():
        parameters = {} if not path else {"CatalogId": id}
        assert (await client.get_database(Name="db", **parameters))["Database"]["CatalogId"] == id
        tables = (await client.get_tables(DatabaseName="db", CatalogId=id.upper()))["TableList"]
        assert (len(tables), {table["CatalogId"] for table in tables}) == (len(id), {id})
    await client.create_table(CatalogId=f"{ACCOUNT}:a", DatabaseName="db", TableInput={"Name": "only"})
    assert await code(client.get_table(DatabaseName="db", Name="only")) == "EntityNotFoundException"
    await client.update_database(
        CatalogId=f"{ACCOUNT}:a", Name="db", DatabaseInput={"Name": "db", "Description": "told"}
    )
    database = (await client.get_database(CatalogId=f"{ACCOUNT}:a", Name="db"))["Database"]
    assert (database["Description"], database["CatalogId"]) == ("told", f"{ACCOUNT}:a")
    assert "Description" not in (await client.get_database(Name="db"))["Database"]


@pytest.mark.parametrize(
    ("catalog_id", "expected"),
    [
        (f"{ACCOUNT}:no", "EntityNotFoundException"),
        (f"{ACCOUNT}:a/no", "EntityNotFoundException"),
        (f"{ACCOUNT}:", "EntityNotFoundException"),
        ("a", "EntityNotFoundException"),
        (OTHER, "AccessDeniedException"),
        (f"{OTHER}:a", "AccessDeniedException"),
        (f"{ACCOUNT}:{'a' * 255}", "InvalidInputException"),
    ],
)
async def test_a_catalog_that_is_not_there(server: FakeGlue, client: Any, catalog_id: str, expected: str) -> None:
    server.add_nested_catalog("a")
    assert await code(client.get_databases(CatalogId=catalog_id)) == expected
    assert await code(client.get_catalog(CatalogId=catalog_id)) == expected


async def test_another_account_is_open_once_something_was_planted_there(server: FakeGlue, client: Any) -> None:
    assert server.add_nested_catalog(f"{OTHER}:theirs") == f"{OTHER}:theirs"
    server.add_database(f"{OTHER}:", "db")
    assert (await client.get_database(CatalogId=OTHER, Name="db"))["Database"]["CatalogId"] == OTHER
    assert await catalogs(client, ParentCatalogId=OTHER) == [f"{OTHER}:theirs"]
    await client.delete_catalog(CatalogId=f"{OTHER}:theirs")
    assert await catalogs(client, ParentCatalogId=OTHER) == []
    assert await code(client.get_database(Name="db")) == "EntityNotFoundException"


async def test_a_role_gives_credentials_for_as_long_as_asked(server: FakeGlue, clients: Clients) -> None:
    sts = await clients(server, "sts")
    assert (await sts.get_caller_identity())["Account"] == ACCOUNT
    credentials = await assume(sts, seconds=1200)
    left = credentials["Expiration"] - datetime.now(UTC)
    assert timedelta(minutes=19) < left <= timedelta(minutes=20)
    assert server.issued == [credentials["AccessKeyId"]]
    assert server.calls == ["GetCallerIdentity", "AssumeRole"]
    parameters = server.requests[1].parameters
    assert (parameters["RoleArn"], parameters["RoleSessionName"], parameters["DurationSeconds"]) == (
        ROLE,
        "test",
        "1200",
    )
    glue = await clients(server, **signing(credentials))
    assert (await glue.get_databases())["DatabaseList"] == []
    assert server.requests[-1].access_key_id == credentials["AccessKeyId"]


async def test_a_role_of_another_account_sees_that_accounts_catalog(server: FakeGlue, clients: Clients) -> None:
    server.add_database("", "ours")
    credentials = await assume(await clients(server, "sts"), f"arn:aws:iam::{OTHER}:role/reader")
    glue = await clients(server, **signing(credentials))
    assert (await glue.get_databases())["DatabaseList"] == []
    assert (await glue.get_catalog())["Catalog"]["CatalogId"] == OTHER
    assert await code(glue.get_databases(CatalogId=ACCOUNT)) == "AccessDeniedException"


async def test_temporary_credentials_expire(server: FakeGlue, clients: Clients) -> None:
    sts = await clients(server, "sts")
    first, second = await assume(sts), await assume(sts)
    assert server.issued == [first["AccessKeyId"], second["AccessKeyId"]]
    one, other = await clients(server, **signing(first)), await clients(server, **signing(second))
    server.expire(first["AccessKeyId"])
    assert await code(one.get_databases()) == "ExpiredTokenException"
    assert (await other.get_databases())["DatabaseList"] == []
    server.expire()
    assert await code(other.get_databases()) == "ExpiredTokenException"
    assert await code((await clients(server, "sts", **signing(first))).get_caller_identity()) == "ExpiredToken"
    third = await clients(server, **signing(await assume(sts)))
    assert (await third.get_databases())["DatabaseList"] == []


async def test_sessions_can_be_shorter_than_asked(clients: Clients) -> None:
    with FakeGlue(session_seconds=0) as server:
        sts = await clients(server, "sts")
        gone = await assume(sts)
        assert gone["Expiration"] <= datetime.now(UTC)
        assert await code((await clients(server, **signing(gone))).get_databases()) == "ExpiredTokenException"
        assert server.requests[0].parameters["DurationSeconds"] == "900"
        server.switch(session_seconds=60)
        credentials = await assume(sts)
        assert credentials["Expiration"] <= datetime.now(UTC) + timedelta(seconds=60)
        assert (await (await clients(server, **signing(credentials))).get_databases())["DatabaseList"] == []


async def test_temporary_credentials_are_good_with_their_token_alone(server: FakeGlue, clients: Clients) -> None:
    whole = signing(await assume(await clients(server, "sts")))
    without = {name: value for name, value in whole.items() if name != "aws_session_token"}
    for wrong in (without, {**whole, "aws_session_token": "other"}):
        assert await code((await clients(server, **wrong)).get_databases()) == "UnrecognizedClientException"


async def test_stock_moto_is_as_it_comes(clients: Clients) -> None:
    with FakeGlue(stock=True) as server:
        client = await clients(server)
        await client.create_database(DatabaseInput={"Name": "Db"})
        for number in range(101):
            await client.create_table(DatabaseName="Db", TableInput={"Name": f"t{number}"})
        server.clear()
        body = await client.get_tables(DatabaseName="Db", CatalogId="nonsense", MaxResults=1, NextToken="bogus")
        assert (len(body["TableList"]), body.get("NextToken")) == (101, None)
        prefixed = (await client.get_tables(DatabaseName="Db", Expression="t10"))["TableList"]
        assert [table["Name"] for table in prefixed] == ["t10", "t100"]
        assert await code(client.get_database(Name="db")) == "EntityNotFoundException"
        assert await code(client.get_catalogs()) == "500"
        credentials = await assume(await clients(server, "sts"))
        assert credentials["AccessKeyId"] == server.issued[0]
        assert server.calls == ["GetTables", "GetTables", "GetDatabase", "GetCatalogs", "AssumeRole"]
        with pytest.raises(ValueError, match="stock moto knows neither catalogs nor quirks"):
            server.add_database("", "db")


async def test_endpoints_that_choose_tables_otherwise(server: FakeGlue, client: Any) -> None:
    server.add_database("", "db")
    server.add_tables("", "db", ["t1", "t2", "u"])

    async def chosen(expression: str) -> list[str]:
        return [
            each["Name"] for each in (await client.get_tables(DatabaseName="db", Expression=expression))["TableList"]
        ]

    server.switch(ignore_expression=True)
    assert await chosen("t1") == ["t1", "t2", "u"]
    server.switch(ignore_expression=False, fnmatch_expression=True)
    assert (await chosen("t1"), await chosen("t*"), await chosen("t1|t2")) == (["t1"], ["t1", "t2"], [])


async def test_pages_can_be_short_and_empty(clients: Clients) -> None:
    with FakeGlue(short_pages=True) as server:
        client = await clients(server)
        server.add_database("", "db")
        lengths: list[int] = []
        token: dict[str, str] = {}
        assert (await client.get_tables(DatabaseName="db")).get("NextToken") is None
        server.add_tables("", "db", [f"t{number}" for number in range(7)])
        while True:
            body = await client.get_tables(DatabaseName="db", MaxResults=8, **token)
            lengths.append(len(body["TableList"]))
            if "NextToken" not in body:
                break
            token = {"NextToken": body["NextToken"]}
        assert lengths == [0, 4, 0, 3, 0]


async def test_endpoints_without_catalogs(clients: Clients) -> None:
    with FakeGlue(no_catalog_api=True) as server:
        client = await clients(server)
        server.add_database("", "db")
        for call in (
            client.get_catalogs(),
            client.get_catalog(CatalogId=ACCOUNT),
            client.create_catalog(Name="a", CatalogInput={}),
            client.delete_catalog(CatalogId=f"{ACCOUNT}:a"),
        ):
            assert await code(call) == "500"
        assert len((await client.get_databases())["DatabaseList"]) == 1
