"""The fake Glue: what AWS documents and moto lacks; and the fake Lake Formation, called by botocore's own clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.exceptions import ClientError

from tests.fakes.glue import FakeGlue
from tests.support.errors import catch

_SESSION = AioSession()
# The server must get invalid parameters, and each call once.
_CONFIG = AioConfig(retries={"total_max_attempts": 1}, parameter_validation=False)


class Clients:
    """Creates clients, which are closed with the exit stack."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __call__(self, server: FakeGlue, service: str = "glue", **credentials: str) -> Any:
        """Returns a client of `glue` or `sts`, with the server's own credentials or others."""
        own = {
            "aws_access_key_id": server.properties["access_key_id"],
            "aws_secret_access_key": server.properties["secret_access_key"],
        }
        client = _SESSION.create_client(
            service, endpoint_url=server.endpoint, region_name=server.region, config=_CONFIG, **{**own, **credentials}
        )
        return await self._stack.enter_async_context(client)


async def code(call: Awaitable[Any]) -> str:
    """Returns the error code of a failing call; the status if the response has no code."""
    return str((await catch(ClientError, call)).value.response["Error"]["Code"])


ACCOUNT, OTHER = "123456789012", "999999999999"
LAKE, S3 = f"{ACCOUNT}:lake", f"{ACCOUNT}:s3tablescatalog"
BUCKET, DEEP = f"{S3}/bucket", f"{S3}/bucket/deep"
INVALID, MISSING, DENIED = "InvalidInputException", "EntityNotFoundException", "AccessDeniedException"


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    async with AsyncExitStack() as stack:
        yield Clients(stack)


@pytest.fixture
def server() -> Iterator[FakeGlue]:
    """Provides a server with nested catalogs, and tables in the database `db` of the account."""
    with FakeGlue() as running:
        for path in ("s3tablescatalog/Bucket/deep", "lake", f"{OTHER}:theirs"):
            running.add_nested_catalog(path)
        running.add_database("lake", "inside")
        running.add_database("", "db")
        running.add_tables("", "db", ["t1", "t10", "t2", "a.b"])
        yield running


@pytest.fixture
async def client(server: FakeGlue, clients: Clients) -> Any:
    return await clients(server)


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        ({}, [S3, LAKE]),
        ({"IncludeRoot": True}, [ACCOUNT, S3, LAKE]),
        ({"Recursive": True}, [S3, BUCKET, DEEP, LAKE]),
        ({"ParentCatalogId": S3}, [BUCKET]),
        ({"ParentCatalogId": S3, "Recursive": True}, [BUCKET, DEEP]),
        ({"ParentCatalogId": DEEP}, []),
        ({"ParentCatalogId": OTHER}, [f"{OTHER}:theirs"]),
        ({"HasDatabases": True}, [LAKE]),
        ({"ParentCatalogId": S3, "IncludeRoot": True}, INVALID),
        ({"ParentCatalogId": f"{ACCOUNT}:no"}, MISSING),
        ({"MaxResults": 1001}, INVALID),
    ],
)
async def test_lists_of_catalogs(client: Any, arguments: dict[str, Any], ids: Any) -> None:
    if isinstance(ids, str):
        assert await code(client.get_catalogs(**arguments)) == ids
    else:
        assert [catalog["CatalogId"] for catalog in (await client.get_catalogs(**arguments))["CatalogList"]] == ids


@pytest.mark.parametrize(
    ("operation", "arguments", "expected"),
    [
        *(("create_catalog", {"Name": name, "CatalogInput": {}}, INVALID) for name in ("a.b", "a/b", "", ACCOUNT)),
        ("create_catalog", {"Name": "LAKE", "CatalogInput": {}}, "AlreadyExistsException"),
        ("delete_catalog", {"CatalogId": ACCOUNT}, INVALID),
        *(("get_databases", it, MISSING) for it in ({"CatalogId": f"{ACCOUNT}:no"}, {"CatalogId": "lake"})),
        ("get_databases", {"CatalogId": "888888888888"}, DENIED),
        *(("get_database", it, MISSING) for it in ({"Name": "inside"}, {"Name": "db", "CatalogId": LAKE})),
        ("create_database", {"DatabaseInput": {"Name": "d" * 256}}, INVALID),
        ("create_database", {"DatabaseInput": {"Name": "DB"}}, "AlreadyExistsException"),
        ("get_tables", {"DatabaseName": "db", "Expression": "["}, INVALID),
        ("get_tables", {"DatabaseName": "db", "Expression": "t1|" * 682 + "t10"}, INVALID),
        ("get_tables", {"DatabaseName": "db", "MaxResults": 101}, INVALID),
        ("get_tables", {"DatabaseName": "db", "NextToken": "bogus"}, INVALID),
        ("get_tables", {"DatabaseName": "db", "AttributesToGet": ["NAME", "PARAMETERS"]}, INVALID),
    ],
)
async def test_refusals(client: Any, operation: str, arguments: dict[str, Any], expected: str) -> None:
    assert await code(getattr(client, operation)(**arguments)) == expected


