"""Signatures of HTTP requests by AWS's Signature Version 4: the properties, and what a rejected signature means.

The signer itself is in `transports/aws/signing`, because it needs the extra of the AWS catalogs.

Spec: the properties `rest.*` of Iceberg's AwsProperties, with the same names and defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Annotated, Any, Protocol, Self

from lance_namespace.errors import InvalidInputError, PermissionDeniedError, ThrottlingError, UnauthenticatedError
from pydantic import Field, SecretStr, model_validator

from lance_ns_async.calls.policy import Caller
from lance_ns_async.errors import Code, ErrorTable
from lance_ns_async.settings import HttpSettings
from lance_ns_async.transports.aws.settings import Region, RoleSettings
from lance_ns_async.transports.http.auth import Signer

REJECTION_CODES = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Codes of AWS services for a request whose signature or keys were rejected."""

SIGNING_ERRORS: ErrorTable = {
    **dict.fromkeys(sorted(REJECTION_CODES), UnauthenticatedError),
    "AccessDenied": PermissionDeniedError,
    "AccessDeniedException": PermissionDeniedError,
    "SlowDown": ThrottlingError,
    "ThrottlingException": ThrottlingError,
    "TooManyRequestsException": ThrottlingError,
}
"""Codes of AWS services in front of an HTTP API; a backend that signs requests has them in its error table."""

_TOLERANCE = 60.0
"""Difference of clocks in seconds from which it is reported; services reject signatures from 300 seconds on."""

_ABOUT_TIME = ("signature expired", "signature not yet current", "too skewed", "request expired")


class ClosableSigner(Signer, Protocol):
    """A signer with connections, for example to STS, that are closed together with the transport."""

    async def aclose(self) -> None:
        """Closes the connections; may be called twice."""
        ...


class SigningSettings(RoleSettings, HttpSettings):
    """Additional settings of backends that can sign their requests."""

    rest_sigv4_enabled: bool = False
    """Whether requests are signed by AWS's Signature Version 4."""
    rest_signing_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,63}$")] = "execute-api"
    """The name of the service in signatures: `glue`, `s3tables`, or that of Amazon API Gateway."""
    rest_signing_region: Region | None = None
    """The region in signatures; None means the region of AWS's own configuration, or of the variable AWS_REGION."""
    rest_access_key_id: str | None = Field(default=None, min_length=1)
    """Static keys that sign, together with `rest_secret_access_key`; None means the keys of AWS's provider chain."""
    rest_secret_access_key: SecretStr | None = Field(default=None, min_length=1)
    rest_session_token: SecretStr | None = Field(default=None, min_length=1)
    """The session token of temporary keys."""

    @model_validator(mode="after")
    def _whole_signing(self) -> Self:
        if (self.rest_access_key_id is None) != (self.rest_secret_access_key is None):
            raise ValueError("rest.access-key-id and rest.secret-access-key: give both or none")
        if self.rest_session_token is not None and self.rest_access_key_id is None:
            raise ValueError("rest.session-token: give rest.access-key-id and rest.secret-access-key with it")
        alone = [name for name, usual in _SIGNING_ONLY.items() if getattr(self, name) != usual]
        if alone and not self.rest_sigv4_enabled:
            raise ValueError(f"{', '.join(alone)}: set rest.sigv4-enabled to true with it")
        return self


_SIGNING_ONLY = {
    name: field.default
    for name, field in SigningSettings.model_fields.items()
    if name not in HttpSettings.model_fields and name != "rest_sigv4_enabled"
}
"""The defaults of the properties that only matter for signatures."""


def open_signer(settings: SigningSettings, caller: Caller) -> ClosableSigner | None:
    """Returns the signer of requests; None if the settings request none. Looks for no keys yet.

    Raises:
        InvalidInputError: The extra with AWS's packages is not installed.
    """
    if not settings.rest_sigv4_enabled:
        return None
    try:
        signing = import_module("lance_ns_async.transports.aws.signing")
    except ModuleNotFoundError as e:
        raise InvalidInputError(
            f"{settings.backend} properties: rest.sigv4-enabled needs: pip install 'lance-ns-async[glue]' "
            f"(no module named {e.name})"
        ) from e
    signer: ClosableSigner = signing.open_sigv4(settings, caller)
    return signer


def rejection(
    headers: Mapping[str, str], body: Any, codes: tuple[Code, ...], message: str
) -> tuple[tuple[Code, ...], str]:
    """Returns codes and message of an error of an AWS service.

    Args:
        headers: Headers of the response, with names in any case.
        body: The JSON of the response; None if it is not JSON.
        codes: The codes that the backend has found.
        message: The message that the backend has found.
    """
    # `InvalidSignatureException:http://internal.amazon.com/coral/...` and `com.amazon.coral#AccessDeniedException`
    code = headers.get("x-amzn-errortype", "").partition(":")[0].rpartition("#")[2].strip()
    if code and isinstance(body, dict) and isinstance(text := body.get("message") or body.get("Message"), str):
        message = text
    if code and code not in codes:
        codes = (code, *codes)
    if not any(code in REJECTION_CODES for code in codes):
        return codes, message
    # The further lines quote the request with its session token.
    message = (message.strip().splitlines() or [""])[0]
    ahead = _ahead(headers.get("date"))
    about_time = any(text in message.lower() for text in _ABOUT_TIME)
    if ahead is not None and abs(ahead) >= _TOLERANCE:
        direction = "ahead of" if ahead > 0 else "behind"
        message += f"; this machine's clock is {abs(ahead):.0f} s {direction} the server's: synchronize it"
    elif about_time:
        message += "; is this machine's clock right? signatures are valid for a few minutes"
    elif not any(code in ("ExpiredToken", "ExpiredTokenException") for code in codes):
        message += "; are rest.signing-name, rest.signing-region and the keys right?"
    return codes, message


def _ahead(date: str | None) -> float | None:
    """Returns how many seconds this machine's clock is ahead of a server's; None if the server's is unknown."""
    try:
        server = parsedate_to_datetime(date or "")
    except (TypeError, ValueError, OverflowError):
        return None
    return (datetime.now(UTC) - server.replace(tzinfo=server.tzinfo or UTC)).total_seconds()
