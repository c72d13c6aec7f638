"""All entries of all error tables, and the words at the beginning of errors."""

from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import lance_namespace.errors as err
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import DeclareTableRequest, DescribeTableRequest
from lance_namespace import errors as spec

from lance_ns_async import AsyncNamespace, errors
from lance_ns_async.backends.directory.transport import LANCE_ERRORS, LanceTransport
from lance_ns_async.backends.iceberg.wire import ERRORS
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy
from lance_ns_async.masked import mask
from lance_ns_async.model import Id, NamespaceId, TableId
from lance_ns_async.transports.http.oauth2 import OAUTH2_ERRORS
from lance_ns_async.transports.http.signatures import REJECTION_CODES
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.fakes.unity import FakeUnity

TABLE = TableId(["prod", "orders"])
NAMESPACE = NamespaceId(["prod", "eu"])
KINDS: Mapping[str, Id] = {"table": TABLE, "namespace": NAMESPACE}
COMMON: errors.ErrorTable = dict.fromkeys(
    ("timeout", "refused", "untrusted", "disconnected", "deadline", "circuit", "mismatch"), err.ServiceUnavailableError
)
HTTP: errors.ErrorTable = {
    **dict.fromkeys((400, 413, 422, (404, "get_config"), (404, "fetch_token")), err.InvalidInputError),
    **dict.fromkeys((401, 407, 419), err.UnauthenticatedError),
    **dict.fromkeys((408, 502, 503, 504), err.ServiceUnavailableError),
    403: err.PermissionDeniedError,
    (404, "namespace"): err.NamespaceNotFoundError,
    (404, "table"): err.TableNotFoundError,
    429: err.ThrottlingError,
    501: err.UnsupportedOperationError,
}
SIGNING: errors.ErrorTable = {
    **dict.fromkeys(sorted(REJECTION_CODES), err.UnauthenticatedError),
    **dict.fromkeys(("AccessDenied", "AccessDeniedException"), err.PermissionDeniedError),
    **dict.fromkeys(("SlowDown", "ThrottlingException", "TooManyRequestsException"), err.ThrottlingError),
}
ICEBERG: errors.ErrorTable = {
    ("NoSuchNamespaceException", "create_namespace"): err.ConcurrentModificationError,
    (405, "vend_credentials"): err.UnsupportedOperationError,
    "request_in_progress": err.ServiceUnavailableError,
    "NoSuchNamespaceException": err.NamespaceNotFoundError,
    "NoSuchTableException": err.TableNotFoundError,
    "NotFoundException": errors.UnreadableRegistrationError,
    ("NotFoundException", "declare_table"): err.TableAlreadyExistsError,
    (409, "replace_table"): err.ConcurrentModificationError,
    "NamespaceNotEmptyException": err.NamespaceNotEmptyError,
    406: err.UnsupportedOperationError,
    (404, "declare_table"): err.NamespaceNotFoundError,
    (409, "create_namespace"): err.NamespaceAlreadyExistsError,
    (409, "drop_namespace"): err.NamespaceNotEmptyError,
    (409, "declare_table"): err.TableAlreadyExistsError,
    (409, "deregister_table"): err.ConcurrentModificationError,
    (409, "rename_table"): err.TableAlreadyExistsError,
    (409, "create_table_version"): err.ConcurrentModificationError,
    (409, "batch_create_table_versions"): err.ConcurrentModificationError,
    (409, "batch_delete_table_versions"): err.ConcurrentModificationError,
}
OAUTH2: errors.ErrorTable = {400: err.UnauthenticatedError, 405: err.InvalidInputError, 406: err.UnauthenticatedError}
LANCE: errors.ErrorTable = {
    cls.__name__: cls for cls in (type(spec.from_error_code(code, "")) for code in spec.ErrorCode)
}
TABLES: Mapping[str, tuple[errors.ErrorTable, errors.ErrorTable]] = {
    "common": (errors.COMMON_ERRORS, COMMON),
    "http": (errors.HTTP_ERRORS, {**COMMON, **HTTP}),
    "iceberg": (ERRORS, {**COMMON, **HTTP, **SIGNING, **ICEBERG}),
    "oauth2": (OAUTH2_ERRORS, {**COMMON, **HTTP, **OAUTH2}),
    "lance": (LANCE_ERRORS, {**COMMON, **LANCE}),
}
ENTRIES = [
    pytest.param(table, key, cls, id=f"{name}-{key}")
    for name, (table, entries) in TABLES.items()
    for key, cls in entries.items()
]
ODD_WORDS = {
    err.InternalError: "Internal error: ",
    err.TableSchemaValidationError: "Table schema invalid: ",
    err.ThrottlingError: "Throttled: ",
    err.UnsupportedOperationError: "Not supported: ",
    errors.UnreadableRegistrationError: "Table not found: ",
}


