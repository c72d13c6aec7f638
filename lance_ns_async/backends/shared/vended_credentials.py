"""Conversion of vended credentials from Iceberg's property names to Lance's storage options.

Lance reads `google_storage_token` and the option names of the object_store crate. Properties without such an option,
for example remote signing or the endpoints where Iceberg clients renew credentials, are omitted. Lance renews
credentials at the time in `expires_at_millis`, by describing the table again.

Spec: the properties in Iceberg's REST API (LoadTableResult), Iceberg's S3FileIO, GCSFileIO and ADLSFileIO, and the
names that PyIceberg adds for all stores (`client.*`) and for Azure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from lance_ns_async.model import EXPIRY, as_s3

# If several properties map to one option, the last one in this order takes precedence.
_S3: Mapping[str, str] = {
    "client.access-key-id": "aws_access_key_id",
    "client.secret-access-key": "aws_secret_access_key",
    "client.session-token": "aws_session_token",
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "client.region": "aws_region",
    "s3.client.region": "aws_region",
    "s3.region": "aws_region",
    "s3.endpoint": "aws_endpoint",
}
_S3_KEYS = ("access-key-id", "secret-access-key", "session-token")

_SAS = "adls.sas-token"
_SAS_EXPIRY = "adls.sas-token-expires-at-ms"
_ACCOUNT_NAMES = ("adls.account-name", "adls.auth.shared-key.account.name")
_ACCOUNT_KEYS = ("adls.account-key", "adls.auth.shared-key.account.key")
_ANY_EXPIRY = "expiration-time"  # Expiry of the credentials, used if there is no property for their own kind.

_CREDENTIALS = (
    *(f"{prefix}.{key}" for prefix in ("client", "s3") for key in _S3_KEYS),
    "gcs.oauth2.token",
    _SAS,
    *_ACCOUNT_NAMES,
    *_ACCOUNT_KEYS,
    "adls.token",
    _ANY_EXPIRY,
)
"""Beginnings of the properties with credentials and their expiry; the other properties describe the storage."""

_AZURE_SCHEMES = ("abfs", "abfss", "adl", "az", "azure", "wasb", "wasbs")


def storage_options(config: Mapping[str, Any], location: str) -> dict[str, str]:
    """Returns the storage options in the properties that a catalog vended for a table.

    Args:
        config: The vended properties.
        location: The table's location; it selects one of several Azure accounts.

    Returns:
        The options; empty if the properties contain no credentials for Lance.
    """
    properties = {key: str(value) for key, value in config.items() if value is not None}
    if not properties:
        return {}
    s3, gcs, azure = partial(_s3, properties), partial(_gcs, properties), partial(_azure, properties, location)
    # A catalog may vend credentials for several stores.
    match location.partition(":")[0].lower():
        case "gs" | "gcs":
            return gcs() or s3() or azure()
        case scheme if scheme in _AZURE_SCHEMES:
            return azure() or s3() or gcs()
    return s3() or gcs() or azure()


def nearest(entries: Iterable[Mapping[str, Any]], location: str) -> Mapping[str, Any]:
    """Returns the `config` of the entry with the longest matching `prefix` of `location`; empty if none matches."""
    # Some servers end the prefix of a table's location with a slash.
    folder = as_s3(f"{location.rstrip('/')}/")
    fitting = [entry for entry in entries if folder.startswith(as_s3(entry["prefix"]))]
    return max(fitting, key=lambda entry: len(entry["prefix"]))["config"] if fitting else {}


def combine(config: Mapping[str, Any], credentials: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties of a table, with those for its location, which take precedence.

    If the properties for the location contain credentials, those of the table are omitted: a session token or an expiry
    of the one does not belong to a key of the other.
    """
    if any(key.startswith(_CREDENTIALS) for key in credentials):
        config = {key: value for key, value in config.items() if not key.startswith(_CREDENTIALS)}
    return {**config, **credentials}


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
    if not any(key.startswith("adls.") for key in properties):
        return {}
    name = next((properties[key] for key in _ACCOUNT_NAMES if properties.get(key)), "")
    place = urlsplit(location)
    # The host of `az://container/path` is a container, so the account is known only if it is named, or the only one.
    account = _account(place.hostname or "") if place.username else _account(name)
    keys = {_account(key.removeprefix(f"{_SAS}.")): key for key in properties if key.startswith(f"{_SAS}.")}
    fitting = {owner: key for owner, key in keys.items() if account in ("", owner)}
    if len(fitting) == 1:
        [(account, key)] = fitting.items()
        # A server may name the account in one of the two properties, and its host in the other.
        expiry = next((it for it in properties if _is_expiry_of(account, it)), _SAS_EXPIRY)
        credentials = {"azure_storage_sas_token": properties[key]} | _expiry(properties, expiry)
    elif properties.get(_SAS) and not fitting:
        credentials = {"azure_storage_sas_token": properties[_SAS]} | _expiry(properties, _SAS_EXPIRY)
    elif secret := next((properties[key] for key in _ACCOUNT_KEYS if properties.get(key)), ""):
        credentials = {"azure_storage_account_key": secret} | _expiry(properties, _ANY_EXPIRY)
    elif properties.get("adls.token"):
        credentials = {"azure_storage_token": properties["adls.token"]} | _expiry(properties, _ANY_EXPIRY)
    else:
        return {}
    return {"azure_storage_account_name": account, **credentials} if account else {}


def _is_expiry_of(account: str, key: str) -> bool:
    return key.startswith(f"{_SAS_EXPIRY}.") and _account(key.removeprefix(f"{_SAS_EXPIRY}.")) == account


def _account(host: str) -> str:
    return host.partition(".")[0].lower()


def _expiry(properties: Mapping[str, str], key: str) -> dict[str, str]:
    until = properties.get(key) or properties.get(_ANY_EXPIRY)
    try:
        return {EXPIRY: str(int(until))} if until else {}
    except (TypeError, ValueError):
        # The value is not quoted, because it comes with secrets.
        raise ValueError(f"{key} is not a number") from None
