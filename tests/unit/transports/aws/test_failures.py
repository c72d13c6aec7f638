"""Failures of AWS calls, and the resulting errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import botocore.exceptions as aws
import lance_namespace.errors as err
import pytest
from botocore.parsers import ResponseParserError

from lance_ns_async.backends.glue.wire import ERRORS
from lance_ns_async.errors import COMMON_ERRORS, Code, error_class
from lance_ns_async.model import Id, NamespaceId, TableId
from lance_ns_async.transports.aws.failures import AWS_ERRORS, failure
from tests.fakes.glue import FakeGlue
from tests.support.glue import connected, described

CODES: Mapping[type[err.LanceNamespaceError], str] = {
    err.InvalidInputError: "InvalidInputException ValidationException ValidationError RegionDisabledException "
    "ResourceNumberLimitExceededException MalformedPolicyDocument PackedPolicyTooLarge",
    err.PermissionDeniedError: "AccessDeniedException AccessDenied UnauthorizedOperation",
    err.UnauthenticatedError: "ExpiredToken ExpiredTokenException UnrecognizedClientException InvalidClientTokenId "
    "InvalidSignatureException SignatureDoesNotMatch MissingAuthenticationToken MissingAuthenticationTokenException "
    "IncompleteSignature IncompleteSignatureException RequestExpired IDPRejectedClaim InvalidIdentityToken",
    err.ThrottlingError: "ThrottlingException Throttling TooManyRequestsException RequestLimitExceeded SlowDown",
    err.ServiceUnavailableError: "OperationTimeoutException FederationSourceException ResourceNotReadyException "
    "FederationSourceRetryableException ServiceUnavailable ServiceUnavailableException InternalServiceException "
    "InternalServerException InternalFailure IDPCommunicationError",
    err.UnsupportedOperationError: "OperationNotSupportedException UnknownOperationException UnknownOperation "
    "UnsupportedOperationException InvalidAction",
    err.ConcurrentModificationError: "ConcurrentModificationException VersionMismatchException "
    "ConditionCheckFailureException",
    err.InternalError: "GlueEncryptionException",
}
"""Error codes of services, in the form of responses."""


DETAILS: Mapping[type[err.LanceNamespaceError], str] = {
    err.PermissionDeniedError: "AccessDeniedException",
    err.ThrottlingError: "ThrottlingException",
    err.InternalError: "EntityNotFoundException InvalidCredentialsException InvalidInputException "
    "InvalidResponseException OperationNotSupportedException PartialFailureException",
    err.ServiceUnavailableError: "InternalServiceException OperationTimeoutException",
}
"""Causes of a `FederationSourceException`."""

LOCAL: Mapping[str, tuple[type[err.LanceNamespaceError], aws.BotoCoreError]] = {
    "ParamValidationError": (err.InvalidInputError, aws.ParamValidationError(report="Name: too short")),
    "ValidationError": (err.InvalidInputError, aws.InvalidRegionError(region_name="a b")),
    "NoCredentialsError": (err.UnauthenticatedError, aws.NoCredentialsError()),
    "CredentialRetrievalError": (
        err.UnauthenticatedError,
        aws.CredentialRetrievalError(provider="custom-process", error_msg="exit 1"),
    ),
    "SSOError": (err.UnauthenticatedError, aws.UnauthorizedSSOTokenError()),
    "MetadataRetrievalError": (err.ServiceUnavailableError, aws.MetadataRetrievalError(error_msg="no answer")),
}
"""Errors before anything is sent, by the class of the exception or of its cause."""

NAMED_ONLY = {
    *("PartialCredentialsError", "TokenRetrievalError", "LoginError", "NoAuthTokenError"),
    *("RefreshWithMFAUnsupportedError", "ProfileNotFound", "ConfigParseError", "InvalidConfigError"),
    "UnknownCredentialError",
}
"""Classes of botocore that are treated like those in `LOCAL`."""

ELSEWHERE = {"GlueEncryptionException: denied", "unreadable"}
"""Codes that other tests cover."""

TABLE, DATABASE = TableId(["db", "t"]), NamespaceId(["db"])


@pytest.fixture
def server(shared: FakeGlue) -> FakeGlue:
    shared.reset()
    shared.add_database("", "db")
    shared.add_table("", "db", "t")
    return shared


def make_client_error(code: str, status: int = 400, message: str = "why", **more: Any) -> aws.ClientError:
    about = {"HTTPStatusCode": status, "RequestId": "r-1", "HTTPHeaders": more.pop("headers", {})}
    return aws.ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": about, **more}, "GetTable")


def meaning(error: Any, subject: Id = TABLE, operation: str = "describe_table") -> type[err.LanceNamespaceError]:
    return error_class(failure(error), subject, operation, ERRORS)


def test_every_code_is_tested() -> None:
    tested = {code for codes in CODES.values() for code in codes.split()}
    tested |= {f"FederationSourceException: {cause}" for causes in DETAILS.values() for cause in causes.split()}
    known: set[Code | tuple[Code, str]] = set(AWS_ERRORS) - set(COMMON_ERRORS)
    # The statuses are among the faults of tests/faults.
    assert {code for code in known if not isinstance(code, int)} <= tested | set(LOCAL) | NAMED_ONLY | ELSEWHERE
    for name in NAMED_ONLY:
        assert issubclass(getattr(aws, name), aws.BotoCoreError) and name in AWS_ERRORS


@pytest.mark.parametrize("error", CODES)
async def test_codes_are_errors(server: FakeGlue, error: type[err.LanceNamespaceError]) -> None:
    async with connected(server, max_retries="0") as ns:
        for code in CODES[error].split():
            server.fail(code, operation="GetTable")
            with pytest.raises(error, match=rf"db\$t \(describe_table: {code}: .+; request b1946ac9"):
                await described(ns, "db", "t")
    assert server.calls == ["GetTable"] * len(CODES[error].split())


@pytest.mark.parametrize("error", DETAILS)
def test_a_federated_source_says_more_than_its_code(error: type[err.LanceNamespaceError]) -> None:
    for cause in DETAILS[error].split():
        assert meaning(make_client_error("FederationSourceException", FederationSourceErrorCode=cause)) is error


@pytest.mark.parametrize("message", ["User is not authorized to perform: kms:Decrypt", "Access Denied by KMS"])
def test_a_key_that_is_denied_is_no_permission(message: str) -> None:
    assert meaning(make_client_error("GlueEncryptionException", message=message)) is err.PermissionDeniedError
    assert meaning(make_client_error("GlueEncryptionException", message="the key is gone")) is err.InternalError


@pytest.mark.parametrize(("name", "expected"), LOCAL.items())
def test_errors_before_sending(name: str, expected: tuple[type[err.LanceNamespaceError], aws.BotoCoreError]) -> None:
    error, raised = expected
    result = failure(raised)
    assert name in result.codes and result.delivered is False
    assert meaning(raised) is error


@pytest.mark.parametrize(
    ("code", "subject", "operation", "error"),
    [
        ("EntityNotFoundException", TABLE, "describe_table", err.TableNotFoundError),
        ("EntityNotFoundException", TABLE, "deregister_table", err.TableNotFoundError),
        ("EntityNotFoundException", TABLE, "declare_table", err.NamespaceNotFoundError),
        ("EntityNotFoundException", DATABASE, "list_tables", err.NamespaceNotFoundError),
        ("AlreadyExistsException", TABLE, "declare_table", err.TableAlreadyExistsError),
        ("AlreadyExistsException", DATABASE, "create_namespace", err.NamespaceAlreadyExistsError),
        ("FederatedResourceAlreadyExistsException", TABLE, "declare_table", err.TableAlreadyExistsError),
        ("FederatedResourceAlreadyExistsException", DATABASE, "create_namespace", err.NamespaceAlreadyExistsError),
    ],
)
def test_the_operation_tells_missing(
    code: str, subject: Id, operation: str, error: type[err.LanceNamespaceError]
) -> None:
    assert meaning(make_client_error(code), subject, operation) is error


@pytest.mark.parametrize(
    ("code", "status", "delivered"),
    [
        *(("ThrottlingException", 400, False), ("AccessDeniedException", 400, False)),
        *(("ConcurrentModificationException", 400, False), ("OperationTimeoutException", 400, None)),
        *(("FederationSourceException", 400, None), ("NewException", 408, None)),
        *(("InternalServiceException", 500, None), ("ServiceUnavailable", 503, None)),
    ],
)
def test_what_was_turned_away_did_nothing(code: str, status: int, delivered: bool | None) -> None:
    assert failure(make_client_error(code, status)).delivered is delivered


def test_a_message_has_one_line() -> None:
    text = "The signature does not match.\n\nThe Canonical String was\n'x-amz-security-token:SECRET"
    result = failure(make_client_error("SignatureDoesNotMatch", 403, text))
    assert result.message == "SignatureDoesNotMatch: The signature does not match.; request r-1"
    assert failure(make_client_error("", 500, "")).message == ": no message; request r-1"


@pytest.mark.parametrize(
    ("raised", "code", "delivered"),
    [
        (aws.EndpointConnectionError(endpoint_url="http://x", error=ConnectionResetError()), "disconnected", None),
        (aws.HTTPClientError(error=OSError("broken")), "disconnected", None),
        (aws.SSLError(endpoint_url="http://x", error=OSError("bad")), "refused", False),
        (ResponseParserError("no JSON"), "unreadable", None),
    ],
)
def test_a_broken_connection_leaves_the_outcome_open(raised: Exception, code: str, delivered: bool | None) -> None:
    result = failure(raised)
    assert (result.codes[0], result.delivered) == (code, delivered)
