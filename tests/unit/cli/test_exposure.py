"""Files with secrets that other users can read: reported once on standard error, and still used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lance_ns_async.cli.catalog import choose
from lance_ns_async.cli.secrets import secrets_among, warn_if_exposed

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


@pytest.mark.parametrize(("mode", "can"), [(0o644, "read"), (0o640, "read"), (0o604, "read"), (0o666, "change")])
def test_a_profile_with_secrets_is_to_be_the_owners_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int, can: str
) -> None:
    config = file(tmp_path, PROFILES, mode)
    assert choose(None, None, "prod", config, {}) is not None
    assert capsys.readouterr().err == (
        f"lance-ns: warning: {config} holds auth_token of profile 'prod', and others on this machine can {can} it "
        f"(mode {mode:04o}): chmod 600 {config}\n"
    )


@pytest.mark.parametrize(("profile", "mode"), [("prod", 0o600), ("prod", 0o400), ("open", 0o644)])
def test_nothing_is_said_where_nothing_is_shown_to_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], profile: str, mode: int
) -> None:
    assert choose(None, None, profile, file(tmp_path, PROFILES, mode), {}) is not None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("key", "warned"),
    [
        ("auth_token", True),
        ("header.x-api-key", True),
        ("subject-token", True),
        ("urn:ietf:params:oauth:token-type:jwt", True),
        ("ca_bundle", False),
    ],
)
def test_a_property_from_a_file_is_looked_at_where_it_is_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, warned: bool
) -> None:
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
        *("auth_command", "credential_command", "rest_secret_access_key_keyring"),
        *("endpoint", "root", "ca_bundle", "client_cert", "client_key", "credentials_operation", "vend_credentials"),
        *("storage.region", "access_key_id", "storage.aws_access_key_id", "scope", "oauth2_server_uri", "user"),
    ]
    assert secrets_among([*secret, *public]) == secret
