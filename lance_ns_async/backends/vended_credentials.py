"""Conversion of vended credentials from Iceberg's property names to Lance's storage options.

Lance reads `google_storage_token` and the option names of the object_store crate. Properties without such an option,
for example remote signing or the endpoints where Iceberg clients renew credentials, are omitted. Lance renews
credentials at the time in `expires_at_millis`, by describing the table again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from lance_ns_async.model import EXPIRY

# If several properties map to one option, the last one in this order takes precedence.
_S3: Mapping[str, str] = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "client.region": "aws_region",
    "s3.client.region": "aws_region",
    "s3.region": "aws_region",
    "s3.endpoint": "aws_endpoint",
}
_SAS = "adls.sas-token."
_SAS_EXPIRY = "adls.sas-token-expires-at-ms."
_ANY_EXPIRY = "expiration-time"
"""Expiry of the credentials, used if there is no property for their own kind."""

_RIVALS: Mapping[str, tuple[str, ...]] = {
    "aws_access_key_id": (
        "access_key_id",
        "aws_secret_access_key",
        "secret_access_key",
        "aws_session_token",
        "aws_token",
        "session_token",
        "token",
        "aws_skip_signature",
        "skip_signature",
    ),
    "aws_region": ("region",),
    "aws_endpoint": ("aws_endpoint_url", "aws_endpoint_url_s3", "endpoint", "endpoint_url"),
    "aws_virtual_hosted_style_request": ("virtual_hosted_style_request",),
    "google_storage_token": ("google_skip_signature", "skip_signature"),
    "azure_storage_account_name": ("account_name",),
    "azure_storage_sas_token": (
        "azure_storage_sas_key",
        "sas_token",
        "sas_key",
        "azure_storage_account_key",
        "azure_storage_access_key",
        "azure_storage_master_key",
        "account_key",
        "access_key",
        "master_key",
        "azure_storage_token",
        "bearer_token",
        "token",
        "azure_storage_client_id",
        "azure_client_id",
        "client_id",
        "azure_credential_type",
        "credential_type",
        "azure_skip_signature",
        "skip_signature",
    ),
}
"""Options that conflict with a vended one: its aliases, and options that prevent Lance from using it."""


def storage_options(config: Mapping[str, Any], location: str) -> dict[str, str]:
    """Returns the storage options in the properties that a catalog vended for a table.

    Args:
        config: The vended properties.
        location: The table's location; it selects one of several Azure accounts.

    Returns:
        The options; empty if the properties contain no credentials for Lance.

    Raises:
        ValueError: An expiry is not a number.
    """
    properties = {key: str(value) for key, value in config.items() if value is not None}
    return _s3(properties) or _gcs(properties) or _azure(properties, location)


def nearest(entries: Iterable[Mapping[str, Any]], location: str) -> Mapping[str, Any]:
    """Returns the `config` of the entry with the longest matching `prefix` of `location`; empty if none matches."""
    fitting = [entry for entry in entries if location.startswith(entry["prefix"])]
    return max(fitting, key=lambda entry: len(entry["prefix"]))["config"] if fitting else {}


def merge_options(options: Mapping[str, str], credentials: Mapping[str, str]) -> dict[str, str]:
    """Returns the options with the vended ones added and all options removed that conflict with them."""
    conflicts = {rival for key in credentials for rival in _RIVALS.get(key, ())}
    return {
        **{key: value for key, value in options.items() if key.lower() not in conflicts | credentials.keys()},
        **credentials,
    }


def _s3(properties: Mapping[str, str]) -> dict[str, str]:
    options = {option: properties[key] for key, option in _S3.items() if key in properties}
    if "aws_access_key_id" not in options:
        return {}
    if properties.get("s3.path-style-access", "").lower() == "true":
        options["aws_virtual_hosted_style_request"] = "false"
    if options.get("aws_endpoint", "").startswith("http://"):
        options["allow_http"] = "true"
    return options | _expiry(properties, "s3.session-token-expires-at-ms")


def _gcs(properties: Mapping[str, str]) -> dict[str, str]:
    token = properties.get("gcs.oauth2.token")
    return {"google_storage_token": token} | _expiry(properties, "gcs.oauth2.token-expires-at") if token else {}


def _azure(properties: Mapping[str, str], location: str) -> dict[str, str]:
    hosts = {key.removeprefix(_SAS).lower(): key for key in properties if key.startswith(_SAS)}
    if not hosts:
        return {}
    place = urlsplit(location)
    # The host of `az://container/path` is a container, so the account is known only if there is exactly one.
    account = _account(place.hostname or "") if place.username else ""
    fitting = {_account(host): key for host, key in hosts.items() if account in ("", _account(host))}
    if len(fitting) != 1:
        return {}
    [(name, key)] = fitting.items()
    expiry = _expiry(properties, _SAS_EXPIRY + key.removeprefix(_SAS))
    return {"azure_storage_account_name": name, "azure_storage_sas_token": properties[key]} | expiry


def _account(host: str) -> str:
    return host.partition(".")[0]


def _expiry(properties: Mapping[str, str], key: str) -> dict[str, str]:
    until = properties.get(key) or properties.get(_ANY_EXPIRY)
    try:
        return {EXPIRY: str(int(until))} if until else {}
    except (TypeError, ValueError):
        # The value is not quoted, because it comes with secrets.
        raise ValueError(f"{key} is not a number") from None