@pytest.mark.parametrize(
    ("expression", "names"),
    [("t1", ["t1"]), ("t2|t1|no", ["t1", "t2"]), (r"a\.b", ["a.b"]), ("t1.*", ["t1", "t10"]), ("T1", [])],
)
async def test_an_expression_is_a_pattern_for_whole_names(client: Any, expression: str, names: list[str]) -> None:
    tables = (await client.get_tables(DatabaseName="DB", Expression=expression))["TableList"]
    assert [table["Name"] for table in tables] == names


async def test_a_table_is_replaced_only_if_its_version_is_current(client: Any) -> None:
    async def update(version: str) -> None:
        await client.update_table(DatabaseName="db", TableInput={"Name": "T1"}, VersionId=version)

    await update("1")
    assert await code(update("1")) == "ConcurrentModificationException"
    assert (await client.get_table(DatabaseName="db", Name="t1"))["Table"]["VersionId"] == "2"


async def test_temporary_credentials_need_their_token_and_expire(server: FakeGlue, clients: Clients) -> None:
    sts = await clients(server, "sts")
    role = {"RoleArn": f"arn:aws:iam::{ACCOUNT}:role/reader", "RoleSessionName": "test"}
    issued = (await sts.assume_role(**role))["Credentials"]
    keys = {"aws_access_key_id": issued["AccessKeyId"], "aws_secret_access_key": issued["SecretAccessKey"]}
    for token, expected in ((None, "UnrecognizedClientException"), ("other", "UnrecognizedClientException")):
        other = await clients(server, **keys, **({"aws_session_token": token} if token else {}))
        assert await code(other.get_databases()) == expected
    good = await clients(server, **keys, aws_session_token=issued["SessionToken"])
    assert [it["Name"] for it in (await good.get_databases())["DatabaseList"]] == ["db"]
    server.expire(issued["AccessKeyId"])
    assert await code(good.get_databases()) == "ExpiredTokenException"


ARN = "arn:aws:glue:us-east-1:123456789012:table/db/t"


@pytest.fixture
def one_table() -> Iterator[FakeGlue]:
    with FakeGlue() as one_table:
        one_table.add_database("", "db")
        one_table.add_table("", "db", "t")
        yield one_table


@pytest.fixture
async def lake(one_table: FakeGlue) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:
        yield await Clients(stack)(one_table, "lakeformation")


async def test_a_granted_table_has_keys(lake: Any) -> None:
    answer = await lake.get_temporary_glue_table_credentials(TableArn=ARN, Permissions=["SELECT"])
    assert (answer["AccessKeyId"], answer["VendedS3Path"]) == ("ASIALAKE0001", ["s3://bucket/db/t.lance"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"TableArn": ARN.replace("/t", "/none")}, "EntityNotFoundException"),
        ({"TableArn": ARN.replace("us-east-1", "eu-west-1")}, "InvalidInputException"),
        *((it, "InvalidInputException") for it in ({"TableArn": "db.t"}, {"TableArn": ARN, "DurationSeconds": 60})),
        ({"TableArn": ARN, "SupportedPermissionTypes": []}, "InvalidInputException"),
        ({"TableArn": ARN, "Permissions": ["READ"]}, "InvalidInputException"),
    ],
)
async def test_wrong_arguments_are_refused(lake: Any, arguments: dict[str, Any], expected: str) -> None:
    assert await code(lake.get_temporary_glue_table_credentials(**arguments)) == expected


async def test_grants_and_filters(one_table: FakeGlue, lake: Any) -> None:
    one_table.grant("db/t", "SELECT")
    call = lake.get_temporary_glue_table_credentials
    assert await code(call(TableArn=ARN, Permissions=["INSERT"])) == "AccessDeniedException"
    one_table.filter_cells("db/t")
    types = ["COLUMN_PERMISSION"]
    assert await code(call(TableArn=ARN, SupportedPermissionTypes=types)) == "PermissionTypeMismatchException"
    assert (await call(TableArn=ARN, SupportedPermissionTypes=["CELL_FILTER_PERMISSION"]))["SessionToken"]


@pytest.mark.parametrize(
    ("credentials", "expected"),
    [
        ({"aws_secret_access_key": "other"}, "InvalidSignatureException"),
        ({"aws_access_key_id": "other"}, "UnrecognizedClientException"),
        ({"aws_session_token": "other"}, "UnrecognizedClientException"),
    ],
)
async def test_the_signature_is_verified(one_table: FakeGlue, credentials: dict[str, str], expected: str) -> None:
    async with AsyncExitStack() as stack:
        other = await Clients(stack)(one_table, "lakeformation", **credentials)
        assert await code(other.get_temporary_glue_table_credentials(TableArn=ARN)) == expected
