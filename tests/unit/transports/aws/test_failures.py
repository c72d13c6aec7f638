"""Failures of AWS calls, and the resulting errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    InvalidRegionError,
    MetadataRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    SSLError,
    UnauthorizedSSOTokenError,
)
from botocore.parsers import ResponseParserError
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_ns_async.backends.glue.wire import ERRORS
from lance_ns_async.errors import COMMON_ERRORS, Code, error_class
from lance_ns_async.model import Id, NamespaceId, TableId
from lance_ns_async.transports.aws.failures import AWS_ERRORS, failure
from tests.fakes.glue import FakeGlue
from tests.support.glue import connected, declared, described

CODES: Mapping[type[LanceNamespaceError], tuple[str, ...]] = {
    InvalidInputError: (
        "InvalidInputException",
        "ValidationException",
        "ValidationError",
        "ResourceNumberLimitExceededException",
        "MalformedPolicyDocument",
        "PackedPolicyTooLarge",
        "RegionDisabledException",
    ),
    PermissionDeniedError: ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation"),
    UnauthenticatedError: (
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
    ),
    ThrottlingError: (
        "ThrottlingException",
        "Throttling",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "SlowDown",
    ),
    ServiceUnavailableError: (
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
    ),
    UnsupportedOperationError: (
        "OperationNotSupportedException",
        "UnknownOperationException",
        "UnknownOperation",
        "UnsupportedOperationException",
        "InvalidAction",
    ),
    ConcurrentModificationError: (
        "ConcurrentModificationException",
        "VersionMismatchException",
        "ConditionCheckFailureException",
    ),
    InternalError: ("GlueEncryptionException",),
}
"""Error codes of services, in the form of responses."""

STATUSES: Mapping[int, type[LanceNamespaceError]] = {
    400: InvalidInputError,
    401: UnauthenticatedError,
    407: UnauthenticatedError,
    403: PermissionDeniedError,
    404: InvalidInputError,
    408: ServiceUnavailableError,
    413: InvalidInputError,
    429: ThrottlingError,
    500: ServiceUnavailableError,
    501: UnsupportedOperationError,
    502: ServiceUnavailableError,
    503: ServiceUnavailableError,
    504: ServiceUnavailableError,
}
"""The meanings of HTTP statuses with an unknown code."""

DETAILS: Mapping[tuple[str, str], type[LanceNamespaceError]] = {
    ("FederationSourceException", "AccessDeniedException"): PermissionDeniedError,
    ("FederationSourceException", "ThrottlingException"): ThrottlingError,
    ("FederationSourceException", "EntityNotFoundException"): InternalError,
    ("FederationSourceException", "InvalidCredentialsException"): InternalError,
    ("FederationSourceException", "InvalidInputException"): InternalError,
    ("FederationSourceException", "InvalidResponseException"): InternalError,
    ("FederationSourceException", "OperationNotSupportedException"): InternalError,
    ("FederationSourceException", "PartialFailureException"): InternalError,
    ("FederationSourceException", "InternalServiceException"): ServiceUnavailableError,
    ("FederationSourceException", "OperationTimeoutException"): ServiceUnavailableError,
}

LOCAL: Mapping[str, tuple[type[LanceNamespaceError], BotoCoreError]] = {
    "ParamValidationError": (InvalidInputError, ParamValidationError(report="Name: too short")),
    "ValidationError": (InvalidInputError, InvalidRegionError(region_name="a b")),
    "NoCredentialsError": (UnauthenticatedError, NoCredentialsError()),
    "CredentialRetrievalError": (
        UnauthenticatedError,
        CredentialRetrievalError(provider="custom-process", error_msg="exit 1"),
    ),
    "SSOError": (UnauthenticatedError, UnauthorizedSSOTokenError()),
    "MetadataRetrievalError": (ServiceUnavailableError, MetadataRetrievalError(error_msg="no answer")),
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


def make_client_error(code: str, status: int = 400, message: str = "why", **more: Any) -> ClientError:
    """Returns botocore's exception for a response."""
    about = {"HTTPStatusCode": status, "RequestId": "r-1", "HTTPHeaders": more.pop("headers", {})}
    return ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": about, **more}, "GetTable")


def meaning(error: Any, subject: Id = TABLE, operation: str = "describe_table") -> type[LanceNamespaceError]:
    return error_class(failure(error), subject, operation, ERRORS)


def test_every_code_is_tested() -> None:
    tested = {code for codes in CODES.values() for code in codes} | set(STATUSES) | {": ".join(key) for key in DETAILS}
    known: set[Code | tuple[Code, str]] = set(AWS_ERRORS) - set(COMMON_ERRORS)
    # Two of the details have the same meaning as the code alone.
    assert known <= tested | set(LOCAL) | NAMED_ONLY | ELSEWHERE


@pytest.mark.parametrize("error", CODES)
async def test_a_code_in_an_answer_becomes_an_error(server: FakeGlue, error: type[LanceNamespaceError]) -> None:
    async with connected(server, max_retries="0") as ns:
        for code in CODES[error]:
            server.fail(code, operation="GetTable")
            with pytest.raises(error, match=rf"db\$t \(describe_table: {code}: .+; request b1946ac9"):
                await described(ns, "db", "t")
    assert server.calls == ["GetTable"] * len(CODES[error])


