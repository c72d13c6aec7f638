"""The properties of Polaris: spellings, units, defaults, and invalid values."""

from __future__ import annotations

import lance_namespace.errors as err
import pytest

from lance_ns_async.backends.polaris.backend import PolarisBackend, PolarisSettings
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from tests.fakes.polaris import FakePolaris
from tests.support.polaris import connected, described, list_requests

ENDPOINT = {"endpoint": "http://localhost:8181"}


def parsed(**properties: str) -> PolarisSettings:
    return PolarisSettings.parse({**ENDPOINT, **properties})


def test_defaults() -> None:
    settings = parsed()
    assert (settings.connect_timeout, settings.read_timeout) == (10.0, 30.0)
    assert settings.policy().max_retries == 3 and settings.policy().max_in_flight == Policy().max_in_flight
    assert settings.scope == "PRINCIPAL_ROLE:ALL" and settings.list_style == "qualified"
    unsaid = (settings.auth_token, settings.credential, settings.realm, settings.root, settings.catalogs)
    assert unsaid == (None,) * 5
    assert settings.filter_tables is False and settings.storage_options() is None


@pytest.mark.parametrize(
    "endpoint", ["https://p.example.com", "https://p.example.com/", "https://p.example.com/api/catalog/"]
)
def test_the_endpoint_is_the_servers_root_however_it_is_given(endpoint: str) -> None:
    assert PolarisSettings.parse({"endpoint": endpoint}).endpoint == "https://p.example.com"


@pytest.mark.parametrize("prefix", ["", "polaris."])
def test_bare_times_are_milliseconds(prefix: str) -> None:
    settings = parsed(**{f"{prefix}connect_timeout": "1500", f"{prefix}read_timeout": "2s"})
    assert (settings.connect_timeout, settings.read_timeout) == (1.5, 2.0)
    settings = parsed(**{f"{prefix}connect_timeout_millis": "1500", f"{prefix}read_timeout_millis": "250"})
    assert (settings.connect_timeout, settings.read_timeout) == (1.5, 0.25)


def test_every_property_may_carry_the_backends_name() -> None:
    settings = PolarisSettings.parse(
        {
            "polaris.endpoint": "https://polaris.example.com/",
            "polaris.credential": "id:secret",
            "polaris.scope": "PRINCIPAL_ROLE:reader",
            "polaris.realm": "north",
            "polaris.root": "s3://bucket",
            "polaris.catalogs": "a,b",
            "polaris.list_style": "relative",
            "polaris.filter-tables": "true",
            "polaris.max_retries": "0",
            "polaris.storage.region": "eu-west-1",
        }
    )
    assert settings.client() == ("id", "secret") and settings.realm == "north"
    assert settings.catalogs == ("a", "b") and settings.list_style == "relative" and settings.filter_tables
    assert settings.storage_options() == {"region": "eu-west-1"} and settings.policy().max_retries == 0


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"endpoint": ""}, "endpoint: not a URL"),
        ({"endpoint": "localhost:8181"}, "endpoint: not a URL"),
        ({"endpoint": "ftp://localhost"}, "endpoint: not a URL"),
        ({"auth_token": "sesame", "credential": "id:sesame"}, "auth_token and credential: set one of them"),
        ({"credential": "sesame"}, "client_id:client_secret, with a colon"),
        ({"credential": ":sesame"}, "client_id:client_secret, with a colon"),
        ({"credential": "sesame:"}, "client_id:client_secret, with a colon"),
        ({"catalogs": " , "}, "catalogs: it names no catalog"),
        ({"catalogs": "a,*"}, "catalogs: '\\*' asks the server for all catalogs; use it without other names"),
        ({"list_style": "sesame"}, "list_style: Input should be 'qualified' or 'relative'"),
        ({"realm": "two words"}, "realm: "),
        ({"realm": "a\r\nb"}, "realm: "),
        ({"warehouse": "x"}, "warehouse: unknown"),
    ],
)
def test_invalid_properties(properties: dict[str, str], message: str) -> None:
    with pytest.raises(err.InvalidInputError, match=f"polaris properties: .*{message}") as raised:
        parsed(**properties)
    assert "sesame" not in str(raised.value)


def test_an_endpoint_is_needed() -> None:
    with pytest.raises(err.InvalidInputError, match="endpoint: Field required"):
        PolarisSettings.parse({})


def test_the_secret_begins_after_the_first_colon() -> None:
    assert parsed(credential="id:se:cr:et").client() == ("id", "se:cr:et")
    assert "se:cr:et" not in repr(parsed(credential="id:se:cr:et"))


def test_a_catalog_that_is_named_twice_is_one() -> None:
    assert parsed(catalogs="b, a,b").catalogs == ("b", "a") and parsed(catalogs=" *").catalogs == ("*",)


def test_principals_and_realms_are_distinguished() -> None:
    settings = [parsed(), parsed(realm="north"), parsed(credential="id:s"), parsed(credential="other:s")]
    assert len({one.identity() for one in settings}) == 4
    assert parsed(credential="id:s1").identity() == parsed(credential="id:s2").identity()


@pytest.mark.parametrize(("text", "lists_only_lance"), [("false", True), ("true", False)])
def test_the_filter_decides_what_the_backend_says_of_its_listings(text: str, lists_only_lance: bool) -> None:
    settings = parsed(filter_tables=text)
    backend = PolarisBackend.open(settings, Caller(settings.policy(), PolarisBackend.errors))
    assert backend.capabilities.lists_only_lance is lists_only_lance
    assert backend.capabilities.min_depth == 2 and backend.capabilities.max_depth is None
    assert PolarisBackend.capabilities.lists_only_lance


async def test_a_slash_at_the_end_of_the_endpoint_is_none_in_a_path(server: FakePolaris) -> None:
    server.add_table("cat", ("a",), "t")
    async with connected(server, endpoint=f"{server.endpoint}/") as ns:
        await described(ns, "cat", "a", "t")
    assert list_requests(server) == ["GET catalog/polaris/v1/cat/namespaces/a/generic-tables/t"]


async def test_headers_of_ones_own_are_sent_on_every_call_for_a_token_too() -> None:
    with FakePolaris(realm="north") as server:
        server.add_table("cat", ("a",), "t")
        own = {"header.X-Team": "blue", "header.Polaris-Realm": "north", "realm": "replaced"}
        async with connected(server, **own) as ns:
            await described(ns, "cat", "a", "t")
        assert server.token_requests == 1
        assert [request.headers["X-Team"] for request in server.requests] == ["blue", "blue"]
        assert [request.headers.getall("Polaris-Realm") for request in server.requests] == [["north"], ["north"]]


async def test_headers_of_ones_own_are_sent(server: FakePolaris) -> None:
    server.add_table("cat", ("a",), "t")
    async with connected(server, **{"header.X-Team": "blue", "auth_token": "sesame"}) as ns:
        await described(ns, "cat", "a", "t")
    headers = server.requests[0].headers
    assert (headers["X-Team"], headers["Authorization"]) == ("blue", "Bearer sesame")
