"""The fake Lake Formation, called by botocore's own clients: verification, grants and refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.fakes.glue import FakeGlue
from tests.fakes.glue.clients import Clients, code

ARN = "arn:aws:glue:us-east-1:123456789012:table/db/t"


@pytest.fixture
def server() -> Iterator[FakeGlue]:
    with FakeGlue() as server:
        server.add_database("", "db")
        server.add_table("", "db", "t")
        yield server


@pytest.fixture
async def lake(server: FakeGlue) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:
        yield await Clients(stack)(server, "lakeformation")


async def test_a_granted_table_has_keys(lake: Any) -> None:
    answer = await lake.get_temporary_glue_table_credentials(TableArn=ARN, Permissions=["SELECT"])
    assert (answer["AccessKeyId"], answer["VendedS3Path"]) == ("ASIALAKE0001", ["s3://bucket/db/t.lance"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"TableArn": ARN.replace("/t", "/none")}, "EntityNotFoundException"),
        ({"TableArn": ARN.replace("us-east-1", "eu-west-1")}, "InvalidInputException"),
        ({"TableArn": "db.t"}, "InvalidInputException"),
        ({"TableArn": ARN, "DurationSeconds": 60}, "InvalidInputException"),
        ({"TableArn": ARN, "SupportedPermissionTypes": []}, "InvalidInputException"),
        ({"TableArn": ARN, "Permissions": ["READ"]}, "InvalidInputException"),
    ],
)
async def test_wrong_arguments_are_refused(lake: Any, arguments: dict[str, Any], expected: str) -> None:
    assert await code(lake.get_temporary_glue_table_credentials(**arguments)) == expected


async def test_grants_and_filters(server: FakeGlue, lake: Any) -> None:
    server.grant("db/t", "SELECT")
    call = lake.get_temporary_glue_table_credentials
    assert await code(call(TableArn=ARN, Permissions=["INSERT"])) == "AccessDeniedException"
    server.filter_cells("db/t")
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
async def test_the_signature_is_verified(server: FakeGlue, credentials: dict[str, str], expected: str) -> None:
    async with AsyncExitStack() as stack:
        other = await Clients(stack)(server, "lakeformation", **credentials)
        assert await code(other.get_temporary_glue_table_credentials(TableArn=ARN)) == expected
