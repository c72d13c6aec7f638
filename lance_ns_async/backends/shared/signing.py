"""Signers of HTTP requests by AWS's Signature Version 4."""

from __future__ import annotations

from lance_namespace.errors import InvalidInputError

from lance_ns_async.calls.caller import Caller
from lance_ns_async.transports.aws.settings import SigningSettings
from lance_ns_async.transports.http.signatures import Signer


def open_signer(settings: SigningSettings, caller: Caller) -> Signer | None:
    """Returns the signer of requests; None if the settings request none. Looks for no keys yet."""
    if not settings.rest_sigv4_enabled:
        return None
    try:
        from lance_ns_async.transports.aws.sigv4 import open_sigv4
    except ModuleNotFoundError as e:
        raise InvalidInputError(
            f"{settings.backend} properties: rest.sigv4-enabled needs: pip install 'lance-ns-async[glue]' "
            f"(no module named {e.name})"
        ) from e
    return open_sigv4(settings, caller)
