"""Conversion of botocore's exceptions to failures, and the error table of the codes that all AWS services share."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterator, Mapping
from socket import gaierror
from typing import Any, TypeAlias

import lance_namespace.errors as err
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from lance_ns_async.errors import COMMON_ERRORS, Code, ErrorTable, Failure
from lance_ns_async.transports.http.tls import UNTRUSTED
from lance_ns_async.transports.responses import redact, retry_after

AwsError: TypeAlias = BotoCoreError | ClientError | ResponseParserError
"""The exceptions of a failed call of botocore."""


def _all(
    error: type[err.LanceNamespaceError], *codes: Code
) -> dict[Code | tuple[Code, str], type[err.LanceNamespaceError]]:
    return dict.fromkeys(codes, error)


AWS_ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    **_all(
        err.InvalidInputError,
        "InvalidInputException",
        "ValidationException",
        "ValidationError",
        "ParamValidationError",
        "ResourceNumberLimitExceededException",
        "MalformedPolicyDocument",
        "PackedPolicyTooLarge",
        "RegionDisabledException",
        "ProfileNotFound",
        "ConfigParseError",
        "InvalidConfigError",
        "UnknownCredentialError",
        400,
        404,
        413,
    ),
    **_all(
        err.PermissionDeniedError,
        "AccessDeniedException",
        "AccessDenied",
        "UnauthorizedOperation",
        "GlueEncryptionException: denied",
        "FederationSourceException: AccessDeniedException",
        403,
    ),
    **_all(
        err.UnauthenticatedError,
        "ExpiredToken",
        "ExpiredTokenException",
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "RequestExpired",
        "IDPRejectedClaim",
        "InvalidIdentityToken",
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "TokenRetrievalError",
        "SSOError",
        "LoginError",
        "NoAuthTokenError",
        "RefreshWithMFAUnsupportedError",
        401,
        # A proxy requires credentials.
        407,
    ),
    **_all(
        err.ThrottlingError,
        "ThrottlingException",
        "Throttling",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "SlowDown",
        "FederationSourceException: ThrottlingException",
        429,
    ),
    **_all(
        err.ServiceUnavailableError,
        "OperationTimeoutException",
        "FederationSourceException",
        "FederationSourceRetryableException",
        "ResourceNotReadyException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "InternalServiceException",
        "InternalServerException",
        "InternalFailure",
        "IDPCommunicationError",
        "MetadataRetrievalError",
        408,
        500,
        502,
        503,
        504,
    ),
    **_all(
        err.InternalError,
        "GlueEncryptionException",
        "FederationSourceException: EntityNotFoundException",
        "FederationSourceException: InvalidCredentialsException",
        "FederationSourceException: InvalidInputException",
        "FederationSourceException: InvalidResponseException",
        "FederationSourceException: OperationNotSupportedException",
        "FederationSourceException: PartialFailureException",
        "unreadable",
    ),
    **_all(
        err.UnsupportedOperationError,
        "OperationNotSupportedException",
        "UnknownOperationException",
        "UnknownOperation",
        "InvalidAction",
        "UnsupportedOperationException",
        501,
    ),
    **_all(
        err.ConcurrentModificationError,
        "ConcurrentModificationException",
        "VersionMismatchException",
        "ConditionCheckFailureException",
    ),
}
"""Error codes of AWS services and of botocore, and HTTP statuses."""

SIGNATURES = ("SignatureDoesNotMatch", "InvalidSignatureException")
"""Codes whose message, after its first line, quotes the signed request including the session token."""

_PERHAPS_DONE = ("OperationTimeoutException", "FederationSourceException", 408)
"""Codes of client errors after which the server may still have acted."""

_PASSING = ("ConcurrentModificationException",)  # Codes of transient failures other than unavailability and throttling.

_LACKING = ("404", "500", "501")
"""Codes of servers that implement only a part of an API, for the rest of it; they do not use AWS's error format."""

_MESSAGE_LIMIT = 500  # Maximum number of characters of a server's message in an error.


