"""The command that serves a catalog: its output, access control, and end."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import pytest

from lance_ns_async.cli.catalog import choose
from lance_ns_async.cli.errors import Code
from lance_ns_async.cli.secrets import secrets_among, warn_if_exposed
from lance_ns_async.gateway.access import hash_of
from tests.fakes.certificates import Certificates
from tests.support.budget import with_usual
from tests.support.commands import Run
from tests.support.gateway import serve

TOKEN = "a-token-of-our-own"
LIST = "/v1/namespace/$/list"


@pytest.fixture(autouse=True)
def one_catalog(bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provides an environment with one catalog and no token."""
    monkeypatch.setenv("LANCE_NS_IMPL", "dir")
    monkeypatch.setenv("LANCE_NS_PROPERTY_ROOT", str(tmp_path))


def get(url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None = None, *, data: object = None) -> Any:
    """Returns the JSON of a response; sends data as JSON, with POST."""
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=tls))
    body = None if data is None else json.dumps(data).encode()
    with opener.open(Request(url, body, dict(headers))) as answer:
        return json.load(answer)


@pytest.mark.parametrize("number", with_usual([signal.SIGINT, signal.SIGTERM], signal.SIGTERM))
def test_it_serves_until_it_is_reported_to_end(number: signal.Signals) -> None:
    with serve() as (server, url):
        assert url.startswith("http://127.0.0.1:")
        name, token = server.stdout.readline().strip().split(": ")
        assert get(url + LIST, {name: token}) == {"namespaces": []}
        server.send_signal(number)
        out, err = server.communicate()
        assert (server.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("grace", with_usual(["0", "1"], "1"))
def test_a_request_that_is_cut_off_is_reported(grace: str) -> None:
    with serve("--grace", grace) as (server, url):
        header = server.stdout.readline().strip()
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
            head = "POST /v1/table/t/describe HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue"
            client.sendall(f"{head}\r\n{header}\r\n\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 100 ")
            server.terminate()
            _, err = server.communicate()
        message = f"ended after the grace period of {grace} s with 1 request in progress; their effect is unknown"
        assert (server.returncode, err) == (1, f"lance-ns: {message}\n")


def test_the_process_ends_after_its_grace_whatever_its_threads_do() -> None:
    """A storage that accepts connections and never responds keeps a thread of Lance busy, which cannot be stopped."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        storage = {
            "ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "ALLOW_HTTP": "true",
            "REGION": "eu-central-1",
        }
        storage |= {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LANCE_NS_")}
        environment |= {f"LANCE_NS_PROPERTY_STORAGE__AWS_{name}": value for name, value in storage.items()}
        environment |= {"LANCE_NS_IMPL": "dir", "LANCE_NS_PROPERTY_ROOT": "s3://bucket/lake", "LANCE_NS_TOKEN": "token"}
        with serve("--grace", "0.1", environment=environment) as (server, url):
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
                head = "POST /v1/table/t/count_rows HTTP/1.1\r\nHost: localhost\r\nx-lance-token: token\r\n"
                client.sendall(f"{head}Content-Length: 0\r\n\r\n".encode())
                connection, _ = silent.accept()
                with connection:
                    server.send_signal(signal.SIGTERM)
                    _, err = server.communicate()
        assert server.returncode == 1
        assert "ended after the grace period of 0.1 s with" in err and "secret" not in err


def test_a_token_from_the_environment_and_the_warning_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_NS_TOKEN", TOKEN)
    with serve("--host", "0.0.0.0") as (server, url):
        assert get(url + LIST, {"Authorization": f"Bearer {TOKEN}"}) == {"namespaces": []}
        server.terminate()
        out, err = server.communicate()
        # The user who configured the token knows it.
        assert out == "" and "without --tls-cert" in err and TOKEN not in err


def test_it_speaks_tls_with_a_token_from_a_file(tmp_path: Path) -> None:
    certificates = Certificates.made(tmp_path)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "token").chmod(0o600)
    files = ("--token-file", str(tmp_path / "token"), "--tls-cert", certificates.client)
    with serve(*files) as (server, url):
        assert url.startswith("https://")
        # Its certificate is one for clients, which is enough for a handshake.
        tls = ssl.create_default_context(cafile=certificates.ca_bundle)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        assert get(url + LIST, {"x-lance-token": TOKEN}, tls) == {"namespaces": []}
        server.terminate()
        assert server.communicate() == ("", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *((it, "LANCE_NS_TOKEN") for it in (("--host", "0.0.0.0"), ("--host", "catalog.example.com"))),
        (("--token-file", "missing"), "missing: No such file"),
        (("--token-file", "blank"), "blank: the file is empty"),
        (("--token-file", "binary"), "binary: it is not UTF-8"),
        *((("--tls-key", "key.pem"), "--tls-cert"), (("--tls-cert", "missing"), "missing: No such file")),
        *((("--tls-cert", "blank"), "--tls-cert blank"), (("--delimiter", ""), "delimiter")),
        (("--tokens", "missing"), "tokens 'missing': No such file"),
        (("--tokens", "binary"), "not a TOML file"),
        (
            ("--oidc-issuer", "https://a"),
            "--oidc-issuer: requires --audience NAME and --tokens FILE with [[oidc]] rules",
        ),
        (("--audience", "a"), "--audience: requires --oidc-issuer URL"),
        (("--identity", "weird"), "Invalid value for '--identity': 'weird' is not one of"),
        (
            ("--oidc-issuer", "http://a", "--audience", "a", "--tokens", "blank"),
            "--oidc-issuer: must be an https:// URL",
        ),
        *((("--identity", it), f"--identity {it}: requires --oidc-issuer") for it in ("forward", "exchange")),
        (("--oidc-client-id", "a"), "--oidc-client-id: requires --oidc-issuer URL and --ui"),
        (("--oidc-scope", "a"), "--oidc-scope: requires --oidc-client-id ID"),
        (("--public-url", "lake"), "--public-url 'lake': must be scheme and host"),
        (
            ("--identity", "forward", "--oidc-issuer", "http://a", "--audience", "a", "--tokens", "blank"),
            "--identity forward: dir takes no bearer tokens; use --identity own",
        ),
        (("--audit-log", "no/where"), "--audit-log no/where: No such file"),
    ],
)
def test_unservable_catalogs_are_reported(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blank").write_text(" \n")
    (tmp_path / "binary").write_bytes(b"\xff")
    done = Run("serve", *options)
    assert done.code == Code.USAGE and message in done.err and done.out == ""


def test_without_descriptors_new_connections_are_closed_and_the_log_is_small(tmp_path: Path) -> None:
    """Waiting connections would be accepted for ever, and each attempt would be logged."""
    with serve("--impl", "dir", "-p", f"root={tmp_path}") as (server, url):
        place = urlsplit(url)
        used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 5, used + 5))
        held = []
        for _ in range(300):
            connection = socket.create_connection((str(place.hostname), place.port or 0))
            connection.settimeout(30)
            held.append(connection)
        for connection in held[10:]:
            with suppress(ConnectionError):
                assert connection.recv(1) == b""
        for connection in held:
            connection.close()
        while True:
            with socket.create_connection((str(place.hostname), place.port or 0)) as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                with suppress(ConnectionError):
                    if b" 200 " in connection.recv(100):
                        break
        server.terminate()
        _, log = server.communicate()
    assert log.count("refused") == 1 and len(log) < 2_000, log


def test_each_client_has_its_rights_and_each_request_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def token(*arguments: str) -> Any:
        done = Run("token", *arguments, "--tokens", "tokens.toml")
        assert done.code == Code.OK, done.err
        return done.out.strip()

    reader = token("add", "ann", "--only", "sales.**")
    admin = token("add", "bob", "--rights", "admin", "--credentials")
    assert Path("tokens.toml").stat().st_mode & 0o777 == 0o600
    assert reader not in Path("tokens.toml").read_text() and reader.startswith("lns_")
    rows = json.loads(token("list", "--json"))
    assert [(it["name"], it["rights"], it["only"], it["credentials"]) for it in rows] == [
        ("ann", "read", "sales.**", False),
        ("bob", "admin", "", True),
    ]
    files = ("--tokens", "tokens.toml", "--audit-log", "audit.jsonl", "--access-log")
    with serve("--impl", "dir", "-p", "root=lake", *files) as (server, url):
        for name in ("sales", "other"):
            get(f"{url}/v1/namespace/{name}/create", {"x-lance-token": admin}, data={})
        assert get(url + LIST, {"x-lance-token": admin}) == {"namespaces": ["other", "sales"]}
        assert get(url + LIST, {"x-lance-token": reader}) == {"namespaces": ["sales"]}
        with pytest.raises(HTTPError, match="403") as refused:
            get(f"{url}/v1/namespace/sales/drop", {"x-lance-token": reader}, data={})
        refused.value.close()
        server.terminate()
        out, err = server.communicate()
    lines = [json.loads(line) for line in Path("audit.jsonl").read_text().splitlines()]
    assert [(it["principal"], it["operation"], it["status"]) for it in lines] == [
        *(("bob", "create_namespace", 200), ("bob", "create_namespace", 200), ("bob", "list_namespaces", 200)),
        ("ann", "list_namespaces", 200),
        ("ann", "drop_namespace", 403),
    ]
    # The owner has no token here, so that none is printed.
    assert out == "" and err.count("\n") == 5 and "ann drop_namespace sales 403" in err
    assert reader not in err and admin not in err
    rotated = token("rotate", "ann")
    assert rotated != reader and json.loads(token("list", "--json"))[0]["tokens"] == 2
    assert token("rotate", "ann", "--finish") == "" and json.loads(token("list", "--json"))[0]["tokens"] == 1
    assert hash_of(rotated) in Path("tokens.toml").read_text()
    token("rotate", "ann", "--at-once")
    assert hash_of(rotated) not in Path("tokens.toml").read_text()
    assert json.loads(token("list", "--json"))[0]["tokens"] == 1
    assert "bob" in token("remove", "bob") and [it["name"] for it in json.loads(token("list", "--json"))] == ["ann"]
    # Rules stay as they are.
    rule = '\n[[oidc]]\nclaims = { realm_access.roles = "hr" } # ours\nrights = "write"\nonly = ["hr.**"]\n'
    with Path("tokens.toml").open("a") as file:
        file.write(rule * 2)
    token("rotate", "ann")
    assert rule * 2 in Path("tokens.toml").read_text()
    rows = json.loads(token("list", "--json"))[1:]
    assert [(it["name"], it["rights"], it["only"], it["tokens"]) for it in rows] == [("oidc", "write", "hr.**", 0)] * 2
    for command in ("add", "rotate", "remove"):
        assert "oidc" in Run("token", command, "oidc", "--tokens", "tokens.toml").err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("failure", ["refuse", "continue"])
def test_an_audit_log_on_a_full_disk_recovers(failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_NS_TOKEN", TOKEN)
    audit = tmp_path / "audit.jsonl"
    audit.symlink_to("/dev/full")
    with serve(*(("--audit-log", str(audit), "--audit-failure", failure))) as (server, url):
        headers = {"x-lance-token": TOKEN}
        create = f"{url}/v1/namespace/{{}}/create"
        assert [get(url + LIST, headers) for _ in range(2)] == [{"namespaces": []}] * 2
        if failure == "refuse":
            with pytest.raises(HTTPError, match="503") as refused:
                get(create.format("a"), headers, data={})
            refused.value.close()
        else:
            get(create.format("a"), headers, data={})
        assert get(url + LIST, headers) == {"namespaces": [] if failure == "refuse" else ["a"]}
        with build_opener(ProxyHandler({})).open(Request(f"{url}/metrics", None, headers)) as answer:
            assert b"audit_lines_lost 4\n" in answer.read()
        audit.unlink()
        get(create.format("b"), headers, data={})
        server.terminate()
        _, err = server.communicate()
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    first = 503 if failure == "refuse" else 200
    assert [it["status"] for it in lines] == [200, 200, first, 200, 200, 200]
    assert err.count("cannot be written: No space left on device") == 1 and err.count("is written again") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "a b"), "name 'a b': use letters"),
        *((it, "an empty name") for it in (("add", "ann", "--only", "a..b"), ("add", "ann", "--only", ""))),
        (("rotate", "old", "--at-once", "--finish"), "use one of them"),
        (("add", "old"), "old exists in tokens.toml"),
        (("rotate", "odl"), "odl: not in tokens.toml; did you mean old?"),
        (("remove", "nobody"), "nobody: not in tokens.toml"),
        (("list", "--tokens", "missing.toml"), "--tokens missing.toml: No such file"),
        (("add", "new", "--tokens", "broken.toml"), "not a TOML file"),
    ],
)
def test_no_token_changes_nothing(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Run("token", "add", "old", "--tokens", "tokens.toml").code == Code.OK
    Path("broken.toml").write_text("[a")
    before = Path("tokens.toml").read_bytes()
    done = Run("token", arguments[0], "--tokens", "tokens.toml", *arguments[1:])
    assert done.code == Code.USAGE and message in done.err and done.out == ""
    assert Path("tokens.toml").read_bytes() == before and Path("broken.toml").read_text() == "[a"


def test_several_catalogs_are_served_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    profiles = "".join(f'[profiles.{name}]\nimpl = "dir"\nroot = "{tmp_path / name}"\n' for name in ("one", "two"))
    Path("profiles.toml").write_text(profiles)
    mounts = ("--config", "profiles.toml", "--mount", "a=one", "--mount", "b=two")
    with serve(*mounts) as (server, url):
        name, token = server.stdout.readline().strip().split(": ")
        assert get(url + LIST, {name: token}) == {"namespaces": ["a", "b"]}
        get(f"{url}/v1/namespace/b$sales/create", {name: token}, data={})
        assert get(f"{url}/v1/namespace/b/list", {name: token}) == {"namespaces": ["sales"]}
    assert (tmp_path / "two" / "__manifest").is_dir() and not (tmp_path / "one" / "__manifest").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--mount", "a=one", "-i", "dir"), "--mount: names profiles"),
        (("--mount", "a=one", "--mount", "a=two"), "there is a mount 'a' already"),
        (("--mount", "a=gone"), "gone"),
        (("--mount", "a"), "--mount: must be NAME=PROFILE"),
        (("--mount", "a$b=one"), "mount 'a$b'"),
    ],
)
def test_bad_mounts_are_reported(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("profiles.toml").write_text('[profiles.one]\nimpl = "dir"\nroot = "one"\n[profiles.two]\nimpl = "dir"\n')
    for name in ("LANCE_NS_IMPL", "LANCE_NS_PROPERTY_ROOT"):
        monkeypatch.delenv(name, raising=False)
    done = Run("serve", "--port", "0", "--config", "profiles.toml", *options)
    assert done.code == Code.USAGE and message in done.err and done.out == ""


pytestmark = pytest.mark.skipif(os.name != "posix", reason="files have no such modes here")
PROFILES = """
[profiles.prod]
impl = "iceberg"
endpoint = "http://127.0.0.1:1"
auth_token = "hush-hush"

[profiles.open]
impl = "iceberg"
endpoint = "http://127.0.0.1:1"
ca_bundle = "ca.pem"
client_key = "key.pem"

[profiles.open.storage]
region = "eu-west-1"
"""


def file(tmp_path: Path, content: str, mode: int) -> Path:
    made = tmp_path / "file"
    made.write_text(content)
    made.chmod(mode)
    return made


@pytest.mark.parametrize(
    ("profile", "mode", "can"),
    [
        *(("prod", 0o644, "read"), ("prod", 0o640, "read"), ("prod", 0o604, "read"), ("prod", 0o666, "change")),
        *(("prod", 0o600, ""), ("prod", 0o400, ""), ("open", 0o644, "")),
    ],
)
def test_a_secret_profile_is_the_owners(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], profile: str, mode: int, can: str
) -> None:
    config = file(tmp_path, PROFILES, mode)
    assert choose(None, None, profile, config, {}) is not None
    warning = (
        f"lance-ns: warning: {config} holds auth_token of profile 'prod', and others on this machine can {can} it "
        f"(mode {mode:04o}): chmod 600 {config}\n"
    )
    assert capsys.readouterr().err == (warning if can else "")


@pytest.mark.parametrize(
    ("key", "warned"),
    [
        *(("auth_token", True), ("header.x-api-key", True), ("subject-token", True)),
        *(("urn:ietf:params:oauth:token-type:jwt", True), ("ca_bundle", False)),
    ],
)
def test_secret_properties_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, warned: bool) -> None:
    content = file(tmp_path, "hush-hush\n", 0o644)
    chosen = choose("iceberg", [f"{key}=@{content}"], None, None, {})
    assert chosen is not None and chosen.properties[key] == "hush-hush"
    shown = capsys.readouterr().err
    assert (f"holds {key}, and others on this machine can read it" in shown) is warned and "hush" not in shown


def test_pipes_and_files_that_are_gone_are_nobodys_business(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe", 0o666)
    warn_if_exposed(tmp_path / "pipe", "a token")
    warn_if_exposed(tmp_path / "gone", "a token")
    assert capsys.readouterr().err == ""


def test_secret_properties_are_known_by_their_names() -> None:
    secret = [
        *("auth_token", "auth-token", "iceberg.auth_token", "credential", "password", "proxy", "header.authorization"),
        *("secret_access_key", "session_token", "assume_role_external_id", "storage.aws_secret_access_key"),
        *("storage.azure_storage_sas_token", "storage.google_service_account_key", "storage.account_key"),
    ]
    public = [
        *("auth_token_file", "client_secret_file", "subject_token_file"),
        *("auth_command", "credential_command", "rest_secret_access_key_keyring"),
        *("endpoint", "root", "ca_bundle", "client_cert", "client_key", "credentials_operation", "vend_credentials"),
        *("storage.region", "access_key_id", "storage.aws_access_key_id", "scope", "oauth2_server_uri", "user"),
    ]
    assert secrets_among([*secret, *public]) == secret
