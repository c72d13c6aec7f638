"""Credentials of tables in AWS Glue, which Lake Formation vends."""

from __future__ import annotations

import time

import lance_namespace.errors as err
import pytest
from lance_namespace import DescribeTableResponse

from lance_ns_async import AsyncNamespace, TableId
from tests.fakes.glue import FakeGlue
from tests.support.errors import catch
from tests.support.glue import connected

READ = ["SELECT"]
VEND = "GetTemporaryGlueTableCredentials"
ROLE = {"assume_role_arn": "arn:aws:iam::123456789012:role/reader"}


@pytest.fixture
def server(shared: FakeGlue) -> FakeGlue:
    shared.reset()
    shared.add_database("", "db")
    shared.add_tables("", "db", ["t", "u", "v"])
    return shared


async def described(ns: AsyncNamespace, *id: str, vend: bool | None = True) -> DescribeTableResponse:
    return await ns.describe_table(list(id), vend_credentials=vend)


async def test_a_table_has_the_keys_of_lake_formation(server: FakeGlue) -> None:
    async with connected(server, **server.vending, **{"storage.aws_region": "eu-west-1"}) as ns:
        before = time.time()
        options = (await described(ns, "DB", "T")).storage_options or {}
    until = int(options.pop("expires_at_millis")) / 1000
    assert options == {
        "aws_region": "eu-west-1",
        "aws_access_key_id": "ASIALAKE0001",
        "aws_secret_access_key": "lake-secret",
        "aws_session_token": "lake-token-db/t",
    }
    assert before + 3595 < until < time.time() + 3605
    assert server.calls == ["GetTable", VEND]
    assert server.requests[-1].parameters == {
        "TableArn": "arn:aws:glue:us-east-1:123456789012:table/db/t",
        "Permissions": ["SELECT", "INSERT", "DELETE"],
        "DurationSeconds": 3600,
        "SupportedPermissionTypes": ["COLUMN_PERMISSION"],
    }


@pytest.mark.parametrize(("vend", "vended"), [(None, True), (False, False)])
async def test_property_enables_vending(server: FakeGlue, ns: AsyncNamespace, vend: bool | None, vended: bool) -> None:
    assert (await described(ns, "db", "t")).storage_options is None and server.calls == ["GetTable"]
    async with connected(server, **server.vending) as vending:
        assert ((await described(vending, "db", "t", vend=vend)).storage_options is not None) is vended
    assert (VEND in server.calls) is vended


async def test_a_declaration_returns_credentials(server: FakeGlue) -> None:
    async with connected(server, **server.vending) as ns:
        answer = await ns.declare_table(["db", "new"], location="s3://bucket/new")
    assert (answer.storage_options or {})["aws_session_token"] == "lake-token-db/new"


async def test_tables_outside_of_s3_need_no_credentials(server: FakeGlue) -> None:
    server.add_table("", "db", "local", location="file:///tmp/local")
    async with connected(server, **server.vending) as ns:
        assert (await described(ns, "db", "local")).storage_options is None
    assert server.calls == ["GetTable"]


async def test_a_table_in_a_nested_catalog_is_named_with_its_catalogs(server: FakeGlue) -> None:
    server.add_nested_catalog("cat/deep")
    server.add_database("cat/deep", "leaf")
    server.add_table("cat/deep", "leaf", "t")
    async with connected(server, **server.vending) as ns:
        options = (await described(ns, "cat", "deep", "leaf", "t")).storage_options or {}
    assert options["aws_session_token"] == "lake-token-cat/deep/leaf/t"
    # The account of another catalog is that of its id.
    server.add_database("210987654321:", "far")
    server.add_table("210987654321:", "far", "t")
    async with connected(server, **server.vending, catalog_id="210987654321") as ns:
        await described(ns, "far", "t")
    assert server.requests[-1].parameters["TableArn"] == "arn:aws:glue:us-east-1:210987654321:table/far/t"


async def test_sts_is_called_once_for_the_account_if_glue_does_not_say_it() -> None:
    with FakeGlue(no_catalog_ids=True) as server:
        server.add_database("", "db")
        server.add_tables("", "db", ["t", "u"])
        async with connected(server, **server.vending) as ns:
            assert not (await ns.describe_tables([["db", "t"], ["db", "u"]], vend_credentials=True)).errors
        assert sorted(server.calls) == sorted([*["GetTable"] * 2, "GetCallerIdentity", *[VEND] * 2])


