"""Merging of storage options in all spellings that Lance reads."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lance_ns_async.storage.options import merge_options

pytestmark = pytest.mark.environment


AWS = ("access_key_id", "secret_access_key", "session_token", "token", "skip_signature", "role_arn")
GOOGLE = ("service_account", "service_account_key", "application_credentials", "bearer_token", "storage_token")
AZURE = ("account_key", "access_key", "master_key", "sas_key", "sas_token", "token", "client_id", "client_secret")
KEYS = [
    *(f"{prefix}{key}" for prefix in ("", "aws_") for key in AWS),
    *(f"google_{key}" for key in GOOGLE),
    *(f"{prefix}{key}" for prefix in ("", "azure_", "azure_storage_") for key in AZURE),
    "oss_security_token",
    "expires_at_millis",
]
STORAGE = {"region": "eu", "aws_endpoint": "e", "google_base_url": "b", "azure_storage_account_name": "n", "k": "v"}


@pytest.mark.parametrize(
    "vended",
    [
        {"aws_access_key_id": "new", "aws_secret_access_key": "new"},
        {"Access_Key_Id": "new", "SECRET_ACCESS_KEY": "new"},
        {"google_storage_token": "new"},
        {"azure_storage_sas_token": "new"},
        {"sas_key": "new"},
    ],
    ids=lambda vended: next(iter(vended)),
)
def test_credentials_replace_others_as_a_whole(vended: Mapping[str, str]) -> None:
    own = dict.fromkeys((*KEYS, *map(str.upper, KEYS)), "old")
    assert merge_options({**own, **STORAGE}, vended) == {**STORAGE, **vended}


@pytest.mark.parametrize(
    ("own", "others", "merged"),
    [
        ({"Region": "r", "k": "v"}, {"aws_region": "n"}, {"k": "v"}),
        ({"aws_region": "r"}, {"REGION": "n"}, {}),
        ({"aws_endpoint_url_s3": "e", "ENDPOINT_URL": "e"}, {"aws_endpoint": "n"}, {}),
        ({"google_bucket_name": "b"}, {"aws_bucket": "n"}, {"google_bucket_name": "b"}),
        ({"account_name": "a", "sas_token": "s"}, {"azure_storage_account_name": "n"}, {"sas_token": "s"}),
        ({"access_key_id": "own"}, {"client_id": "a property", "region": "r"}, {"access_key_id": "own"}),
        ({"k": "v"}, {}, {"k": "v"}),
        ({"k": "v"}, None, {"k": "v"}),
        (None, {"k": "v"}, {}),
    ],
)
def test_other_options_are_replaced_one_by_one(
    own: Mapping[str, str] | None, others: Mapping[str, str] | None, merged: Mapping[str, str]
) -> None:
    assert merge_options(own, others) == {**merged, **(others or {})}