def failure(error: AwsError, *, optional: bool = False, secrets: Collection[str | None] = ()) -> Failure:
    """Returns the failure for an exception of botocore.

    Args:
        optional: Whether the server may not know the call.
        secrets: Values that are redacted, because servers repeat them.
    """
    match error:
        case ClientError():
            return _response_failure(error.response, optional, secrets)
        case EndpointConnectionError() if not _was_refused(error):
            return Failure("disconnected", message=_disconnect_message(error))
        case SSLError() if isinstance(error.kwargs.get("error"), ssl.SSLCertVerificationError):
            return Failure("untrusted", message=f"{_message(error)}; {UNTRUSTED}", delivered=False)
        case EndpointConnectionError() | ConnectTimeoutError() | ProxyConnectionError() | SSLError():
            message = f"{_message(error)}; are endpoint and region right, and the server up?"
            return Failure("refused", message=message, delivered=False)
        case ReadTimeoutError():
            return Failure("timeout", message=_message(error))
        case HTTPClientError():
            return Failure("disconnected", message=_disconnect_message(error))
        case ResponseParserError():
            message = "an answer in a format that AWS does not use; is the endpoint right?"
            return Failure("unreadable", message=message, transient=True)
    # All other exceptions are raised before anything is sent. Their base classes are the less specific codes.
    names = [cls.__name__ for cls in type(error).__mro__ if issubclass(cls, BotoCoreError)]
    return Failure(*names, message=f"{names[0]}: {_message(error)}", delivered=False)


def _response_failure(response: Mapping[str, Any], optional: bool, secrets: Collection[str | None]) -> Failure:
    error, about = response.get("Error", {}), response.get("ResponseMetadata", {})
    code = _first_line(redact(str(error.get("Code", "")), secrets))
    status = about.get("HTTPStatusCode", 0)
    headers = about.get("HTTPHeaders", {})
    request = about.get("RequestId")
    message = _first_line(redact(str(error.get("Message") or "no message"), secrets))
    if 300 <= status < 400:
        message = f"redirects are not followed; it points to {headers.get('location', 'nowhere')}"
    codes = [*_finer(code, response, secrets), code, status]
    if optional and code in _LACKING:
        codes.insert(0, "UnknownOperationException")
    return Failure(
        *codes,
        message=f"{code}: {message}" + (f"; request {request}" if request else ""),
        retry_after=retry_after(headers),
        delivered=False if _was_turned_away(code, status) else None,
        transient=code in _PASSING,
    )


def _was_turned_away(code: str, status: int) -> bool:
    """Returns whether the server did not act: the request is invalid, it was throttled, or the call is unknown."""
    if {code, status} & set(_PERHAPS_DONE):
        return False
    return 400 <= status < 500 or status == 501 or AWS_ERRORS.get(code) is err.ThrottlingError


def _finer(code: str, response: Mapping[str, Any], secrets: Collection[str | None]) -> Iterator[Code]:
    """Yields codes that are more specific than the error's own code."""
    if code == "FederationSourceException" and (cause := response.get("FederationSourceErrorCode")):
        yield f"{code}: {_first_line(redact(str(cause), secrets))}"
    if code == "GlueEncryptionException":
        message = str(response["Error"].get("Message", "")).lower()
        if "denied" in message or "not authorized" in message:
            yield f"{code}: denied"


def _was_refused(error: EndpointConnectionError) -> bool:
    """Returns whether there was no connection; aiobotocore uses the same exception for a connection that was reset."""
    cause = error.kwargs.get("error")
    return isinstance(cause, gaierror) or any(cls.__name__ == "ClientConnectorError" for cls in type(cause).__mro__)


def _disconnect_message(error: HTTPClientError) -> str:
    """Returns a message from the cause, because botocore's own may wrongly say that there was no connection."""
    cause = error.kwargs.get("error")
    reason = " ".join(str(cause).split())
    # aiohttp's message about incomplete headers is the repr of the headers received so far.
    return f"the connection was lost: {reason if reason and not reason.startswith('<') else type(cause).__name__}"[
        :_MESSAGE_LIMIT
    ]


def _message(error: Exception) -> str:
    return _first_line(str(error))


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:_MESSAGE_LIMIT]
