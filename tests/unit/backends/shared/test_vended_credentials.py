"""Vended credentials with the names of Lance, those of Polaris, and catalogs with relative default locations."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.backends.shared.vended_credentials import combine, storage_options
from lance_ns_async.storage.options import merge_options
from tests.fakes.glue import FakeGlue
from tests.fakes.http import FakeServer
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.fakes.rest import FakeRest
from tests.fakes.server import Answer, Received
from tests.support.errors import catch
from tests.support.lake import stream
from tests.support.polaris import connected, described, open_server
from tests.support.running import running

UNTIL = "1795224088134"
S3 = {"s3.access-key-id": "id", "s3.secret-access-key": "key", "s3.session-token": "session"}
S3_OPTIONS = {"aws_access_key_id": "id", "aws_secret_access_key": "key", "aws_session_token": "session"}


REGION, END = {"aws_region": "eu-west-1"}, {"expires_at_millis": UNTIL}
PATH_STYLE = {"aws_virtual_hosted_style_request": "false", "allow_http": "true"}
CLIENT = {key.replace("s3.", "client."): value for key, value in S3.items()}


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (S3, S3_OPTIONS),
        (S3 | {"s3.session-token-expires-at-ms": UNTIL}, S3_OPTIONS | END),
        (S3 | {"expiration-time": int(UNTIL)}, S3_OPTIONS | END),
        (S3 | {"client.region": "eu-west-1"}, S3_OPTIONS | REGION),
        (S3 | {"s3.client.region": "eu-west-1"}, S3_OPTIONS | REGION),
        (S3 | {"s3.region": "eu-west-1", "client.region": "us-east-1"}, S3_OPTIONS | REGION),
        (
            S3 | {"s3.endpoint": "http://127.0.0.1:9000", "s3.path-style-access": "true"},
            S3_OPTIONS | {"aws_endpoint": "http://127.0.0.1:9000", **PATH_STYLE},
        ),
        (S3 | {"s3.endpoint": "s3://s", "s3.path-style-access": "false"}, S3_OPTIONS | {"aws_endpoint": "s3://s"}),
        (S3 | {"s3.session-token": None}, {"aws_access_key_id": "id", "aws_secret_access_key": "key"}),
        (S3 | {"s3.remote-signing-enabled": "true", "client.refresh-credentials-endpoint": "/x"}, S3_OPTIONS),
        ({"s3.endpoint": "https://s3", "client.region": "eu-west-1"}, {}),
        ({"gcs.oauth2.token": "bearer"}, {"google_storage_token": "bearer"}),
        ({"gcs.oauth2.token": "x", "gcs.oauth2.token-expires-at": UNTIL}, {"google_storage_token": "x", **END}),
        *((it, {}) for it in ({}, {"warehouse": "s3://b"})),
        *((it, S3_OPTIONS) for it in (CLIENT, S3 | {"client.access-key-id": "all", "client.session-token": "all"})),
    ],
)
def test_properties_become_options(config: Mapping[str, Any], options: Mapping[str, str]) -> None:
    assert storage_options(config, "s3://bucket/x/t") == options


@pytest.mark.parametrize(
    ("location", "account"),
    [
        ("abfss://box@one.dfs.core.windows.net/t", "one"),
        ("abfss://box@two.dfs.core.windows.net/t", "two"),
        *((it, None) for it in ("az://box/t", "abfss://box@three.dfs.core.windows.net/t")),
    ],
)
def test_the_location_selects_the_account(location: str, account: str | None) -> None:
    config = {
        "adls.sas-token.one.dfs.core.windows.net": "sas-one",
        "adls.sas-token-expires-at-ms.one.dfs.core.windows.net": "1",
        "adls.sas-token.two.dfs.core.windows.net": "sas-two",
        "adls.sas-token-expires-at-ms.two.dfs.core.windows.net": "2",
    }
    options = storage_options(config, location)
    assert options.get("azure_storage_account_name") == account
    assert options.get("azure_storage_sas_token") == (account and f"sas-{account}")
    assert options.get("expires_at_millis") == {"one": "1", "two": "2", None: None}[account]


@pytest.mark.parametrize("location", ["az://box/t", "abfss://box@one.blob.core.windows.net/t"])
def test_one_account_is_meant_by_whatever_host_it_is_named(location: str) -> None:
    options = storage_options({"adls.sas-token.one": "sas", "adls.sas-token.one.dfs.core.windows.net": "sas"}, location)
    assert options == {"azure_storage_account_name": "one", "azure_storage_sas_token": "sas"}


ABFSS = "abfss://box@one.dfs.core.windows.net/t"


AZ, SAS = "az://box/t", {"azure_storage_sas_token": "sas"}
KEY = {"azure_storage_account_key": "key"}
SHARED_KEY = {"adls.auth.shared-key.account.name": "one", "adls.auth.shared-key.account.key": "key"}
ONE, EXPIRES = "adls.sas-token.one", "adls.sas-token-expires-at-ms"


@pytest.mark.parametrize(
    ("config", "location", "options"),
    [
        ({"adls.sas-token": "sas"}, ABFSS, SAS),
        ({"adls.sas-token": "sas", EXPIRES: UNTIL, "adls.account-name": "one"}, AZ, SAS | END),
        ({"adls.sas-token": "sas"}, AZ, None),
        ({"adls.sas-token": "sas", "adls.sas-token.two": "other"}, ABFSS, SAS),
        ({"adls.sas-token": "bare", ONE: "sas"}, ABFSS, SAS),
        ({f"{ONE}.dfs.core.windows.net": "sas", f"{EXPIRES}.one": UNTIL}, ABFSS, SAS | END),
        ({ONE: "sas", f"{EXPIRES}.two": "1", "expiration-time": UNTIL}, ABFSS, SAS | END),
        (SHARED_KEY, AZ, KEY),
        ({"adls.account-name": "one", "adls.account-key": "key"}, ABFSS, KEY),
        ({"adls.token": "bearer", "expiration-time": UNTIL}, ABFSS, {"azure_storage_token": "bearer", **END}),
        ({"adls.connection-string.one": "x"}, ABFSS, None),
    ],
)
def test_spellings_for_azure(config: Mapping[str, str], location: str, options: Mapping[str, str] | None) -> None:
    expected = {} if options is None else {"azure_storage_account_name": "one", **options}
    assert storage_options(config, location) == expected


def test_the_scheme_of_the_location_selects_among_several_stores() -> None:
    config = {**S3, "gcs.oauth2.token": "bearer", "adls.sas-token": "sas"}
    assert storage_options(config, "s3://b/t") == S3_OPTIONS
    assert storage_options(config, "gs://b/t") == {"google_storage_token": "bearer"}
    assert "azure_storage_sas_token" in storage_options(config, ABFSS)
    assert storage_options({}, "s3://[bucket/t") == {}
    with pytest.raises(ValueError, match="is not a number"):
        storage_options(S3 | {"s3.session-token-expires-at-ms": "soon"}, "s3://b/t")


@pytest.mark.parametrize(
    ("config", "credentials", "combined"),
    [
        ({"s3.region": "r", **S3}, {}, {"s3.region": "r", **S3}),
        (
            {"s3.region": "r", "expiration-time": UNTIL, **S3},
            {"s3.access-key-id": "new", "s3.secret-access-key": "new"},
            {"s3.region": "r", "s3.access-key-id": "new", "s3.secret-access-key": "new"},
        ),
        ({"s3.region": "r", **S3}, {"s3.region": "near"}, {"s3.region": "near", **S3}),
        (
            {"adls.sas-token.one": "old", "adls.sas-token-expires-at-ms.one": UNTIL},
            {"adls.sas-token.one": "new"},
            {"adls.sas-token.one": "new"},
        ),
    ],
)
def test_combining(config: Mapping[str, str], credentials: Mapping[str, str], combined: Mapping[str, str]) -> None:
    assert combine(config, credentials) == combined


class Storage(FakeServer):
    """An object storage without content, which records the requests."""

    def handle(self, request: Received) -> Answer:
        azure = "restype=container" in request.path
        body = b"<EnumerationResults><Blobs/></EnumerationResults>" if azure else b"<ListBucketResult/>"
        return Answer(200, body, {"Content-Type": "application/xml"})


@pytest.mark.parametrize(
    "configured",
    [
        {},
        {"skip_signature": "true"},
        {"aws_skip_signature": "true", "google_skip_signature": "true", "azure_skip_signature": "true"},
        {"access_key_id": "mine", "secret_access_key": "mine", "region": "r2", "account_key": "bWluZQ=="},
        {"aws_token": "mine", "google_bearer_token": "mine", "azure_storage_token": "mine"},
        {"token": "mine"},
        {"azure_client_id": "mine", "azure_client_secret": "mine", "azure_tenant_id": "mine"},
        {"azure_credential_type": "azure_cli"},
    ],
    ids=lambda configured: "-".join(configured)[:20] or "nothing",
)
@pytest.mark.parametrize(
    ("location", "config", "endpoint", "shown"),
    [
        ("s3://bucket/t", S3 | {"client.region": "r1"}, "aws_endpoint", ["Credential=id/", "/r1/s3/", "'session'"]),
        ("gs://bucket/t", {"gcs.oauth2.token": "gcs-bearer"}, "google_base_url", ["'Bearer gcs-bearer'"]),
        ("az://box/t", {"adls.sas-token.one": "sv=1&sig=signed"}, "azure_storage_endpoint", ["&sv=1&sig=signed"]),
    ],
    ids=["s3", "gcs", "azure"],
)
async def test_storage_receives_the_credentials(
    location: str, config: Mapping[str, str], endpoint: str, shown: list[str], configured: Mapping[str, str]
) -> None:
    with Storage() as server:
        options = {endpoint: server.url, "allow_http": "true", **configured}
        merged = merge_options(options, storage_options(config, location))
        with pytest.raises(ValueError, match="was not found"):
            await anyio.to_thread.run_sync(lambda: lance.dataset(location, storage_options=merged))
        [request] = server.requests
        line = f"{request} {dict(request.headers)}"
        assert all(text in line for text in shown)


HEADER = "Polaris-Generic-Table-Access-Delegation"
CONFIG = {
    **{"s3.access-key-id": "id", "s3.secret-access-key": "sesame-key", "s3.session-token": "sesame-token"},
    **{"s3.session-token-expires-at-ms": UNTIL, "client.region": "eu-west-1"},
}
SECRETS = {"aws_secret_access_key": "sesame-key", "aws_session_token": "sesame-token"}
OPTIONS = {"aws_access_key_id": "id", **SECRETS, "aws_region": "eu-west-1", **END}


def vending(*entries: Any) -> FakePolaris:
    return FakePolaris(credential=None, vends=entries)


async def test_credentials_come_last_in_the_names_of_lance() -> None:
    near = {"prefix": "s3a://bucket/x", "config": CONFIG}
    with vending({"prefix": "s3://bucket", "config": {"s3.access-key-id": "far"}}, near) as server:
        properties = {"aws_region": "old", "k": "v"}
        server.add_table("cat", ("a",), "t", base_location="s3://bucket/x/t", properties=properties)
        options = {"storage.access_key_id": "configured", "storage.timeout": "60s"}
        async with connected(server, **options) as ns:
            result = await described(ns, "cat", "a", "t", vend=True)
        assert result.storage_options == {"timeout": "60s", "k": "v", **OPTIONS}
        assert result.properties == properties
        assert server.requests[-1].headers[HEADER] == "vended-credentials"
        async with connected(server, vend_credentials="true") as ns:
            assert (await ns.declare_table(["cat", "a", "u"], location="s3://bucket/x/u")).storage_options == OPTIONS


@pytest.mark.parametrize("configs", ["", ', "storage-access-configs": null', ', "storage-access-configs": []'])
async def test_a_server_that_gives_none_changes_nothing(configs: str) -> None:
    async with running(connected, open_server(), **{"storage.timeout": "60s"}) as (server, ns):
        table = '{"name": "t", "format": "lance", "base-location": "s3://b/t", "properties": {"k": "v"}}'
        server.reply(f'{{"table": {table}{configs}}}')
        assert (await described(ns, "cat", "a", "t", vend=True)).storage_options == {"timeout": "60s", "k": "v"}


async def test_a_server_may_refuse_to_delegate_and_says_so() -> None:
    async with running(connected, FakePolaris(credential=None, refuses_delegation=True)) as (server, ns):
        location = server.add_table("cat", ("a",), "t")
        await catch(err.InvalidInputError, described(ns, "cat", "a", "t", vend=True), "vending is not supported")
        assert (await described(ns, "cat", "a", "t")).location == location


ROWS = pa.table({"id": [1, 2, 3]})


@contextmanager
def relative(impl: str) -> Iterator[tuple[Mapping[str, str], list[str]]]:
    """Provides the properties of a catalog with a relative default location, and the id of a new table."""
    server: Any
    match impl:
        case "glue":
            server, id = FakeGlue(), ["db", "t"]
        case "polaris":
            server, id = FakePolaris(), ["lake", "db", "t"]
            server.add_namespace("lake", ["db"], {"location": "db.db"})
        case "lakekeeper":
            (server := FakeLakekeeper(base="db.db")).add_namespace(["db"])
            id = ["db", "t"]
        case _:
            (server := FakeRest(base="db.db")).namespaces["db",] = {}
            id = ["db", "t"]
    with server:
        if impl == "glue":
            server.add_database("", "db", location="db.db")
        yield {"uri": server.url} if impl == "rest" else server.properties, id


@pytest.mark.parametrize("impl", ["glue", "polaris", "lakekeeper", "rest"])
async def test_relative_default_location(impl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with relative(impl) as (properties, id):
        async with AsyncNamespace.connect(impl, properties) as ns:
            for work in (
                lambda: ns.declare_table({"id": id}),
                lambda: ns.create_table({"id": id}, stream(ROWS)),
                lambda: ns.session.staging().begin(TableId(id), "create", lambda _: ROWS.schema),
            ):
                await catch((err.InvalidInputError, err.InvalidTableStateError), work(), r"db\$t.*'db\.db.* relative")
                assert not await ns.exists(id)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mode", ["append", "overwrite"])
async def test_relative_location_is_not_written(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeRest() as server:
        server.add_table("db", "t", location="db.db/t")
        async with AsyncNamespace.connect("rest", {"uri": server.url}) as ns:
            with pytest.raises(err.InvalidTableStateError, match=r"'db.db/t' is relative"):
                await ns.session.staging().begin(TableId(["db", "t"]), mode, lambda _: ROWS.schema)
