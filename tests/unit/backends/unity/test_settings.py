"""Settings of the Unity backend, and the addresses of its calls."""

from __future__ import annotations

from pathlib import Path

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.backends.unity.backend import UnitySettings
from tests.fakes.unity import API, FakeUnity
from tests.support.errors import catch
from tests.support.unity import QUICK, connected, declared, described

LEAST = {"endpoint": "http://localhost:8080", "catalog": "main"}


def test_the_defaults_are_those_of_the_spec() -> None:
    settings = UnitySettings.parse(LEAST)
    assert settings.api_path == "/api/2.1/unity-catalog"
    assert (settings.connect_timeout, settings.read_timeout, settings.max_retries) == (10, 60, 3)
    assert settings.auth_token is None and settings.root is None and settings.storage_options() is None
    assert settings.policy().attempt_timeout == 70


@pytest.mark.parametrize("missing", ["endpoint", "catalog"])
def test_required_properties(missing: str) -> None:
    with pytest.raises(err.InvalidInputError, match=f"unity properties: {missing}: Field required"):
        UnitySettings.parse({key: value for key, value in LEAST.items() if key != missing})


@pytest.mark.parametrize("catalog", ["a.b", "a b", "é", "a/b", "x" * 256, ""])
def test_a_catalog_that_cannot_be_is_refused(catalog: str) -> None:
    with pytest.raises(err.InvalidInputError, match="catalog: not a valid catalog name"):
        UnitySettings.parse({**LEAST, "catalog": catalog})


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("0.5", 0.5), ("999", 999), ("10000ms", 10), ("2m", 120), ("3000s", 3000)]
)
def test_times_are_seconds_unless_they_say_otherwise(text: str, seconds: float) -> None:
    settings = UnitySettings.parse({**LEAST, "connect_timeout": text, "unity.read_timeout": text})
    assert settings.connect_timeout == settings.read_timeout == seconds


@pytest.mark.parametrize("key", ["connect_timeout", "read_timeout"])
@pytest.mark.parametrize("text", ["1000", "10000", " 30000.0 "])
def test_milliseconds_that_were_copied_are_not_taken_for_hours(key: str, text: str) -> None:
    with pytest.raises(
        err.InvalidInputError, match=rf"{key}: {text.strip()} would be seconds here; write '{text.strip()}ms'"
    ):
        UnitySettings.parse({**LEAST, key: text})


@pytest.mark.parametrize("prefix", ["", "unity."])
def test_times_of_other_clients_keep_their_unit(prefix: str) -> None:
    properties = {f"{prefix}connect_timeout_millis": "10000", f"{prefix}read_timeout_millis": "30000"}
    settings = UnitySettings.parse({**LEAST, **properties})
    assert (settings.connect_timeout, settings.read_timeout) == (10, 30)


def test_properties_may_be_prefixed() -> None:
    settings = UnitySettings.parse({f"unity.{key}": value for key, value in LEAST.items()} | {"unity.root": "s3://b/r"})
    assert (settings.endpoint, settings.catalog, settings.root) == ("http://localhost:8080", "main", "s3://b/r")


@pytest.mark.parametrize("path", ["/api?x=1", "/a b", "/é", "#"])
def test_an_api_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(err.InvalidInputError, match="api_path: not a path"):
        UnitySettings.parse({**LEAST, "api_path": path})


@pytest.mark.parametrize(
    ("endpoint", "api_path"),
    [("", API), ("/", API.strip("/")), (API, API), (f"{API}/", f"{API}/"), (API, ""), ("/api", "/2.1/unity-catalog")],
)
async def test_the_api_path_is_put_between_once(server: FakeUnity, endpoint: str, api_path: str) -> None:
    server.add_table("main", "a", "t")
    async with connected(server, endpoint=server.url + endpoint, api_path=api_path) as ns:
        await described(ns, "main", "a", "t")
    assert server.requests[0].path == f"{API}/tables/main.a.t"


async def test_a_bearer_token_is_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with FakeUnity(authorization=["sesame-token"]) as server:
        server.add_table("main", "a", "t")
        async with connected(server) as ns:
            await described(ns, "main", "a", "t")
            assert "sesame" not in repr(ns) + ns.namespace_id()
        async with connected(server, auth_token="sesame-wrong") as ns:
            caught = await catch(err.UnauthenticatedError, described(ns, "main", "a", "t"), r"Invalid access token\.")
            assert "sesame" not in str(caught.value)
        with pytest.raises(err.UnauthenticatedError, match=r"No authorization found\."):
            async with AsyncNamespace.connect("unity", {"endpoint": server.url, "catalog": "main", **QUICK}) as ns:
                await described(ns, "main", "a", "t")
    assert "sesame" not in caplog.text


async def test_the_namespace_is_named_by_endpoint_and_catalog() -> None:
    async with AsyncNamespace.connect("unity", LEAST) as ns:
        assert "http://localhost:8080|main" in ns.namespace_id()


async def test_storage_properties_are_options_of_every_table(server: FakeUnity) -> None:
    names = server.add_lance_tables("main", "a", 101)
    async with connected(server, **{"storage.region": "us-west-2", "unity.storage.allow_http": "true"}) as ns:
        options = {"region": "us-west-2", "allow_http": "true"}
        assert (await described(ns, "main", "a", "t0000")).storage_options == options
        assert (await declared(ns, "main", "a", "new")).storage_options == options
        many = await ns.describe_tables([["main", "a", name] for name in names])
        assert all(table.storage_options == options for table in many.raise_for_errors().tables.values())


@pytest.mark.parametrize(
    ("root", "place"),
    [
        ("s3://bucket/lake/", "s3://bucket/lake/main/a/t"),
        ("s3a://bucket/lake", "s3://bucket/lake/main/a/t"),
        ("/data/lake", "file:///data/lake/main/a/t"),
        ("lake", f"{Path.cwd().as_uri()}/lake/main/a/t"),
        (None, f"{Path.cwd().as_uri()}/main/a/t"),
    ],
)
async def test_default_location_is_absolute(server: FakeUnity, root: str | None, place: str) -> None:
    async with connected(server, unique_locations="false", **({"root": root} if root else {})) as ns:
        assert (await declared(ns, "main", "a", "t")).location == place
    assert server.requests[0].json["storage_location"] == place
