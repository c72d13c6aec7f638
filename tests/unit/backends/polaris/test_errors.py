"""Error responses of Polaris and of its proxies, and the resulting error classes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId
from lance_ns_async.backends.polaris.wire import ERRORS, TOKEN_ERRORS
from lance_ns_async.errors import HTTP_ERRORS
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS
from tests.fakes.polaris import FakePolaris
from tests.fakes.server import When
from tests.support.errors import catch
from tests.support.polaris import connected, described, list_requests
from tests.support.running import running

Operation = Callable[[AsyncNamespace], Coroutine[Any, Any, object]]

OPERATIONS: Mapping[str, Operation] = {
    "list_namespaces": lambda ns: ns.list_namespaces(["cat", "a"]),
    "describe_namespace": lambda ns: ns.describe_namespace(["cat", "a"]),
    "create_namespace": lambda ns: ns.create_namespace(["cat", "a"]),
    "drop_namespace": lambda ns: ns.drop_namespace(["cat", "a"]),
    "list_tables": lambda ns: ns.list_tables(["cat", "a"]),
    "describe_table": lambda ns: described(ns, "cat", "a", "t"),
    "declare_table": lambda ns: ns.declare_table(["cat", "a", "t"], location="s3://b/t"),
    "deregister_table": lambda ns: ns.deregister_table(["cat", "a", "t"]),
}
METHODS = {"create_namespace": "POST", "declare_table": "POST"} | dict.fromkeys(
    ("drop_namespace", "deregister_table"), "DELETE"
)
ON_TABLES = ("describe_table", "deregister_table")

EXISTS = "AlreadyExistsException"
NO_NAMESPACE = "NoSuchNamespaceException"
NO_TABLE = "NoSuchTableException"
TAKEN = "Unable to create entity at location 'x' because it conflicts with existing table or namespace at location 'y'"

TYPED: list[tuple[str, int, str, type[err.LanceNamespaceError]]] = [
    *(("describe_table", 404, it, err.TableNotFoundError) for it in (NO_TABLE, NO_NAMESPACE)),
    *(("deregister_table", 404, it, err.TableNotFoundError) for it in (NO_TABLE, NO_NAMESPACE)),
    *(
        (operation, 404, NO_NAMESPACE, err.NamespaceNotFoundError)
        for operation in OPERATIONS
        if operation not in ON_TABLES
    ),
    ("create_namespace", 409, EXISTS, err.NamespaceAlreadyExistsError),
    ("declare_table", 409, EXISTS, err.TableAlreadyExistsError),
    ("drop_namespace", 409, "NamespaceNotEmptyException", err.NamespaceNotEmptyError),
    *((operation, 403, "ForbiddenException", err.PermissionDeniedError) for operation in OPERATIONS),
    *((operation, 404, "MissingOrInvalidRealm", err.InternalError) for operation in OPERATIONS),
    *((operation, 404, "NotFoundException", err.InternalError) for operation in OPERATIONS),
    *((operation, 405, "NotAllowedException", err.InternalError) for operation in OPERATIONS),
    *((operation, 400, "IllegalArgumentException", err.InvalidInputError) for operation in OPERATIONS),
    ("list_tables", 400, "ResteasyReactiveViolationException", err.InvalidInputError),
    ("declare_table", 400, "WebApplicationException", err.InvalidInputError),
    ("list_namespaces", 500, "RuntimeException", err.InternalError),
    ("describe_namespace", 500, "NullPointerException", err.InternalError),
    ("describe_table", 406, "NotAcceptableException", err.InternalError),
    ("declare_table", 415, "NotSupportedException", err.InternalError),
    ("list_tables", 429, "TooManyRequestsException", err.ThrottlingError),
    ("list_tables", 503, "ServiceUnavailableException", err.ServiceUnavailableError),
    *(("describe_table", 403, str(code), error) for code, error in SIGNING_ERRORS.items()),
]

UNTYPED: list[tuple[str, int, type[err.LanceNamespaceError]]] = [
    *((operation, 404, err.TableNotFoundError) for operation in ON_TABLES),
    *((operation, 404, err.NamespaceNotFoundError) for operation in OPERATIONS if operation not in ON_TABLES),
    ("create_namespace", 409, err.NamespaceAlreadyExistsError),
    ("drop_namespace", 409, err.NamespaceNotEmptyError),
    ("declare_table", 409, err.TableAlreadyExistsError),
    # tests/faults has the usual ones.
    *(("describe_table", status, err.InternalError) for status in (405, 406, 415, 501)),
    ("describe_table", 400, err.InvalidInputError),
    ("describe_table", 419, err.UnauthenticatedError),
    ("describe_table", 422, err.InvalidInputError),
]


Error = type[err.LanceNamespaceError]


@pytest.mark.parametrize(("operation", "status", "type", "error"), TYPED)
async def test_typed_error(
    server: FakePolaris, ns: AsyncNamespace, operation: str, status: int, type: str, error: Error
) -> None:
    server.add_table("cat", ("a",), "t")
    body = {"error": {"message": "so it is", "type": type, "code": status}}
    headers = {"X-Request-ID": "req-4711"}
    server.fail(status, times=None, match=METHODS.get(operation, "GET"), body=body, headers=headers)
    raised = await catch(error, OPERATIONS[operation](ns))
    assert raised.type is error
    assert f"({operation}: HTTP {status}: {type}: so it is" in str(raised.value)
    assert "(X-Request-ID req-4711)" in str(raised.value)
    mistakes = {"MissingOrInvalidRealm": "property realm", "NotFoundException": "is the endpoint right?"}
    assert mistakes.get(type, "") in str(raised.value)
    # This is the meaning of the same type in Iceberg.
    assert "lost its own metadata" not in str(raised.value)


@pytest.mark.parametrize("body", [b"", b"<html>a proxy's page</html>", {"message": "not here"}, {"error": "odd"}, []])
@pytest.mark.parametrize(("operation", "status", "error"), UNTYPED)
async def test_untyped_error(
    server: FakePolaris, ns: AsyncNamespace, operation: str, status: int, error: Error, body: object
) -> None:
    server.add_table("cat", ("a",), "t")
    server.fail(status, times=None, match=METHODS.get(operation, "GET"), body=body)
    assert (await catch(error, OPERATIONS[operation](ns), f"{operation}: HTTP {status}: ")).type is error


def test_every_entry_of_the_table_has_a_case() -> None:
    cases = {error_type for _, _, error_type, _ in TYPED} | {status for _, status, _ in UNTYPED}
    codes = {key[0] if isinstance(key, tuple) else key for key in ERRORS if key not in HTTP_ERRORS}
    assert codes - cases == {"location taken"}
    assert TOKEN_ERRORS["MissingOrInvalidRealm"] is err.InternalError


async def test_iceberg_table_of_the_same_name_and_location_of_another_namespace(
    server: FakePolaris, ns: AsyncNamespace
) -> None:
    server.add_iceberg_table("cat", ("a",), "ice")
    await catch(err.TableAlreadyExistsError, ns.declare_table(["cat", "a", "ice"]), r"Table already exists: a\.ice")
    await catch(err.TableNotFoundError, described(ns, "cat", "a", "ice"))
    await catch(err.NamespaceNotEmptyError, ns.drop_namespace(["cat", "a"]))
    with pytest.raises(err.InvalidInputError, match="conflicts with existing table or namespace at"):
        await ns.create_namespace(["cat", "a/b"])
    server.fail(403, match="POST", body={"error": {"message": TAKEN, "type": "ForbiddenException", "code": 403}})
    await catch(err.InvalidInputError, ns.create_namespace(["cat", "b"]), "HTTP 403")
    server.add_catalog("lake")
    own = ns.create_namespace(["lake", "a"], properties={"location": "file:///elsewhere"})
    await catch(err.InvalidInputError, own, "custom location")


async def test_rights_are_distinguished_from_missing_things() -> None:
    async with running(connected, FakePolaris(powerless={"bob": "pw"}), credential="bob:pw") as (server, ns):
        server.add_table("cat", ("a",), "t")
        for operation in OPERATIONS.values():
            await catch(err.PermissionDeniedError, operation(ns), "Principal 'bob'")
        await catch(err.TableNotFoundError, described(ns, "cat", "a", "none"))
        await catch(err.NamespaceNotFoundError, ns.list_tables(["cat", "none"]))


async def test_an_address_that_is_no_polaris_is_no_missing_table(server: FakePolaris) -> None:
    server.add_table("cat", ("a",), "t")
    async with connected(server, endpoint=f"{server.endpoint}/not/here") as ns:
        await catch(err.InternalError, described(ns, "cat", "a", "t"), "NotFoundException: HTTP 404 Not Found")
        await catch(err.InternalError, ns.exists(["cat", "a", "t"]))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ('{"table": {"name": "t", "format": "lance", "base-loc', "no JSON"),
        ('{"a": 1}', "unknown form.*it holds a"),
        ('{"table": {"format": "lance", "base-location": 5}}', "instead of a string"),
        ('{"table": {"format": "lance", "base-location": "x", "properties": {"k": 1}}}', "instead of a string"),
    ],
)
async def test_malformed_answer(server: FakePolaris, ns: AsyncNamespace, answer: str, message: str) -> None:
    server.reply(answer, times=None)
    await catch(err.InternalError, described(ns, "cat", "a", "t"), message)


async def test_an_answer_that_is_cut_short_quotes_no_secret(server: FakePolaris, ns: AsyncNamespace) -> None:
    server.reply('{"storage-access-configs": [{"config": {"s3.secret-access-key": "sesame"', times=None)
    raised = await catch(err.InternalError, described(ns, "cat", "a", "t", vend=True))
    assert "sesame" not in str(raised.value)


RACES = [
    ("IllegalStateException", "Unable to resolve sibling entities: PATH_COULD_NOT_BE_FULLY_RESOLVED"),
    ("NullPointerException", 'Cannot invoke "PolarisResolvedPathWrapper.getRawLeafEntity()" because it is null'),
]


@pytest.mark.parametrize(("type", "message"), RACES)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("mode", ["Create", "ExistOk"])
async def test_race(server: FakePolaris, ns: AsyncNamespace, type: str, message: str, when: When, mode: str) -> None:
    """`before` the creation the namespace is missing, so it is created; `after` it, another call has created it."""
    server.add_catalog("lake")
    server.fail(500, match="POST", body={"error": {"message": message, "type": type, "code": 500}}, when=when)
    create = ns.create_namespace(["lake", "a"], mode=mode, properties={"k": "v"})
    if when == "after" and mode == "Create":
        await catch(err.NamespaceAlreadyExistsError, create, "at the same time")
    else:
        assert ("k", "v") in ((await create).properties or {}).items()
    assert await ns.exists(NamespaceId(["lake", "a"]))


async def test_a_creation_that_loses_every_race_fails(server: FakePolaris, ns: AsyncNamespace) -> None:
    server.add_catalog("lake")
    body = {"error": {"message": RACES[0][1], "type": RACES[0][0], "code": 500}}
    server.fail(500, match="POST", body=body, times=None)
    server.clear()
    await catch(err.InternalError, ns.create_namespace(["lake", "a"]), "sibling entities")
    post = "POST catalog/v1/lake/namespaces"
    assert list_requests(server) == [post, "GET catalog/v1/lake/namespaces/a", post]