def words(cls: type[err.LanceNamespaceError]) -> str:
    """Returns how the messages of a class begin: with its name, except for those above."""
    name = re.sub("(?<=.)[A-Z]", lambda match: f" {match[0].lower()}", cls.__name__.removesuffix("Error"))
    return ODD_WORDS.get(cls, f"{name}: ")


@pytest.mark.parametrize(("table", "key", "cls"), ENTRIES)
def test_entries_are_errors(
    table: errors.ErrorTable, key: errors.Code | tuple[errors.Code, str], cls: type[err.LanceNamespaceError]
) -> None:
    code, where = key if isinstance(key, tuple) else (key, "some_operation")
    subject = KINDS.get(where, TABLE)
    operation = "some_operation" if where in KINDS else where
    error = errors.error_for(errors.Failure(code, message="it says why"), subject, operation, table)
    assert type(error) is cls and str(error).startswith(words(cls))
    assert str(error).endswith(f"({operation}: it says why)")


@pytest.mark.parametrize("name", TABLES)
def test_no_entry_is_left_out_here(name: str) -> None:
    table, entries = TABLES[name]
    assert table == entries


def test_every_error_of_a_table_has_words() -> None:
    assert {f"{phrase}: " for phrase in errors.PHRASES.values()} == set(map(words, LANCE.values()))
    for table, _ in TABLES.values():
        # Our own subclasses begin with the words of their class of the spec.
        assert all(set(errors.PHRASES) & set(cls.__mro__) for cls in table.values())


GONE = "NoSuchTable"
VAGUE: errors.ErrorTable = {404: err.NamespaceNotFoundError}
NAMED: errors.ErrorTable = {GONE: err.TableNotFoundError, **VAGUE}
OF_CODE: errors.ErrorTable = {409: err.InternalError}
OF_KIND: errors.ErrorTable = {**OF_CODE, (409, "table"): err.TableAlreadyExistsError}
OF_OPERATION: errors.ErrorTable = {**OF_KIND, (409, "commit"): err.ConcurrentModificationError}


@pytest.mark.parametrize(
    ("codes", "subject", "operation", "table", "cls"),
    [
        # The first code that is known decides.
        ((GONE, 404), TABLE, "op", NAMED, err.TableNotFoundError),
        ((404, GONE), TABLE, "op", NAMED, err.NamespaceNotFoundError),
        (("Unheard", 404), TABLE, "op", VAGUE, err.NamespaceNotFoundError),
        # A specific code comes before a vague one with its operation.
        ((GONE, 404), TABLE, "op", {**NAMED, (404, "op"): err.InternalError}, err.TableNotFoundError),
        # For one code, its operation is preferred to the kind of the subject, and that to the code alone.
        ((409,), TABLE, "commit", OF_OPERATION, err.ConcurrentModificationError),
        ((409,), TABLE, "declare", OF_OPERATION, err.TableAlreadyExistsError),
        ((409,), TABLE, "commit", OF_KIND, err.TableAlreadyExistsError),
        ((409,), NAMESPACE, "declare", OF_OPERATION, err.InternalError),
        ((), TABLE, "op", errors.HTTP_ERRORS, err.InternalError),
    ],
)
def test_the_most_specific_entry_decides(
    codes: Sequence[errors.Code],
    subject: Id,
    operation: str,
    table: errors.ErrorTable,
    cls: type[err.LanceNamespaceError],
) -> None:
    assert errors.error_class(errors.Failure(*codes, message=""), subject, operation, table) is cls


@given(st.one_of(st.integers(100, 999), st.text()), st.sampled_from([TABLE, NAMESPACE]), st.text())
def test_what_is_in_no_table_is_internal(code: errors.Code, subject: Id, operation: str) -> None:
    error = errors.error_for(errors.Failure(code, message="m"), subject, operation, {})
    assert type(error) is err.InternalError and str(error) == f"Internal error: {subject} ({operation}: m)"


