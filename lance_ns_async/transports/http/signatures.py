"""Signatures of HTTP requests: the interface of signers, and what a rejected signature means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import httpx
from lance_namespace.errors import PermissionDeniedError, ThrottlingError, UnauthenticatedError

from lance_ns_async.errors import Code, ErrorTable

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


class Signer(Protocol):
    """Signs each attempt of a request anew; the keys are opaque to the transport."""

    async def current(self) -> Any:
        """Returns keys that are expected to be valid."""
        ...

    async def replace(self, old: Any) -> Any | None:
        """Returns keys other than `old`, which the server rejected; None if there are no others."""
        ...

    def sign(self, keys: Any, method: str, url: str, headers: httpx.Headers, content: bytes | None) -> httpx.Headers:
        """Returns the headers of a request with its signature.

        Args:
            url: The percent-encoded URL, exactly as it is sent.
        """
        ...

    def secrets(self, headers: Mapping[str, str]) -> Sequence[str]:
        """Returns the secrets in the headers of a signed request."""
        ...

    async def aclose(self) -> None:
        """Closes the signer's own connections, for example to STS; may be called twice."""
        ...


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
