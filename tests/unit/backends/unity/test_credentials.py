"""Credentials that Unity Catalog vends for a table, as Lance's storage options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance_namespace.errors as err
import pytest

from tests.fakes.unity import FakeUnity
from tests.support.errors import catch
from tests.support.lake import ROWS
from tests.support.running import running
from tests.support.unity import connected, described, list_requests

TABLE = ["main", "a", "t"]
CALL = "/temporary-table-credentials"
UNTIL = 1_795_223_399_875
AWS = {"access_key_id": "key", "secret_access_key": "s3cret", "session_token": "t0ken"}

KINDS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"aws_temp_credentials": AWS}, {f"aws_{key}": value for key, value in AWS.items()}),
    ({"azure_user_delegation_sas": {"sas_token": "sv=s3cret"}}, {"azure_storage_sas_token": "sv=s3cret"}),
    ({"gcp_oauth_token": {"oauth_token": "s3cret"}}, {"google_storage_token": "s3cret"}),
]


@pytest.mark.parametrize(("credentials", "options"), KINDS, ids=["aws", "azure", "gcp"])
async def test_names_of_credentials(credentials: dict[str, Any], options: dict[str, str]) -> None:
    with FakeUnity(credentials={**credentials, "expiration_time": UNTIL}) as server:
        server.add_table(*TABLE)
        async with connected(server, **{"storage.region": "us-west-2"}) as ns:
            result = await described(ns, *TABLE, vend=True)
            assert result.storage_options == {"region": "us-west-2", **options, "expires_at_millis": str(UNTIL)}
            assert (await described(ns, *TABLE)).storage_options == {"region": "us-west-2"}
        assert list_requests(server) == ["GET tables/main.a.t", f"POST {CALL[1:]}", "GET tables/main.a.t"]
        assert server.requests[1].json.keys() == {"table_id", "operation"}
        assert operations(server) == ["READ_WRITE"]


def operations(server: FakeUnity) -> list[str]:
    return [request.json["operation"] for request in server.requests if request.path.endswith(CALL)]


@pytest.mark.parametrize("message", ["Access denied.", "User does not have MODIFY"])
async def test_without_write_access_the_credentials_are_for_reading(message: str) -> None:
    async with running(connected, FakeUnity(credentials={"aws_temp_credentials": AWS})) as (server, ns):
        server.add_table(*TABLE)
        for _ in range(2):
            server.fail(403, match="POST", body={"error_code": "PERMISSION_DENIED", "message": message})
            assert (await described(ns, *TABLE, vend=True)).storage_options == KINDS[0][1]
        # A client without write access may soon get it.
        assert operations(server) == ["READ_WRITE", "READ"] * 2


@pytest.mark.parametrize(
    ("setting", "asked_for"), [("READ", ["READ"]), ("read_write", ["READ_WRITE"]), (" Auto ", ["READ_WRITE", "READ"])]
)
async def test_the_requested_access_can_be_chosen(setting: str, asked_for: list[str]) -> None:
    with FakeUnity(credentials={"aws_temp_credentials": AWS}) as server:
        server.add_table(*TABLE)
        server.fail(403, times=None, match="POST")
        async with connected(server, credentials_operation=setting) as ns:
            await catch(err.PermissionDeniedError, described(ns, *TABLE, vend=True))
        assert operations(server) == asked_for


async def test_credentials_can_be_disabled(tmp_path: Path) -> None:
    with FakeUnity(credentials={"aws_temp_credentials": AWS}) as server:
        ids = [["main", "a", f"t{i:03}"] for i in range(70)]
        for id in ids:
            server.add_table(*id, location=(tmp_path / id[-1]).as_uri())
        async with connected(server, credentials_operation="none", **{"storage.region": "x"}) as ns:
            assert (await described(ns, *ids[0], vend=True)).storage_options == {"region": "x"}
            await ns.write(ids[0], ROWS, mode="append")
            server.clear()
            opened = await ns.open_many(ids)
        assert [list(id) for id in opened.tables] == ids[:1] and len(opened.errors) == 69
        # So many tables are found in the listing.
        assert [line.partition("?")[0] for line in list_requests(server)] == ["GET tables"]


async def test_a_local_table_needs_none() -> None:
    with FakeUnity(credentials={"aws_temp_credentials": AWS}) as server:
        server.add_table(*TABLE, location="file:///data/t")
        async with connected(server) as ns:
            assert (await described(ns, *TABLE, vend=True)).storage_options is None
        async with connected(server, **{"storage.region": "x"}) as ns:
            assert (await described(ns, *TABLE, vend=True)).storage_options == {"region": "x"}


async def test_a_server_that_is_not_set_up_for_it_changes_nothing(server: FakeUnity) -> None:
    server.add_table(*TABLE)
    async with connected(server, **{"storage.region": "x"}) as ns:
        assert (await described(ns, *TABLE, vend=True)).storage_options == {"region": "x"}
        for status in (404, 405):
            server.fail(status, match="POST", body="Status: Not Found")
            assert (await described(ns, *TABLE, vend=True)).storage_options == {"region": "x"}


async def test_a_request_that_fails_is_repeated_or_reported() -> None:
    async with running(connected, FakeUnity(credentials={"aws_temp_credentials": AWS})) as (server, ns):
        server.add_table(*TABLE)
        server.reply(
            '{"name":"t","table_type":"EXTERNAL","properties":{"table_type":"lance"},'
            '"storage_location":"s3://b/t","table_id":"f38f4130-276b-43d7-a01d-1cc3d542e1e7"}',
            match="GET",
        )
        result = await described(ns, *TABLE, vend=True)
        assert result.location != "s3://b/t" and result.storage_options, "a table that was replaced meanwhile"
        # Errors and credentials are remembered, so each case has its own table.
        for status, times, error in (
            (503, 2, None),
            (404, 1, err.InternalError),
            (503, 4, err.ServiceUnavailableError),
            (401, 1, err.UnauthenticatedError),
        ):
            table = ["main", "a", f"u{status}{times}"]
            server.add_table(*table)
            server.fail(status, times=times, match="POST")
            if error is None:
                assert (await described(ns, *table, vend=True)).storage_options
                continue
            message = rf"{table[2]} \(vend_credentials: HTTP {status}{'.*4 attempts' if times == 4 else ''}"
            await catch(error, described(ns, *table, vend=True), message)


async def test_secrets_are_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with FakeUnity(credentials={"aws_temp_credentials": {**AWS, "secret_access_key": 7}}) as server:
        server.add_table(*TABLE)
        async with connected(server) as ns:
            caught = await catch(err.InternalError, described(ns, *TABLE, vend=True), "unknown form")
            assert "t0ken" not in str(caught.value)
    assert "t0ken" not in caplog.text