async def test_readers_get_keys_for_reading(server: FakeGlue) -> None:
    server.grant("db/t", "SELECT", "DESCRIBE")
    async with connected(server, **server.vending) as ns:
        assert (await described(ns, "db", "t")).storage_options
    permissions = [call.parameters["Permissions"] for call in server.requests if call.operation == VEND]
    assert permissions == [["SELECT", "INSERT", "DELETE"], ["SELECT"]]


@pytest.mark.parametrize(("operation", "permissions"), [("read", READ), ("read_write", [*READ, "INSERT", "DELETE"])])
async def test_permission_and_lifetime(server: FakeGlue, operation: str, permissions: list[str]) -> None:
    properties = {"credentials_operation": operation, "credentials_timeout_sec": "15m"}
    async with connected(server, **server.vending, **properties, **ROLE) as ns:
        await described(ns, "db", "t")
    assert server.requests[-1].access_key_id == server.issued[0], "the role of the catalog requests the keys"
    parameters = server.requests[-1].parameters
    assert (parameters["Permissions"], parameters["DurationSeconds"]) == (permissions, 900)


async def test_denied_credentials_are_an_error_with_advice_unless_there_are_own_ones(server: FakeGlue) -> None:
    server.grant("db/t", "DESCRIBE")
    async with connected(server, **server.vending) as ns:
        advice = r"Insufficient Lake Formation permission.*GetDataAccess"
        await catch(err.PermissionDeniedError, described(ns, "db", "t"), advice)
    async with connected(server, **server.vending, **{"storage.aws_access_key_id": "own"}) as ns:
        assert (await described(ns, "db", "t")).storage_options == {"aws_access_key_id": "own"}


async def test_filters_of_cells_are_denied_without_a_second_call(server: FakeGlue) -> None:
    server.filter_cells("db/t")
    async with connected(server, **server.vending) as ns:
        await catch(err.PermissionDeniedError, described(ns, "db", "t"), "filters of rows or cells")
    assert server.calls == ["GetTable", VEND]


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("EntityNotFoundException", 400, err.TableNotFoundError),
        ("ThrottlingException", 429, err.ThrottlingError),
        ("InternalServiceException", 500, err.ServiceUnavailableError),
        ("OperationTimeoutException", 400, err.ServiceUnavailableError),
        ("ExpiredTokenException", 403, err.UnauthenticatedError),
    ],
)
async def test_errors_of_lake_formation(server: FakeGlue, code: str, status: int, error: type[Exception]) -> None:
    server.fail(code, status=status, operation=VEND, times=None)
    async with connected(server, **server.vending, max_retries="1") as ns:
        await catch(error, described(ns, "db", "t"), code)


async def test_a_passing_failure_is_repeated(server: FakeGlue) -> None:
    server.fail("ThrottlingException", operation=VEND)
    server.cut(VEND)
    async with connected(server, **server.vending) as ns:
        assert (await described(ns, "db", "t")).storage_options
    assert server.calls == ["GetTable", VEND, VEND, VEND]
    # A page of HTML is an error.
    server.html_error(VEND, times=None)
    async with connected(server, **server.vending, max_retries="0") as ns:
        await catch(err.ServiceUnavailableError, described(ns, "db", "t"))


async def test_in_bulk_each_table_has_its_own_keys_or_error(server: FakeGlue) -> None:
    server.grant("db/u", "DESCRIBE")
    async with connected(server, **server.vending) as ns:
        result = await ns.describe_tables([["db", name] for name in ("t", "u", "v", "none")], vend_credentials=True)
    tokens = {id.name: (table.storage_options or {})["aws_session_token"] for id, table in result.tables.items()}
    assert tokens == {"t": "lake-token-db/t", "v": "lake-token-db/v"}
    assert {id: type(error) for id, error in result.errors.items()} == {
        TableId(["db", "u"]): err.PermissionDeniedError,
        TableId(["db", "none"]): err.TableNotFoundError,
    }


async def test_keys_that_end_soon_are_requested_again(server: FakeGlue) -> None:
    server.limit_credentials(30)
    async with connected(server, **server.vending) as ns:
        keys = [((await described(ns, "db", "t")).storage_options or {})["aws_access_key_id"] for _ in range(2)]
    assert keys == ["ASIALAKE0001", "ASIALAKE0002"]


@pytest.mark.parametrize("name", ["a/b", "a:b", "a*"])
async def test_names_that_a_resource_name_cannot_hold_are_refused(server: FakeGlue, name: str) -> None:
    server.add_table("", "db", name)
    async with connected(server, **server.vending) as ns:
        await catch(err.InvalidInputError, described(ns, "db", name), "resource name")
        assert (await described(ns, "db", name, vend=None)).storage_options is None
    assert VEND not in server.calls