@pytest.mark.parametrize(
    ("subject", "code", "text"),
    [
        (TABLE, "NoSuchTableException", "Table not found: prod$orders (op: gone)"),
        (TABLE, "NoSuchNamespaceException", "Namespace not found: prod (op: gone)"),
        (TableId(["t"]), "NoSuchNamespaceException", "Namespace not found: the catalog (op: gone)"),
        (NAMESPACE, "NoSuchNamespaceException", "Namespace not found: prod$eu (op: gone)"),
        (NAMESPACE, "NamespaceNotEmptyException", "Namespace not empty: prod$eu (op: gone)"),
        (TABLE, 403, "Permission denied: prod$orders (op: gone)"),
        (NamespaceId(), 401, "Unauthenticated: the catalog (op: gone)"),
        (TableId(["a\nb\x1b", "é"]), 403, "Permission denied: a\\nb\\x1b$\\xe9 (op: gone)"),
    ],
)
def test_an_error_names_what_is_missing(subject: Id, code: errors.Code, text: str) -> None:
    assert str(errors.error_for(errors.Failure(code, message="gone"), subject, "op", ERRORS)) == text


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("Permission denied: prod$orders (op: no (b))", "HTTP 403: no (b)"),
        ("Permission denied: prod$orders (other: no)", "HTTP 403: other: no"),
        ("Permission denied: op: prod$orders (no) (X-Request-ID 1)", "HTTP 403: no (X-Request-ID 1)"),
        ("Permission denied: op of prod$orders (no)", "HTTP 403: no"),
        ("Permission denied: prod$orders (op: no (b); c) (X-Request-ID 1)", "HTTP 403: no (b); c (X-Request-ID 1)"),
        ("Permission denied: prod$orders (op: no (b); c)", "HTTP 403: no (b); c"),
        ("Permission denied: op (no)", "HTTP 403: no"),
        ("Permission denied: prod (op: no)", "HTTP 403: prod (op: no)"),
        ("Permission denied: no", "HTTP 403: no"),
        ("Invalid input: prod$orders (op: no)", "HTTP 403: Invalid input: prod$orders (op: no)"),
        ("no (Permission denied: prod$orders (op: no))", "HTTP 403: no (Permission denied: prod$orders (op: no))"),
    ],
)
def test_an_error_says_once_what_a_lance_server_says(message: str, text: str) -> None:
    error = errors.error_for(errors.Failure(403, message=f"HTTP 403: {message}"), TABLE, "op", errors.HTTP_ERRORS)
    assert str(error) == f"Permission denied: prod$orders (op: {text})"


@pytest.mark.parametrize("name", LANCE)
async def test_what_pylance_raises_is_raised_again_with_its_subject(name: str) -> None:
    cls: type[err.LanceNamespaceError] = getattr(spec, name)
    subject = "prod" if cls is err.NamespaceNotFoundError else "prod$orders"
    assert await _raised(lambda: cls("pylance says why")) == (cls, f"{words(cls)}{subject} (op: pylance says why)")


@pytest.mark.parametrize(
    ("make", "cls"),
    [
        (lambda: NotImplementedError("m"), err.UnsupportedOperationError),
        *((it, err.InternalError) for it in (lambda: OSError("m"), lambda: ValueError("m"), lambda: RuntimeError("m"))),
        (lambda: OSError("m: error sending request"), err.ServiceUnavailableError),
        (lambda: err.InternalError("m: error sending request"), err.ServiceUnavailableError),
    ],
)
async def test_builtin_errors_of_pylance(make: Callable[[], Exception], cls: type[err.LanceNamespaceError]) -> None:
    assert await _raised(make) == (cls, f"{words(cls)}prod$orders (op: {make()})")


async def test_where_pylance_made_an_error_is_not_shown() -> None:
    text = "Commit failed: no, /home/ci/rust/lance/src/io.rs:12\nstack"
    assert (await _raised(lambda: OSError(text)))[1].endswith("(op: Commit failed: no)")


async def _raised(make: Callable[[], Exception]) -> tuple[type[err.LanceNamespaceError], str]:
    def work() -> None:
        raise make()

    transport = LanceTransport(Caller(Policy(max_retries=0), LANCE_ERRORS))
    with pytest.raises(err.LanceNamespaceError) as raised:
        await transport.call(work, subject=TABLE, operation="op")
    assert errors.failure_of(raised.value) is not None
    return raised.type, str(raised.value)


def test_texts_of_errors_are_short() -> None:
    assert errors.http_status(errors.NotALanceTableError("m")) == errors.http_status(err.InvalidInputError("m")) == 400
    failure = errors.Failure(500, message="x" * 5000)
    assert failure.message == "x" * 1000 + "..."
    assert "attempts" not in str(errors.error_for(failure, TABLE, "op", errors.HTTP_ERRORS))
    failure.attempts = 3
    text = str(errors.error_for(failure, TABLE, "describe_table", errors.HTTP_ERRORS))
    assert text.endswith("...; 3 attempts)") and len(text) < 1100
    shown = {"owner": "me", "tokens": "***", "fs.s3a.access.KEY": "***", "sas": "***", "db.Password": "***"}
    properties = {"owner": "me", "tokens": "1", "fs.s3a.access.KEY": "2", "sas": "3", "db.Password": "4"}
    assert mask({**properties, "url": "jdbc:x://u:p@host/db?a=b"}) == {**shown, "url": "jdbc:x://***@host/db?***"}


