"""AWS keys: static, from the chain or of an assumed role; renewed once for all callers."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from math import inf
from pathlib import Path

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.calls.deadline import deadline, remaining
from lance_ns_async.calls.observers import Call
from lance_ns_async.transports.aws import credentials
from lance_ns_async.transports.aws.credentials import AssumedCredentials, Keys, RoleSession, assumed_session
from tests.fakes.glue import FakeGlue
from tests.fakes.sockets import Script, http
from tests.support.errors import catch
from tests.support.glue import connected, described

ARN = "arn:aws:iam::123456789012:role/reader"
KEYS = ("access_key_id", "secret_access_key")
ENDED = '{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "Expiration": "2020-01-01T00:00:00Z"}'


@pytest.fixture
def server(shared: FakeGlue) -> FakeGlue:
    shared.reset()
    shared.switch(session_seconds=None)
    shared.add_database("", "db")
    shared.add_table("", "db", "t")
    return shared


async def at_once(ns: AsyncNamespace, callers: int = 32) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(described(ns, "db", "t"))


def signers(server: FakeGlue, operation: str = "GetTable") -> Sequence[str]:
    """Returns the key ids that signed the calls of an operation, in order, each once."""
    return list(dict.fromkeys(call.access_key_id for call in server.requests if call.operation == operation))


async def test_a_role_is_assumed_as_the_properties_say(server: FakeGlue) -> None:
    role = {
        "assume_role_arn": ARN,
        "assume_role_region": "eu-west-1",
        "assume_role_external_id": "external-1",
        "assume_role_session_name": "me@work",
        "assume_role_timeout_sec": "15m",
    }
    async with connected(server, **role) as ns:
        await described(ns, "db", "t")
    sts, glue = server.requests
    client = {"RoleArn": ARN, "RoleSessionName": "me@work", "ExternalId": "external-1", "DurationSeconds": "900"}
    assert client.items() <= sts.parameters.items()
    assert (sts.access_key_id, sts.region) == (server.properties["access_key_id"], "eu-west-1")
    assert (glue.access_key_id, glue.region) == (server.issued[0], server.region)
    assert "x-amz-security-token" in glue.headers


async def test_many_callers_assume_a_role_once_and_again_at_its_end(server: FakeGlue) -> None:
    async with connected(server, assume_role_arn=ARN) as ns:
        await at_once(ns)
        assert server.calls.count("AssumeRole") == 1 and server.calls.count("GetTable") == 32
        client = server.requests[0].parameters
        assert (client["RoleSessionName"], client["DurationSeconds"]) == ("lance-ns-async", "3600")
        assert "ExternalId" not in client and server.requests[0].region == server.region
        server.clear()
        server.expire()
        await at_once(ns)
        assert server.calls.count("AssumeRole") == 1
        server.clear()
        await at_once(ns)
        assert server.calls.count("AssumeRole") == 0 and signers(server) == [server.issued[1]]


@pytest.mark.parametrize("seconds", [900, 901, 1200])
async def test_the_shortest_sessions_are_used_for_most_of_their_life(server: FakeGlue, seconds: int) -> None:
    async with connected(server, assume_role_arn=ARN, assume_role_timeout_sec=str(seconds)) as ns:
        for _ in range(20):
            await described(ns, "db", "t")
    assert server.calls.count("AssumeRole") == 1


async def test_a_session_that_is_over_when_it_comes_is_no_endless_loop(server: FakeGlue) -> None:
    server.switch(session_seconds=-1)
    async with connected(server, assume_role_arn=ARN) as ns:
        await catch(err.UnauthenticatedError, described(ns, "db", "t"), "ExpiredTokenException")
    assert server.calls == ["AssumeRole", "GetTable"] * 2


async def test_role_is_not_assumed_anew_for_407_of_proxy(server: FakeGlue) -> None:
    async with Script(http(407, "")) as proxy, connected(server, assume_role_arn=ARN, endpoint=proxy.url) as ns:
        await catch(err.UnauthenticatedError, described(ns, "db", "t"), "407")
    assert server.calls == ["AssumeRole"] and len(proxy.requests) == 1


async def test_repetition_with_new_keys_is_second_attempt_of_one_call(server: FakeGlue) -> None:
    async with connected(server, assume_role_arn=ARN, max_retries="0") as ns:
        await described(ns, "db", "t")
        server.expire()
        calls: list[Call] = []
        with ns.observe(calls.append):
            await described(ns, "db", "t")
    assert [(call.operation, call.attempt, call.outcome) for call in calls] == [
        ("describe_table", 1, "ExpiredTokenException"),
        ("assume_role", 1, "ok"),
        ("describe_table", 2, "ok"),
    ]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        *(("AccessDenied", err.PermissionDeniedError), ("InvalidClientTokenId", err.UnauthenticatedError)),
        *(("SignatureDoesNotMatch", err.UnauthenticatedError), ("ValidationError", err.InvalidInputError)),
    ],
)
async def test_a_denied_role_is_reported_by_all_callers(server: FakeGlue, code: str, error: type[Exception]) -> None:
    server.fail(code, operation="AssumeRole", times=None)
    async with connected(server, assume_role_arn=ARN) as ns:
        outcomes = await asyncio.gather(*(described(ns, "db", "t") for _ in range(8)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {error} and server.calls == ["AssumeRole"]
    assert all("the catalog (assume_role: " in str(outcome) for outcome in outcomes)


async def test_sts_is_called_again_only_if_busy(server: FakeGlue) -> None:
    server.fail("Throttling", status=400, operation="AssumeRole", times=2)
    async with connected(server, assume_role_arn=ARN) as ns:
        await described(ns, "db", "t")
    assert server.calls == ["AssumeRole"] * 3 + ["GetTable"]


@pytest.mark.parametrize(("operation", "role"), [("GetTable", {}), ("AssumeRole", {"assume_role_arn": ARN})])
async def test_variables_are_found(
    server: FakeGlue, monkeypatch: pytest.MonkeyPatch, operation: str, role: dict[str, str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAVARIABLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with connected(server, *KEYS, **role) as ns:
        await at_once(ns, 4)
    assert signers(server, operation) == ["AKIAVARIABLE"]
    assert signers(server) == ([server.issued[0]] if role else ["AKIAVARIABLE"])


async def test_profiles_are_read_again_at_their_end(
    server: FakeGlue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_PROFILE", "dev")
    file.write_text("[dev]\naws_access_key_id=AKIAOLD\naws_secret_access_key=a\n")
    async with connected(server, *KEYS) as ns:
        await at_once(ns)
        server.expire("AKIAOLD")
        await catch(err.UnauthenticatedError, described(ns, "db", "t"), "ExpiredTokenException")
        file.write_text("[dev]\naws_access_key_id=AKIANEW\naws_secret_access_key=b\n")
        await at_once(ns)
        await at_once(ns)
    assert signers(server) == ["AKIAOLD", "AKIANEW"]


async def test_a_process_gives_keys_that_end(server: FakeGlue, tmp_path: Path) -> None:
    """Each run of the process returns the next key, which is valid for an hour."""
    count, program = tmp_path / "count", tmp_path / "keys"
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib\n"
        f"path = pathlib.Path({str(count)!r})\n"
        "number = path.stat().st_size if path.exists() else 0\n"
        "path.write_text('.' * (number + 1))\n"
        f"print(json.dumps({{'Version': 1, 'AccessKeyId': f'AKIA{{number}}', 'SecretAccessKey': 's', "
        f"'SessionToken': 't', 'Expiration': {until!r}}}))\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    async with connected(server, *KEYS) as ns:
        await at_once(ns)
        server.expire("AKIA0")
        await at_once(ns)
    assert signers(server) == ["AKIA0", "AKIA1"] and count.read_text() == ".."


@pytest.mark.parametrize(
    ("program", "text"),
    [
        *(("/no/such/program", "FileNotFoundError"), ("/bin/echo nonsense", "JSONDecodeError")),
        *(("/bin/echo {}", "Unsupported version"), ("/bin/false", "CredentialRetrievalError")),
        (f"/bin/echo '{ENDED}'", "expired"),
    ],
)
async def test_a_process_without_keys_is_reported(server: FakeGlue, tmp_path: Path, program: str, text: str) -> None:
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    async with connected(server, *KEYS) as ns:
        message = f"^Unauthenticated: the catalog .load_credentials: .*{text}"
        await catch(err.UnauthenticatedError, described(ns, "db", "t"), message)
    assert server.calls == []


async def test_a_pod_s_token_gives_keys(server: FakeGlue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("web-identity")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", ARN)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint)
    async with connected(server, *KEYS) as ns:
        await at_once(ns)
    assert server.calls.count("AssumeRoleWithWebIdentity") == 1 and len(signers(server)) == 1


async def test_a_container_gives_keys(server: FakeGlue, monkeypatch: pytest.MonkeyPatch) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    keys = {"AccessKeyId": "AKIACONTAINER", "SecretAccessKey": "s", "Token": "t", "Expiration": until}
    async with Script(http(body=json.dumps(keys))) as container:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{container.url}/keys")
        async with connected(server, *KEYS) as ns:
            await at_once(ns)
        assert len(container.requests) == 1
    assert signers(server) == ["AKIACONTAINER"]


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({}, "load_credentials: no AWS credentials; set access_key_id and secret_access_key, or AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": "AKIAVARIABLE"}, "PartialCredentialsError"),
    ],
)
async def test_missing_keys_are_reported_before_any_call(
    server: FakeGlue, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], text: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with connected(server, *KEYS) as ns:
        await catch(err.UnauthenticatedError, described(ns, "db", "t"), text)
    assert server.calls == []


class Clock:
    """The time, and sessions of a hundred seconds that STS issues or refuses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.fetches = 0
        self.failing = False
        self.left: list[float] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def __call__(self) -> float:
        return self.now

    async def fetch(self) -> RoleSession:
        self.fetches += 1
        self.left.append(remaining() or inf)
        key = f"key-{self.fetches}"
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.failing:
            raise err.ServiceUnavailableError("Service unavailable: the catalog (assume_role: down)")
        return RoleSession(Keys(key, "secret"), 100.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(credentials, "monotonic", clock)
    return clock


async def _key(credentials: AssumedCredentials) -> str:
    return (await credentials.current()).access_key


async def test_keys_are_renewed_before_they_end(clock: Clock) -> None:
    credentials = AssumedCredentials(clock.fetch)
    result = []
    for after in (0, 74, 1, 74, 1):
        clock.now += after
        result.append(await _key(credentials))
    assert result == ["key-1", "key-1", "key-2", "key-2", "key-3"]


async def test_others_go_on_with_the_old_keys_while_one_renews_them(clock: Clock) -> None:
    credentials = AssumedCredentials(clock.fetch)
    await credentials.current()
    clock.now += 80
    clock.gate.clear()
    renewing = asyncio.ensure_future(_key(credentials))
    await asyncio.sleep(0)
    assert await _key(credentials) == "key-1"
    clock.gate.set()
    assert await renewing == "key-2" and await _key(credentials) == "key-2" and clock.fetches == 2
    refused = await credentials.current()
    others = await asyncio.gather(*(credentials.replace(refused) for _ in range(8)))
    assert {keys.access_key for keys in others if keys is not None} == {"key-3"} and clock.fetches == 3


async def test_an_early_renewal_may_not_take_the_time_of_the_call_that_makes_it(clock: Clock) -> None:
    credentials = AssumedCredentials(clock.fetch)
    with deadline(100):
        for after in (0, 80, 100):
            clock.now += after
            await credentials.current()
    first, early, late = clock.left
    assert first > 90 and late > 90 and 0 < early <= 5


async def test_keys_that_cannot_be_renewed_serve_until_they_are_about_to_end(clock: Clock) -> None:
    credentials = AssumedCredentials(clock.fetch)
    await credentials.current()
    clock.failing = True
    clock.now += 80
    assert await _key(credentials) == "key-1" and clock.fetches == 2
    assert await _key(credentials) == "key-1" and clock.fetches == 2, "a pause before the next try"
    clock.now += 11
    outcomes = await asyncio.gather(*(credentials.current() for _ in range(8)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {err.ServiceUnavailableError} and clock.fetches == 3
    clock.failing = False
    assert await _key(credentials) == "key-4"


def test_a_session_lifetime_follows_the_server_clock() -> None:
    server = datetime(2031, 1, 1, 12, tzinfo=UTC)
    keys = {"AccessKeyId": "a", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": server + timedelta(hours=1)}
    answer = {"Credentials": keys, "ResponseMetadata": {"HTTPHeaders": {"date": format_datetime(server, usegmt=True)}}}
    session = assumed_session(answer)
    assert session.lifetime == 3600.0 and session.keys == Keys("a", "s", "t")
    assert "'s'" not in repr(session) and "'t'" not in repr(session)
    assert assumed_session({**answer, "ResponseMetadata": {"HTTPHeaders": {}}}).lifetime > 3600