async def test_an_unknown_code_means_the_same_as_its_status(server: FakeGlue) -> None:
    async with connected(server, max_retries="0") as ns:
        for status, error in STATUSES.items():
            server.fail("NewException", status=status, operation="GetTable")
            with pytest.raises(error, match="NewException"):
                await described(ns, "db", "t")


@pytest.mark.parametrize(("key", "error"), DETAILS.items())
def test_a_federated_source_says_more_than_its_code(key: tuple[str, str], error: type[LanceNamespaceError]) -> None:
    code, cause = key
    assert meaning(make_client_error(code, FederationSourceErrorCode=cause)) is error


@pytest.mark.parametrize("message", ["User is not authorized to perform: kms:Decrypt", "Access Denied by KMS"])
def test_a_key_that_is_denied_is_no_permission(message: str) -> None:
    assert meaning(make_client_error("GlueEncryptionException", message=message)) is PermissionDeniedError
    assert meaning(make_client_error("GlueEncryptionException", message="the key is gone")) is InternalError


@pytest.mark.parametrize(("name", "expected"), LOCAL.items())
def test_what_is_found_out_before_sending_becomes_an_error(
    name: str, expected: tuple[type[LanceNamespaceError], BotoCoreError]
) -> None:
    error, raised = expected
    result = failure(raised)
    assert name in result.codes and result.delivered is False
    assert meaning(raised) is error


@pytest.mark.parametrize("name", sorted(NAMED_ONLY))
def test_classes_are_spelled_as_botocore_does(name: str) -> None:
    import botocore.exceptions

    assert issubclass(getattr(botocore.exceptions, name), BotoCoreError) and name in AWS_ERRORS


@pytest.mark.parametrize(
    ("code", "subject", "operation", "error"),
    [
        ("EntityNotFoundException", TABLE, "describe_table", TableNotFoundError),
        ("EntityNotFoundException", TABLE, "deregister_table", TableNotFoundError),
        ("EntityNotFoundException", TABLE, "declare_table", NamespaceNotFoundError),
        ("EntityNotFoundException", DATABASE, "list_tables", NamespaceNotFoundError),
        ("AlreadyExistsException", TABLE, "declare_table", TableAlreadyExistsError),
        ("AlreadyExistsException", DATABASE, "create_namespace", NamespaceAlreadyExistsError),
        ("FederatedResourceAlreadyExistsException", TABLE, "declare_table", TableAlreadyExistsError),
        ("FederatedResourceAlreadyExistsException", DATABASE, "create_namespace", NamespaceAlreadyExistsError),
    ],
)
def test_the_operation_determines_missing_and_existing(
    code: str, subject: Id, operation: str, error: type[LanceNamespaceError]
) -> None:
    assert meaning(make_client_error(code), subject, operation) is error


@pytest.mark.parametrize(
    ("code", "status", "delivered"),
    [
        ("ThrottlingException", 400, False),
        ("AccessDeniedException", 400, False),
        ("ConcurrentModificationException", 400, False),
        ("OperationTimeoutException", 400, None),
        ("FederationSourceException", 400, None),
        ("NewException", 408, None),
        ("InternalServiceException", 500, None),
        ("ServiceUnavailable", 503, None),
    ],
)
def test_what_was_turned_away_did_nothing(code: str, status: int, delivered: bool | None) -> None:
    assert failure(make_client_error(code, status)).delivered is delivered


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"x-amz-retry-after": "250"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_a_server_says_how_long_to_wait(headers: Mapping[str, str], seconds: float | None) -> None:
    assert failure(make_client_error("ThrottlingException", headers=headers)).retry_after == seconds


def test_a_message_has_one_line() -> None:
    text = "The signature does not match.\n\nThe Canonical String was\n'x-amz-security-token:SECRET"
    result = failure(make_client_error("SignatureDoesNotMatch", 403, text))
    assert result.message == "SignatureDoesNotMatch: The signature does not match.; request r-1"
    assert failure(make_client_error("", 500, "")).message == ": no message; request r-1"


@pytest.mark.parametrize(
    ("raised", "code", "delivered"),
    [
        (EndpointConnectionError(endpoint_url="http://x", error=ConnectionResetError()), "disconnected", None),
        (HTTPClientError(error=OSError("broken")), "disconnected", None),
        (SSLError(endpoint_url="http://x", error=OSError("bad")), "refused", False),
        (ResponseParserError("no JSON"), "unreadable", None),
    ],
)
def test_a_broken_connection_leaves_it_open_whether_anything_was_done(
    raised: Exception, code: str, delivered: bool | None
) -> None:
    result = failure(raised)
    assert (result.codes[0], result.delivered) == (code, delivered)


async def test_a_write_that_was_refused_for_load_is_sent_again(server: FakeGlue) -> None:
    server.fail("ThrottlingException", operation="CreateTable", times=2)
    server.fail("ConcurrentModificationException", operation="CreateTable", times=1)
    async with connected(server) as ns:
        await declared(ns, "db", "new", location="s3://bucket/new")
    assert server.calls == ["CreateTable"] * 4


async def test_conflicts_that_do_not_end_are_reported(server: FakeGlue) -> None:
    server.fail("ConcurrentModificationException", operation="CreateTable", times=None)
    async with connected(server) as ns:
        with pytest.raises(ConcurrentModificationError, match="4 attempts"):
            await declared(ns, "db", "new", location="s3://bucket/new")
