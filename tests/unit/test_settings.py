"""Conversion of properties to settings: all spellings, all errors at once, and no secret in any text."""

from __future__ import annotations

import string
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncHTTPTransport
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError
from pydantic import SecretStr, ValidationError

from lance_ns_async import AsyncNamespace, DirNamespace
from lance_ns_async.backends.directory.backend import DirSettings
from lance_ns_async.backends.iceberg.backend import IcebergSettings
from lance_ns_async.calls.policy import Policy
from lance_ns_async.settings import HttpSettings, Settings

pytestmark = pytest.mark.floors
URL = "http://127.0.0.1:8181"
SECRET = "hush-hush-4711"
DURATIONS = [
    *(("10", 10.0), ("10s", 10.0), ("0.5s", 0.5), ("500ms", 0.5), ("2m", 120.0), ("1.5h", 5400.0), (" 3 s ", 3.0)),
    *(("007", 7.0), ("0.25", 0.25)),
]


def parsed(properties: Mapping[str, str]) -> IcebergSettings:
    return IcebergSettings.parse({"endpoint": URL, **properties})


def refused(properties: Mapping[str, str], settings: type[Settings] = IcebergSettings) -> str:
    with pytest.raises(InvalidInputError) as raised:
        settings.parse(properties)
    return str(raised.value)


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_a_bare_number_means_seconds_or_milliseconds(text: str, seconds: float) -> None:
    bare = text.strip().replace(".", "").isdigit()
    assert parsed({"operation_timeout": text}).operation_timeout == pytest.approx(seconds)
    assert parsed({"read_timeout": text}).read_timeout == pytest.approx(seconds / 1000 if bare else seconds)


@pytest.mark.parametrize(("text", "seconds"), [("1500", 1.5), ("0.5", 0.0005)])
@pytest.mark.parametrize("key", ["read_timeout_millis", "iceberg.read-timeout-millis"])
def test_a_time_may_say_that_it_is_in_milliseconds(key: str, text: str, seconds: float) -> None:
    assert parsed({key: text}).read_timeout == pytest.approx(seconds)
    with pytest.raises(InvalidInputError, match="given twice with different values"):
        parsed({key: text, "read_timeout": "7s"})
    assert "operation_timeout_millis: unknown" in refused({"endpoint": URL, "operation_timeout_millis": "1"})


