"""Properties of the backends: defaults, spellings, units, addresses, and values that cannot work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.backends.hive3.settings import HiveSettings
from lance_ns_async.backends.polaris.backend import PolarisBackend, PolarisSettings
from lance_ns_async.backends.rest.backend import RestSettings
from lance_ns_async.backends.unity.backend import UnitySettings
from lance_ns_async.calls.caller import Caller
from tests.fakes.polaris import FakePolaris
from tests.fakes.unity import API, FakeUnity
from tests.support import polaris, unity
from tests.support.errors import catch

pytestmark = pytest.mark.glue

URL = "https://catalog.example.com"
LEAST: Mapping[str, Mapping[str, str]] = {
    "dir": {},
    "glue": {},
    "hive3": {},
    "iceberg": {"endpoint": URL},
    "lakekeeper": {"endpoint": URL, "warehouse": "w"},
    "polaris": {"endpoint": URL},
    "rest": {"uri": URL},
    "unity": {"endpoint": URL, "catalog": "main"},
}
"""The properties that each backend needs."""

BOTH = {"auth_token": "sesame", "credential": "id:sesame"}
ARN = "arn:aws:iam::123456789012:role/catalog"
SIGNED = {"rest.sigv4-enabled": "true"}
INVALID: list[tuple[str, Mapping[str, str | None], str]] = [
    ("glue", {"credentials_operation": "read"}, "credentials_operation: set vend_credentials"),
    *(
        ("hive3", {"uri": uri}, "uri: not a list of thrift://host:port")
        for uri in (
            *("http://a:1", "thrift://a:1;thrift://b:2", "thrift://a:x", "thrift://me:sesame@a:1", "thrift://a:0"),
            *("thrift://a:1#b", "thrift://", "", "a:1,", "thrift://a:1/db"),
        )
    ),
    ("hive3", {"ugi": ":staff"}, "ugi: not a user"),
    ("hive3", {"client.pool-size": "0"}, "client.pool-size"),
    ("hive3", {"auth": "magic"}, "auth"),
    ("hive3", {"auth": "plain"}, "plain requires the other two"),
    ("hive3", {"user": "me", "password": "sesame"}, "only it allows them"),
    ("hive3", {"auth": "kerberos", "ugi": "me"}, "ugi: omit it"),
    ("hive3", {"auth": "kerberos", "framed": "true"}, "framed: omit it"),
    ("hive3", {"ca_bundle": "/x.pem"}, "require use_ssl=true"),
    ("hive3", {"use_ssl": "true", "client_key": "/x.key"}, "client_key: give client_cert with it"),
    ("hive3", {"max_response_bytes": "10"}, "max_response_bytes"),
    ("hive3", {"urri": "thrift://a:1"}, "did you mean uri"),
    ("iceberg", BOTH, "auth_token and credential: set one of them"),
    ("iceberg", {**SIGNED, "rest.access-key-id": "k"}, "give both or none"),
    ("iceberg", {**SIGNED, "rest.session-token": "sesame"}, "give rest.access-key-id"),
    ("iceberg", {**SIGNED, "rest.signing-region": "eu central"}, "rest.signing-region"),
    ("lakekeeper", {"credential": "me:sesame"}, "give the token endpoint of the identity provider"),
    ("lakekeeper", {"subject_token": "sesame"}, "give the token endpoint of the identity provider"),
    ("lakekeeper", {"warehouse": ""}, "warehouse"),
    *(("polaris", {"endpoint": it}, "endpoint: not a URL") for it in ("", "localhost:8181", "ftp://localhost")),
    ("polaris", {"endpoint": None}, "endpoint: Field required"),
    ("polaris", BOTH, "auth_token and credential: set one of them"),
    *(
        ("polaris", {"credential": it}, "client_id:client_secret, with a colon")
        for it in ("sesame", ":sesame", "sesame:")
    ),
    ("polaris", {"catalogs": " , "}, "catalogs: it names no catalog"),
    ("polaris", {"catalogs": "a,*"}, "catalogs: '*' asks the server for all catalogs; use it without other names"),
    ("polaris", {"list_style": "sesame"}, "list_style: Input should be 'qualified' or 'relative'"),
    *(("polaris", it, "realm: ") for it in ({"realm": "two words"}, {"realm": "a\r\nb"})),
    ("polaris", {"assume_role_arn": ARN}, "assume_role_arn: set rest.sigv4-enabled"),
    ("polaris", {**SIGNED, "assume_role_region": "eu-west-1"}, "give assume_role_arn"),
    ("polaris", {"rest.signing-name": "glue"}, "rest_signing_name: set rest.sigv4-enabled to true with it"),
    ("rest", {"endpoint": "https://other.example.com"}, "given twice with different values, also as uri"),
    ("rest", {"delimiter": ""}, "delimiter: "),
    ("rest", {"credential": "id:sesame"}, "oauth2_server_uri"),
    ("rest", {"subject_token": "sesame"}, "subject_token: give the address of the token endpoint with it"),
    ("rest", {"oauth2_server_uri": f"{URL}/token"}, "give credential or subject_token with it"),
    ("rest", {"tls.assert_hostname": "false"}, "tls.ssl_ca_cert"),
    ("rest", {"min_depth": "2", "max_depth": "1"}, "max_depth: 1 is less than min_depth"),
    ("rest", {"uri": None}, "endpoint: "),
    ("rest", {"uri": None, "url": URL}, "url: unknown, did you mean uri"),
    ("unity", {"endpoint": None}, "unity properties: endpoint: Field required"),
    ("unity", {"catalog": None}, "unity properties: catalog: Field required"),
    *(
        ("unity", {"catalog": it}, "catalog: not a valid catalog name")
        for it in ("a.b", "a b", "é", "a/b", "x" * 256, "")
    ),
    *(
        ("unity", {key: text}, f"{key}: {text.strip()} would be seconds here; write '{text.strip()}ms'")
        for key in ("connect_timeout", "read_timeout")
        for text in ("1000", "10000", " 30000.0 ")
    ),
    *(("unity", {"api_path": it}, "api_path: not a path") for it in ("/api?x=1", "/a b", "/é", "#")),
    ("unity", {"credentials_operation": "write"}, "credentials_operation: Input should be 'auto', 'read'"),
]


@pytest.mark.parametrize(("impl", "properties", "message"), INVALID)
def test_invalid_properties(impl: str, properties: Mapping[str, str | None], message: str) -> None:
    given = {key: value for key, value in {**LEAST[impl], **properties}.items() if value is not None}
    with pytest.raises(err.InvalidInputError) as raised:
        AsyncNamespace.connect(impl, given)
    assert message in str(raised.value) and "sesame" not in str(raised.value).replace("'sesame'", "")


def test_defaults_and_addresses_of_hive() -> None:
    settings = HiveSettings.parse({})
    assert [str(address) for address in settings.route().addresses] == ["localhost:9083"]
    assert settings.limit(settings.policy()).max_in_flight == settings.client_pool_size == 3
    # Connect and read; a server itself tries for 20 seconds.
    assert settings.limit(settings.policy()).attempt_timeout == 65.0 and settings.read_timeout > 20
    assert settings.route().tls is None and settings.login() is None and settings.user_and_groups() is None
    for uri, addresses in {
        "thrift://a": ["a:9083"],
        "thrift://a:1, b:2,c, thrift://d:4/": ["a:1", "b:2", "c:9083", "d:4"],
        "thrift://[::1]:7": ["[::1]:7"],
    }.items():
        assert [str(address) for address in HiveSettings.parse({"uri": uri}).route().addresses] == addresses


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("0.5", 0.5), ("999", 999), ("10000ms", 10), ("2m", 120), ("3000s", 3000)]
)
def test_times_of_unity_are_seconds(text: str, seconds: float) -> None:
    settings = UnitySettings.parse({**LEAST["unity"], "connect_timeout": text, "unity.read_timeout": text})
    assert settings.connect_timeout == settings.read_timeout == seconds


@pytest.mark.parametrize("named", [True, False])
def test_times_of_other_clients_keep_their_unit(named: bool) -> None:
    milliseconds = {"connect_timeout_millis": "1500", "read_timeout_millis": "250"}
    for cls, impl in ((UnitySettings, "unity"), (PolarisSettings, "polaris")):
        prefix = f"{impl}." if named else ""
        settings = cls.parse({**LEAST[impl], **{prefix + key: value for key, value in milliseconds.items()}})
        assert (settings.connect_timeout, settings.read_timeout) == (1.5, 0.25)
    plain = PolarisSettings.parse({**LEAST["polaris"], "connect_timeout": "1500", f"{prefix}read_timeout": "2s"})
    assert (plain.connect_timeout, plain.read_timeout) == (1.5, 2.0)


def test_properties_may_have_the_name_of_the_backend() -> None:
    named = {f"unity.{key}": value for key, value in {**LEAST["unity"], "root": "s3://b/r"}.items()}
    settings = UnitySettings.parse(named)
    assert (settings.endpoint, settings.catalog, settings.root) == (URL, "main", "s3://b/r")
    properties = {"endpoint": f"{URL}/", "filter-tables": "true", "max_retries": "0", "storage.region": "eu-west-1"}
    of_polaris = PolarisSettings.parse({f"polaris.{key}": value for key, value in properties.items()})
    assert of_polaris.filter_tables and of_polaris.policy().max_retries == 0
    assert of_polaris.storage_options() == {"region": "eu-west-1"}
    of_rest = RestSettings.parse({"rest.endpoint": URL, "ca_bundle": "ca.pem"})
    assert (of_rest.endpoint, of_rest.ca_bundle) == (URL, "ca.pem") and of_rest.checks_hostname()


def test_properties_of_pylance() -> None:
    tls = {"cert_file": "cert.pem", "key_file": "key.pem", "ssl_ca_cert": "ca.pem", "assert_hostname": "false"}
    more = {"delimiter": "::", "header.x-api-key": "key", **{f"tls.{key}": value for key, value in tls.items()}}
    settings = RestSettings.parse({"uri": URL, **more})
    assert (settings.endpoint, settings.delimiter) == (URL, "::")
    assert settings.header["x-api-key"].get_secret_value() == "key"
    assert (settings.client_cert, settings.client_key, settings.ca_bundle) == ("cert.pem", "key.pem", "ca.pem")
    assert not settings.checks_hostname()


@pytest.mark.parametrize(("pool", "slots", "bound"), [("8", "32", 8), ("8", "2", 2), ("64", "32", 32)])
def test_pool_of_hive_bounds_the_calls_in_flight(pool: str, slots: str, bound: int) -> None:
    settings = HiveSettings.parse({"client.pool-size": pool, "max_in_flight": slots})
    assert settings.limit(settings.policy()).max_in_flight == bound


def test_certificate_that_cannot_be_read(tmp_path: Path) -> None:
    settings = HiveSettings.parse({"use_ssl": "true", "ca_bundle": str(tmp_path / "none.pem")})
    with pytest.raises(err.InvalidInputError, match=r"cannot load .*none\.pem"):
        settings.route()


def test_values_of_polaris() -> None:
    def parse(**properties: str) -> PolarisSettings:
        return PolarisSettings.parse({**LEAST["polaris"], **properties})

    # The endpoint is the root of the server.
    assert {parse(endpoint=it).endpoint for it in (URL, f"{URL}/", f"{URL}/api/catalog/")} == {URL}
    assert parse(credential="id:se:cr:et").client() == ("id", "se:cr:et")
    assert "se:cr:et" not in repr(parse(credential="id:se:cr:et"))
    assert parse(catalogs="b, a,b").catalogs == ("b", "a") and parse(catalogs=" *").catalogs == ("*",)
    for text, lists_only_lance in (("false", True), ("true", False)):
        settings = parse(filter_tables=text)
        backend = PolarisBackend.open(settings, Caller(settings.policy(), PolarisBackend.errors))
        assert backend.capabilities.lists_only_lance is lists_only_lance
        assert backend.capabilities.min_depth == 2 and backend.capabilities.max_depth is None
    assert PolarisBackend.capabilities.lists_only_lance


def test_identities() -> None:
    other: tuple[dict[str, str], ...] = ({}, {"realm": "north"}, {"credential": "id:s"}, {"credential": "other:s"})
    assert len({PolarisSettings.parse({**LEAST["polaris"], **it}).identity() for it in other}) == 4
    secrets = ({"credential": "id:s1"}, {"credential": "id:s2"})
    assert len({PolarisSettings.parse({**LEAST["polaris"], **it}).identity() for it in secrets}) == 1
    more = {"credential": "id:hush", "oauth2_server_uri": f"{URL}/token", "header.X": "hush"}
    assert RestSettings.parse({"uri": URL, **more}).identity() == f"{URL}|id"
    assert f"{URL}|main" in AsyncNamespace.connect("unity", LEAST["unity"]).namespace_id()


@pytest.mark.parametrize(
    ("endpoint", "api_path"),
    [("", API), ("/", API.strip("/")), (API, API), (f"{API}/", f"{API}/"), (API, ""), ("/api", "/2.1/unity-catalog")],
)
async def test_path_of_unity(endpoint: str, api_path: str) -> None:
    with FakeUnity() as server:
        server.add_table("main", "a", "t")
        async with unity.connected(server, endpoint=server.url + endpoint, api_path=api_path) as ns:
            await ns.describe_table(["main", "a", "t"])
        assert server.requests[0].path == f"{API}/tables/main.a.t"


async def test_bearer_token_of_unity(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with FakeUnity(authorization=["sesame-token"]) as server:
        server.add_table("main", "a", "t")
        async with unity.connected(server) as ns:
            await ns.describe_table(["main", "a", "t"])
            assert "sesame" not in repr(ns) + ns.namespace_id()
        for properties, message in (({"auth_token": "sesame-wrong"}, "Invalid access token"), ({}, "No authorization")):
            options = {"endpoint": server.url, "catalog": "main", **properties}
            async with AsyncNamespace.connect("unity", options) as ns:
                raised = await catch(err.UnauthenticatedError, ns.describe_table(["main", "a", "t"]), message)
            assert "sesame" not in str(raised.value)
    assert "sesame" not in caplog.text


@pytest.mark.parametrize(
    ("root", "location"),
    [
        *((it, "s3://bucket/lake/main/a/t") for it in ("s3://bucket/lake/", "s3a://bucket/lake")),
        ("/data/lake", "file:///data/lake/main/a/t"),
        ("lake", f"{Path.cwd().as_uri()}/lake/main/a/t"),
        (None, f"{Path.cwd().as_uri()}/main/a/t"),
    ],
)
async def test_default_location_of_unity(root: str | None, location: str) -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        async with unity.connected(server, unique_locations="false", **({"root": root} if root else {})) as ns:
            assert (await ns.declare_table(["main", "a", "t"])).location == location
        assert server.requests[0].json["storage_location"] == location


async def test_headers_of_polaris() -> None:
    """They are also sent with the request for a token; a slash at the end of the endpoint is no part of a path."""
    with FakePolaris(realm="north") as server:
        server.add_table("cat", ("a",), "t")
        own = {"header.X-Team": "blue", "header.Polaris-Realm": "north", "realm": "replaced"}
        async with polaris.connected(server, endpoint=f"{server.endpoint}/", **own) as ns:
            await ns.describe_table(["cat", "a", "t"])
        assert server.token_requests == 1
        assert [request.headers["X-Team"] for request in server.requests] == ["blue", "blue"]
        assert [request.headers.getall("Polaris-Realm") for request in server.requests] == [["north"], ["north"]]
        assert polaris.list_requests(server)[1] == "GET catalog/polaris/v1/cat/namespaces/a/generic-tables/t"