def test_an_error_keeps_its_failure_in_another_process() -> None:
    failure = errors.Failure(503, "busy", message="no", retry_after=2.0, delivered=False)
    failure.attempts = 3
    error = pickle.loads(pickle.dumps(errors.error_for(failure, TABLE, "op", errors.HTTP_ERRORS)))
    again = errors.failure_of(error)
    assert isinstance(error, err.ServiceUnavailableError) and again is not None
    assert (again.codes, str(again), vars(again)) == (failure.codes, str(failure), vars(failure))


def test_how_long_to_wait_comes_from_the_first_error_that_has_it() -> None:
    first = errors.error_for(errors.Failure(503, message="no", retry_after=2.0), TABLE, "op", errors.HTTP_ERRORS)
    again = err.ServiceUnavailableError("again")
    again.__cause__ = first
    assert errors.retry_after(again) == 2.0 and errors.failure_of(again) is None
    assert errors.retry_after(err.ServiceUnavailableError("unsent")) is None


EVIL = "gone\r\n2026-01-01 ERROR root: all is lost\x1b[2J\x1b]0;title\x07\x85\u2028\u202e\x00 end"
ESCAPED = r"gone 2026-01-01 ERROR root: all is lost\x1b[2J\x1b]0;title\x07 \u202e\x00 end"


def of_unity(text: str) -> Any:
    return {"error_code": text, "message": text}


def of_iceberg(text: str) -> Any:
    return {"error": {"type": text, "message": text, "code": 500}}


SERVERS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[[str], Any], list[str]]] = {
    "unity": (FakeUnity, of_unity, ["main", "a", "t"]),
    "iceberg": (FakeIceberg, of_iceberg, ["a", "t"]),
    "lakekeeper": (FakeLakekeeper, of_iceberg, ["a", "t"]),
    "polaris": (FakePolaris, of_iceberg, ["cat", "a", "t"]),
}


@pytest.mark.parametrize("impl", SERVERS)
async def test_codes_and_messages_are_shown_on_one_line(impl: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lance_ns_async")
    start, body, id = SERVERS[impl]
    calls: list[Call] = []
    with start() as server:
        server.fail(500, body=body(EVIL), times=None, match="/t$|/main.a.t|/tables/t|snapshots")
        async with AsyncNamespace.connect(impl, getattr(server, "properties", {"endpoint": server.url})) as ns:
            with ns.observe(calls.append), pytest.raises(err.LanceNamespaceError) as raised:
                await ns.describe_table(DescribeTableRequest(id=id))
    assert ESCAPED in str(raised.value)
    texts = [str(raised.value), *(call.outcome for call in calls), *(record.getMessage() for record in caplog.records)]
    assert any("all is lost" in outcome for outcome in [call.outcome for call in calls])
    assert [text for text in texts if not text.isprintable()] == []


async def test_names_with_control_characters_are_shown_escaped() -> None:
    with FakeUnity() as server:
        async with AsyncNamespace.connect("unity", server.properties) as ns:
            with pytest.raises(err.LanceNamespaceError, match="does not allow the name") as raised:
                await ns.declare_table(DeclareTableRequest(id=["main", "a", "t\x1b[2J\nx"], location="s3://b/t"))
    assert str(raised.value).isprintable() and r"t\x1b[2J x" in str(raised.value)


def test_errors_are_on_one_line() -> None:
    failure = errors.Failure(EVIL, 500, message=EVIL)
    assert failure.codes == (f"{ESCAPED[:100]}...", 500) or failure.codes == (ESCAPED, 500)
    assert failure.message == str(failure) == ESCAPED
    assert ESCAPED in str(errors.not_lance(TableId(["t"]), EVIL))
    error = err.InternalError(f"Internal error: {EVIL}")
    error.add_note(EVIL)
    errors.reduce_to_lines(error)
    assert str(error) == f"Internal error: {ESCAPED}" and error.__notes__ == [ESCAPED]


@given(st.text())
def test_one_line_is_printable_and_leaves_what_is(text: str) -> None:
    shown = errors.one_line(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()
    assert errors.one_line(shown) == shown