@given(
    number=st.integers(1, 10**6) | st.decimals("0.001", "1000", places=3),
    unit=st.sampled_from([("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]),
    gaps=st.tuples(*[st.sampled_from(["", " ", "  ", "\t"])] * 3),
)
def test_every_spelling_of_a_duration_is_read(number: object, unit: tuple[str, float], gaps: tuple[str, ...]) -> None:
    before, between, after = gaps
    text = f"{before}{number}{between}{unit[0]}{after}"
    expected = float(str(number)) * unit[1]
    assert parsed({"attempt_timeout": text}).attempt_timeout == pytest.approx(expected)
    assert parsed({"connect_timeout": text}).connect_timeout == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    ["", " ", "s", "ms", "soon", "-1s", "-1", "+1", "1e3", ".5", "1.", "10S", "3 days", "nan", "\uff11\uff10", "1,5s"],
)
def test_other_words_are_no_duration(text: str) -> None:
    assert refused({"endpoint": URL, "attempt_timeout": text}) == (
        "iceberg properties: attempt_timeout: not a duration; write e.g. '500ms', '10s' or '2m' (a bare number means s)"
    )
    assert "(a bare number means ms)" in refused({"endpoint": URL, "read_timeout": text})


def test_the_policy_is_what_the_properties_say() -> None:
    assert parsed({}).policy() == Policy(attempt_timeout=40.0)
    assert DirSettings.parse({"root": "/data"}).policy() == Policy(max_in_flight=32)
    times = {"attempt_timeout": "3s", "operation_timeout": "1m", "backoff_initial": "1ms", "backoff_max": "0"}
    policy = parsed({"max-retries": "0", "max.in.flight": "7", **times, "read_timeout": "1"}).policy()
    assert (policy.max_retries, policy.max_in_flight, policy.attempt_timeout) == (0, 7, 3.0)
    assert (policy.operation_timeout, policy.backoff_initial, policy.backoff_max) == (60.0, 0.001, 0.0)
    assert parsed({"connect_timeout": "2s", "read_timeout": "500"}).policy().attempt_timeout == 2.5


@given(
    st.sampled_from([name for name in IcebergSettings.model_fields if name not in IcebergSettings.prefixes]),
    st.booleans(),
    st.data(),
)
def test_spellings_of_a_key(name: str, prefixed: bool, data: st.DataObject) -> None:
    parts = name.split("_")
    seams = [data.draw(st.sampled_from("_-.")) for _ in parts[1:]]
    key = parts[0] + "".join(seam + part for seam, part in zip(seams, parts[1:], strict=True))
    texts: dict[str, Any] = {
        **dict.fromkeys(("endpoint", "proxy", "oauth2_server_uri", "sts_endpoint"), URL),
        **dict.fromkeys(("gc_enabled", "unique_locations", "allow_aliases"), "true"),
        **dict.fromkeys(("vend_credentials", "rest_sigv4_enabled"), "true"),
        **dict.fromkeys(("subject_token_type", "requested_token_type"), "jwt"),
        **{"managed_by": "impl", "adaptive": "false", "token": lambda: "a token", "transport": AsyncHTTPTransport},
        "assume_role_arn": "arn:aws:iam::123456789012:role/reader",
    }
    text = texts.get(name, "1025")
    usual = {"endpoint": URL}
    if name.startswith(("rest_", "assume_role", "sts_")):
        # The others require the first one, and a key requires its secret.
        usual |= {"rest_sigv4_enabled": "true", "rest_access_key_id": "key", "rest_secret_access_key": "secret"}
    if name in ("audience", "resource", "subject_token_type", "requested_token_type"):
        usual["subject_token"] = "token"
    if name.startswith("assume_role_"):
        usual["assume_role_arn"] = texts["assume_role_arn"]
    usual |= {"auth_command_timeout": {"auth_command": "program"}, "client_id": {"client_secret_file": "f"}}.get(
        name, {}
    )
    usual.pop(name, None)
    assert name in IcebergSettings.parse({**usual, f"iceberg.{key}" if prefixed else key: text}).model_fields_set


@given(st.dictionaries(st.text(string.ascii_letters + string.digits + "._-", min_size=1), st.text()))
def test_storage_properties_are_handed_on_as_they_are(options: dict[str, str]) -> None:
    for prefix in ("storage.", "iceberg.storage."):
        settings = parsed({f"{prefix}{key}": value for key, value in options.items()})
        assert settings.storage_options() == (options or None)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("max_retires", "max_retires: unknown, did you mean max_retries?"),
        ("iceberg.endpont", "iceberg.endpont: unknown, did you mean endpoint?"),
        ("Auth-Token", "Auth-Token: unknown, did you mean auth_token?"),
        ("storage", "storage: unknown, did you mean storage.*?"),
        ("storage.", "storage.: unknown, did you mean storage.*?"),
        ("headers.X-A", "headers.X-A: unknown"),
        ("glue.endpoint", "glue.endpoint: unknown"),
        ("", ": unknown, known are endpoint, "),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known(key: str, hint: str) -> None:
    assert hint in refused({"endpoint": URL, key: "x"})


def test_all_problems_are_reported_together() -> None:
    numbers = {"iceberg.max_retires": "1", "max_retries": "many", "max-in-flight": "0", "max_response_bytes": "12"}
    message = refused({**numbers, "read_timeout": "soon", "backoff_max": "-1"})
    assert message.startswith("iceberg properties: iceberg.max_retires: unknown, did you mean max_retries?; ")
    for endpoint in ("http://host?query", "http://host/path?query=1"):
        assert "endpoint: it has a query, so no path can be appended" in refused({"endpoint": endpoint})
    for name in ("max_retries: ", "max-in-flight: ", "read_timeout: ", "backoff_max: ", "max_response_bytes: "):
        assert f"; {name}" in message
    assert "endpoint: Field required" in message and "\n" not in message
    names = ["attempt_timeout", "operation_timeout", "connect_timeout", "read_timeout"]
    message = refused({"endpoint": URL, **dict.fromkeys(names, "0")})
    assert all(f"{name}: Input should be greater than 0" in message for name in names)


def test_a_key_given_twice_must_say_the_same() -> None:
    assert parsed({"iceberg.endpoint": URL, "max_retries": "2", "max-retries": "2"}).max_retries == 2
    message = refused({"endpoint": URL, "auth_token": SECRET, "iceberg.auth-token": "other"})
    assert message == "iceberg properties: iceberg.auth-token: given twice with different values, also as auth_token"


@pytest.mark.parametrize(
    "text",
    [
        *("", "localhost:8181", "ftp://host", "http://", "https:///v1", "http://a host", "//host"),
        *("http://host:port", "http://host:65536", "http://[::1", "http://host/path#part", "http://host\n"),
    ],
)
def test_an_endpoint_is_a_url(text: str) -> None:
    assert "endpoint: not a URL; write e.g. https://" in refused({"endpoint": text})
    assert "oauth2_server_uri: not a URL; write e.g. https://" in refused({"endpoint": URL, "oauth2_server_uri": text})
    assert "proxy: not a URL; write e.g. http://" in refused({"endpoint": URL, "proxy": text})


@pytest.mark.parametrize("text", ["http://[::1]:8181", "https://a.b-c_d.e/x/y/", "http://é.example", "http://h:1/%2F"])
def test_urls_are_kept_as_they_are_written(text: str) -> None:
    settings = IcebergSettings.parse({"endpoint": text, "oauth2_server_uri": f"{text}/token?tenant=1"})
    assert (settings.endpoint, settings.oauth2_server_uri) == (text, f"{text}/token?tenant=1")


@pytest.mark.parametrize("key", ["endpoint", "oauth2_server_uri"])
def test_no_password_is_taken_where_it_would_be_shown(key: str) -> None:
    message = refused({"endpoint": URL, key: f"http://user:{SECRET}@127.0.0.1"})
    assert f"{key}: it contains a user or a password" in message and SECRET not in message


@pytest.mark.parametrize("text", ["a\nb", "a\r\nX-Other: b", "a\0", "é", "\x7f", "token\n"])
def test_what_no_header_can_hold_is_refused(text: str) -> None:
    for key in ("auth_token", "header.X-A"):
        assert f"{key}: a header cannot contain it" in refused({"endpoint": URL, key: text})
    for name in ("X A", "X:", "é", "X\n", "(x)"):
        assert "no name of a header" in refused({"endpoint": URL, f"header.{name}": "x"})


@pytest.mark.parametrize(
    ("credential", "client"),
    [
        *(("id:secret", ("id", "secret")), ("secret", ("", "secret")), ("id:se:cr:et", ("id", "se:cr:et"))),
        (":s", ("", "s")),
    ],
)
def test_a_credential_is_an_id_and_a_secret(credential: str, client: tuple[str, str]) -> None:
    settings = parsed({"credential": credential})
    assert settings.client() == client and client[1] not in settings.identity()


def test_a_token_is_sent_with_one_scheme() -> None:
    assert parsed({"auth_token": "Bearer  x"}).auth_token == SecretStr("x")


@pytest.mark.parametrize("value", [5, None, ["/data"]])
def test_a_value_is_a_string(value: Any) -> None:
    assert refused({"root": value}, DirSettings) == "dir properties: root: Input should be a valid string"


SECRET_KEYS = """
    auth_token auth_command credential subject_token storage.aws_secret_access_key header.Authorization
""".split()


@pytest.mark.parametrize("key", [*SECRET_KEYS, "proxy"])
def test_no_secret_is_shown(key: str) -> None:
    settings = parsed({key: f"http://user:{SECRET}@127.0.0.1:3128" if key == "proxy" else SECRET})
    for shown in (repr(settings), str(settings), settings.identity(), settings.model_dump_json()):
        assert SECRET not in shown


@given(
    st.dictionaries(
        st.sampled_from([*IcebergSettings.model_fields, *SECRET_KEYS, "iceberg.auth-token", "max.retires"]),
        st.just(SECRET),
        min_size=1,
    )
)
def test_errors_of_properties_contain_no_values(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError) as raised:
        IcebergSettings.parse({**properties, "max_retries": SECRET})
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    error: BaseException | None = raised.value
    while error is not None:
        assert not isinstance(error, ValidationError)
        assert SECRET not in str(error) and SECRET not in repr(error)
        error = error.__cause__ or error.__context__


def test_http_settings_tell_the_catalog_by_its_endpoint() -> None:
    class PlainSettings(HttpSettings):
        backend = "plain"

    assert PlainSettings.parse({"endpoint": URL, "auth_token": SECRET}).identity() == URL
    assert parsed({"warehouse": "w", "credential": f"id:{SECRET}"}).identity() == f"{URL}|w|id"


def test_a_path_counts_as_its_text(tmp_path: Path) -> None:
    for ns in (AsyncNamespace.connect("dir", {"root": tmp_path}), DirNamespace(root=tmp_path)):
        assert ns.namespace_id() == AsyncNamespace.connect("dir", {"root": str(tmp_path)}).namespace_id()
