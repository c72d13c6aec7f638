"""What botocore raises, as a failure with codes; and what the codes that all AWS services share mean."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterator, Mapping
from socket import gaierror
from typing import Any, TypeAlias

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
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_ns_async.errors import COMMON_ERRORS, Code, ErrorTable, Failure
from lance_ns_async.transports.http.redact import unsaid
from lance_ns_async.transports.http.tls import UNTRUSTED

AwsError: TypeAlias = BotoCoreError | ClientError | ResponseParserError
"""Everything a call through botocore fails with."""


def _all(error: type[LanceNamespaceError], *codes: Code) -> dict[Code | tuple[Code, str], type[LanceNamespaceError]]:
    return dict.fromkeys(codes, error)


AWS_ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    **_all(
        InvalidInputError,
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
        PermissionDeniedError,
        "AccessDeniedException",
        "AccessDenied",
        "UnauthorizedOperation",
        "GlueEncryptionException: denied",
        "FederationSourceException: AccessDeniedException",
        403,
    ),
    **_all(
        UnauthenticatedError,
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
        # A proxy wants credentials.
        407,
    ),
    **_all(
        ThrottlingError,
        "ThrottlingException",
        "Throttling",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "SlowDown",
        "FederationSourceException: ThrottlingException",
        429,
    ),
    **_all(
        ServiceUnavailableError,
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
        InternalError,
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
        UnsupportedOperationError,
        "OperationNotSupportedException",
        "UnknownOperationException",
        "UnknownOperation",
        "InvalidAction",
        "UnsupportedOperationException",
        501,
    ),
    **_all(
        ConcurrentModificationError,
        "ConcurrentModificationException",
        "VersionMismatchException",
        "ConditionCheckFailureException",
    ),
}
"""What AWS services say, the statuses of HTTP last."""

SIGNATURES = ("SignatureDoesNotMatch", "InvalidSignatureException")
"""Codes whose message quotes the request that was signed, session token included, below its first line."""

_PERHAPS_DONE = ("OperationTimeoutException", "FederationSourceException", 408)
"""What blames the request, and yet does not say that nothing was done."""

_PASSING = ("ConcurrentModificationException",)
"""What is worth sending again, though the error is none of time or load."""

_LACKING = ("404", "500", "501")
"""How servers that know only part of an API answer the rest of it, in no form of AWS's."""

_SHOWN = 500
"""How many characters of a server's message are told."""


def failure(error: AwsError, *, optional: bool = False, secrets: Collection[str | None] = ()) -> Failure:
    """The failure that botocore's exception tells of, but for the secrets that a server repeats.

    An `optional` call may be unknown to the server.
    """
    match error:
        case ClientError():
            return _answered(error.response, optional, secrets)
        case EndpointConnectionError() if not _was_refused(error):
            return Failure("disconnected", message=_lost(error))
        case SSLError() if isinstance(error.kwargs.get("error"), ssl.SSLCertVerificationError):
            return Failure("untrusted", message=f"{_told(error)}; {UNTRUSTED}", delivered=False)
        case EndpointConnectionError() | ConnectTimeoutError() | ProxyConnectionError() | SSLError():
            message = f"{_told(error)}; are endpoint and region right, and the server up?"
            return Failure("refused", message=message, delivered=False)
        case ReadTimeoutError():
            return Failure("timeout", message=_told(error))
        case HTTPClientError():
            return Failure("disconnected", message=_lost(error))
        case ResponseParserError():
            message = "an answer that is not what AWS sends, so is the endpoint right?"
            return Failure("unreadable", message=message)
    # What is left was found out before anything was sent. Its base classes tell what kind of thing it is.
    names = [cls.__name__ for cls in type(error).__mro__ if issubclass(cls, BotoCoreError)]
    return Failure(*names, message=f"{names[0]}: {_told(error)}", delivered=False)


def _answered(response: Mapping[str, Any], optional: bool, secrets: Collection[str | None]) -> Failure:
    error, about = response.get("Error", {}), response.get("ResponseMetadata", {})
    code = _first_line(unsaid(str(error.get("Code", "")), secrets))
    status = about.get("HTTPStatusCode", 0)
    headers = about.get("HTTPHeaders", {})
    request = about.get("RequestId")
    message = _first_line(unsaid(str(error.get("Message") or "no message"), secrets))
    if 300 <= status < 400:
        message = f"redirects are not followed; it points to {headers.get('location', 'nowhere')}"
    codes = [*_finer(code, response, secrets), code, status]
    if optional and code in _LACKING:
        codes.insert(0, "UnknownOperationException")
    return Failure(
        *codes,
        message=f"{code}: {message}" + (f"; request {request}" if request else ""),
        retry_after=_retry_after(headers),
        delivered=False if _was_turned_away(code, status) else None,
        transient=code in _PASSING,
    )


def _was_turned_away(code: str, status: int) -> bool:
    """Whether nothing was done: the request is blamed, or the load, or the server has no such call."""
    if {code, status} & set(_PERHAPS_DONE):
        return False
    return 400 <= status < 500 or status == 501 or AWS_ERRORS.get(code) is ThrottlingError


def _finer(code: str, response: Mapping[str, Any], secrets: Collection[str | None]) -> Iterator[Code]:
    """What an error says of its cause beyond its code."""
    if code == "FederationSourceException" and (cause := response.get("FederationSourceErrorCode")):
        yield f"{code}: {_first_line(unsaid(str(cause), secrets))}"
    if code == "GlueEncryptionException":
        told = str(response["Error"].get("Message", "")).lower()
        if "denied" in told or "not authorized" in told:
            yield f"{code}: denied"


def _was_refused(error: EndpointConnectionError) -> bool:
    """Whether there was no connection; aiobotocore tells in the same way of one that was reset."""
    cause = error.kwargs.get("error")
    return isinstance(cause, gaierror) or any(cls.__name__ == "ClientConnectorError" for cls in type(cause).__mro__)


def _lost(error: HTTPClientError) -> str:
    """How the connection ended: what botocore says of that is at times that there was none."""
    cause = error.kwargs.get("error")
    told = " ".join(str(cause).split())
    # Of an answer that broke off in its head, aiohttp says what it has of it.
    return f"the connection was lost: {told if told and not told.startswith('<') else type(cause).__name__}"[:_SHOWN]


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after", 1.0), ("x-amz-retry-after", 0.001)):
        if (value := headers.get(name, "").strip()).isdecimal():
            return float(value) * unit
    return None


def _told(error: Exception) -> str:
    return _first_line(str(error))


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:_SHOWN]
