"""Merging of storage options, where one set of credentials replaces another one as a whole, and their expiry.

Lance reads the options of the object_store crate and those of OpenDAL, in any case, and most of them in several
spellings. Options of two sets would sign requests with the key of the one and the token of the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from time import time

from lance_ns_async.model import EXPIRY

_PREFIX = re.compile(r"(aws|google|azure_storage|azure|oss|cos|tos|hf)_")

_SECRETS = frozenset(  # Options with which Lance gets access, without the prefix of a store.
    "access_key access_key_id access_key_secret account_key application_credentials bearer_token client_secret "
    "container_credentials_full_uri container_credentials_relative_uri fabric_session_token federated_token_file "
    "master_key role_arn sas_key sas_token secret_access_key secret_id secret_key security_token service_account "
    "service_account_key service_account_path session_token skip_signature storage_token token use_azure_cli "
    "web_identity_token_file".split()
)

_DETAILS = frozenset(  # Options that belong to such a secret, but do not replace others alone.
    "authority_id client_id container_authorization_token_file credential_type fabric_token_service_url "
    "identity_endpoint msi_endpoint msi_resource_id object_id role_session_name tenant_id".split()
) | {EXPIRY}

_ALIASES = {"bucket_name": "bucket", "endpoint_url": "endpoint", "endpoint_url_s3": "endpoint"}
"""Other spellings of options that are no credentials, without the prefix of a store."""


_LEAD, _USUAL_LEAD_MILLIS = "refresh_offset_millis", 60_000
"""The name and the default value of a storage option: Lance requests new credentials so long before they expire."""


def merge_options(options: Mapping[str, str] | None, others: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the options, overridden by the others in any spelling.

    If the others have credentials, those of `options` are omitted, for all stores.
    """
    if not options or not others:
        return dict(options or others or {})
    names = {_split(key) for key in others}
    replaces_credentials = has_credentials(others)

    def is_kept(key: str) -> bool:
        store, name = _split(key)
        if replaces_credentials and (name in _SECRETS or name in _DETAILS):
            return False
        # An option without the prefix of a store is one of all stores.
        return names.isdisjoint([(store, name), ("", name)]) and (bool(store) or all(name != it for _, it in names))

    return {**{key: value for key, value in options.items() if is_kept(key)}, **others}


def has_credentials(options: Mapping[str, str] | None) -> bool:
    """Returns whether there are credentials among the options."""
    return any(_split(key)[1] in _SECRETS for key in options or ())


LEAD = 60.0
"""Default number of seconds before their expiry from which credentials count as expired."""


def expiry(options: Mapping[str, str] | None) -> float | None:
    """Returns the expiry of storage options, in seconds since 1970; None if they contain none."""
    millis = (options or {}).get(EXPIRY, "")
    return int(millis) / 1000 if millis.isdecimal() else None


def ends_soon(options: Mapping[str, str] | None) -> bool:
    """Returns whether the credentials expire, and so soon that Lance would request new ones."""
    options = options or {}
    end, lead = options.get(EXPIRY, ""), options.get(_LEAD, "")
    lead_millis = int(lead) if lead.isdecimal() else _USUAL_LEAD_MILLIS
    return end.isdecimal() and int(end) <= time() * 1000 + lead_millis


def _split(key: str) -> tuple[str, str]:
    """Returns the store in the name of an option, or an empty text, and the usual spelling of the rest."""
    key = key.lower()
    prefix = _PREFIX.match(key)
    store, name = (prefix[1].partition("_")[0], key[prefix.end() :]) if prefix else ("", key)
    return store, _ALIASES.get(name, name)
