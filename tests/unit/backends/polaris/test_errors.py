"""Error responses of Polaris and of its proxies, and the resulting error classes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
    ListTablesRequest,
)
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
)

from lance_ns_async import AsyncNamespace, NamespaceId
from lance_ns_async.backends.polaris.wire import ERRORS, TOKEN_ERRORS
from lance_ns_async.errors import HTTP_ERRORS
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS
from tests.fakes.polaris import FakePolaris
from tests.fakes.server import When
from tests.support.polaris import connected, described, list_requests, open_server

Operation = Callable[[AsyncNamespace], Coroutine[Any, Any, object]]

OPERATIONS: Mapping[str, Operation] = {
    "list_namespaces": lambda ns: ns.list_namespaces(ListNamespacesRequest(id=["cat", "a"])),
    "describe_namespace": lambda ns: ns.describe_namespace(DescribeNamespaceRequest(id=["cat", "a"])),
    "create_namespace": lambda ns: ns.create_namespace(CreateNamespaceRequest(id=["cat", "a"])),
    "drop_namespace": lambda ns: ns.drop_namespace(DropNamespaceRequest(id=["cat", "a"])),
    "list_tables": lambda ns: ns.list_tables(ListTablesRequest(id=["cat", "a"])),
    "describe_table": lambda ns: described(ns, "cat", "a", "t"),
    "declare_table": lambda ns: ns.declare_table(DeclareTableRequest(id=["cat", "a", "t"], location="s3://b/t")),
    "deregister_table": lambda ns: ns.deregister_table(DeregisterTableRequest(id=["cat", "a", "t"])),
}
METHODS = {"create_namespace": "POST", "declare_table": "POST"} | dict.fromkeys(
    ["drop_namespace", "deregister_table"], "DELETE"
)
ON_TABLES = ("describe_table", "deregister_table")

EXISTS = "AlreadyExistsException"
NO_NAMESPACE = "NoSuchNamespaceException"
NO_TABLE = "NoSuchTableException"
TAKEN = "Unable to create entity at location 'x' because it conflicts with existing table or namespace at location 'y'"

TYPED: list[tuple[str, int, str, type[LanceNamespaceError]]] = [
    ("describe_table", 404, NO_TABLE, TableNotFoundError),
    ("describe_table", 404, NO_NAMESPACE, TableNotFoundError),
    ("deregister_table", 404, NO_TABLE, TableNotFoundError),
    ("deregister_table", 404, NO_NAMESPACE, TableNotFoundError),
    *((operation, 404, NO_NAMESPACE, NamespaceNotFoundError) for operation in OPERATIONS if operation not in ON_TABLES),
    ("create_namespace", 409, EXISTS, NamespaceAlreadyExistsError),
    ("declare_table", 409, EXISTS, TableAlreadyExistsError),
    ("drop_namespace", 409, "NamespaceNotEmptyException", NamespaceNotEmptyError),
    *((operation, 403, "ForbiddenException", PermissionDeniedError) for operation in OPERATIONS),
    *((operation, 404, "MissingOrInvalidRealm", InternalError) for operation in OPERATIONS),
    *((operation, 404, "NotFoundException", InternalError) for operation in OPERATIONS),
    *((operation, 405, "NotAllowedException", InternalError) for operation in OPERATIONS),
    *((operation, 400, "IllegalArgumentException", InvalidInputError) for operation in OPERATIONS),
    ("list_tables", 400, "ResteasyReactiveViolationException", InvalidInputError),
    ("declare_table", 400, "WebApplicationException", InvalidInputError),
    ("list_namespaces", 500, "RuntimeException", InternalError),
    ("describe_namespace", 500, "NullPointerException", InternalError),
    ("describe_table", 406, "NotAcceptableException", InternalError),
    ("declare_table", 415, "NotSupportedException", InternalError),
    ("list_tables", 429, "TooManyRequestsException", ThrottlingError),
    ("list_tables", 503, "ServiceUnavailableException", ServiceUnavailableError),
    *(("describe_table", 403, str(code), error) for code, error in SIGNING_ERRORS.items()),
]

UNTYPED: list[tuple[str, int, type[LanceNamespaceError]]] = [
    *((operation, 404, TableNotFoundError) for operation in ON_TABLES),
    *((operation, 404, NamespaceNotFoundError) for operation in OPERATIONS if operation not in ON_TABLES),
    ("create_namespace", 409, NamespaceAlreadyExistsError),
    ("drop_namespace", 409, NamespaceNotEmptyError),
    ("declare_table", 409, TableAlreadyExistsError),
    *(
        ("describe_table", status, error)
        for status, error in {
            400: InvalidInputError,
            401: UnauthenticatedError,
            403: PermissionDeniedError,
            405: InternalError,
            406: InternalError,
            408: ServiceUnavailableError,
            409: InternalError,
            415: InternalError,
            418: InternalError,
            419: UnauthenticatedError,
            422: InvalidInputError,
            429: ThrottlingError,
            500: InternalError,
            501: InternalError,
            502: ServiceUnavailableError,
            503: ServiceUnavailableError,
            504: ServiceUnavailableError,
        }.items()
    ),
]


@pytest.mark.parametrize(("operation", "status", "type", "error"), TYPED)
async def test_the_type_of_an_error_decides_first(
    operation: str, status: int, type: str, error: type[LanceNamespaceError]
) -> None:
    with open_server() as server:
        server.add_table("cat", ("a",), "t")
        body = {"error": {"message": "so it is", "type": type, "code": status}}
        server.fail(
            status, times=None, match=METHODS.get(operation, "GET"), body=body, headers={"X-Request-ID": "req-4711"}
        )
        async with connected(server) as ns:
            with pytest.raises(error) as raised:
                await OPERATIONS[operation](ns)
        assert raised.type is error
        assert f"({operation}: HTTP {status}: {type}: so it is" in str(raised.value)
        assert "(X-Request-ID req-4711)" in str(raised.value)
        mistakes = {"MissingOrInvalidRealm": "property realm", "NotFoundException": "is the endpoint right?"}
        assert mistakes.get(type, "") in str(raised.value)
        # This is the meaning of the same type in Iceberg.
        assert "lost its own metadata" not in str(raised.value)


@pytest.mark.parametrize("body", [b"", b"<html>a proxy's page</html>", {"message": "not here"}, {"error": "odd"}, []])
@pytest.mark.parametrize(("operation", "status", "error"), UNTYPED)
async def test_without_a_type_status_and_operation_decide(
    operation: str, status: int, error: type[LanceNamespaceError], body: object
) -> None:
    with open_server() as server:
        server.add_table("cat", ("a",), "t")
        server.fail(status, times=None, match=METHODS.get(operation, "GET"), body=body)
        async with connected(server) as ns:
            with pytest.raises(error, match=f"{operation}: HTTP {status}: ") as raised:
                await OPERATIONS[operation](ns)
        assert raised.type is error


def test_every_entry_of_the_table_has_a_case() -> None:
    cases = {error_type for _, _, error_type, _ in TYPED} | {status for _, status, _ in UNTYPED}
    codes = {key[0] if isinstance(key, tuple) else key for key in ERRORS if key not in HTTP_ERRORS}
    assert codes - cases == {"location taken"}
    assert TOKEN_ERRORS["MissingOrInvalidRealm"] is InternalError


async def test_a_namespace_in_the_place_of_another_is_no_matter_of_rights() -> None:
    with open_server() as server:
        server.add_namespace("cat", ("a",))
        async with connected(server) as ns:
            with pytest.raises(InvalidInputError, match="conflicts with existing table or namespace at"):
                await ns.create_namespace(CreateNamespaceRequest(id=["cat", "a/b"]))
            body = {"error": {"message": TAKEN, "type": "ForbiddenException", "code": 403}}
            server.fail(403, match="POST", body=body)
            with pytest.raises(InvalidInputError, match="HTTP 403"):
                await ns.create_namespace(CreateNamespaceRequest(id=["cat", "b"]))


async def test_a_namespace_with_a_place_of_its_own_is_refused() -> None:
    with open_server() as server:
        server.add_catalog("cat")
        async with connected(server) as ns:
            with pytest.raises(InvalidInputError, match="custom location"):
                await ns.create_namespace(
                    CreateNamespaceRequest(id=["cat", "a"], properties={"location": "file:///elsewhere"})
                )


async def test_what_is_missing_above_a_table_is_reported_as_far_as_the_server_does() -> None:
    with open_server() as server:
        server.add_namespace("cat", ("a",))
        async with connected(server) as ns:
            for id in (["cat", "a", "none"], ["cat", "none", "t"], ["none", "a", "t"]):
                with pytest.raises(TableNotFoundError, match=rf"^Table not found: {'[$]'.join(id)} "):
                    await described(ns, *id)
            for parent in (["cat", "none"], ["none", "a"], ["cat", "a", "none"]):
                named = rf"^Namespace not found: {'[$]'.join(parent)} "
                with pytest.raises(NamespaceNotFoundError, match=named):
                    await ns.list_tables(ListTablesRequest(id=parent))
                with pytest.raises(NamespaceNotFoundError, match=named):
                    await ns.declare_table(DeclareTableRequest(id=[*parent, "t"], location="s3://b/t"))
                with pytest.raises(NamespaceNotFoundError, match=named):
                    await ns.list_namespaces(ListNamespacesRequest(id=parent))
                with pytest.raises(NamespaceNotFoundError, match=r"^Namespace not found: "):
                    await ns.create_namespace(CreateNamespaceRequest(id=[*parent, "new"]))
                with pytest.raises(NamespaceNotFoundError, match=named):
                    await ns.drop_namespace(DropNamespaceRequest(id=parent))
                await ns.drop_namespace(DropNamespaceRequest(id=parent, mode="skip"))


async def test_a_table_another_format_has_the_name_of_exists_and_is_no_generic_one() -> None:
    with open_server() as server:
        server.add_iceberg_table("cat", ("a",), "ice")
        async with connected(server) as ns:
            with pytest.raises(TableAlreadyExistsError, match=r"Table already exists: a\.ice"):
                await ns.declare_table(DeclareTableRequest(id=["cat", "a", "ice"]))
            with pytest.raises(TableNotFoundError):
                await described(ns, "cat", "a", "ice")
            with pytest.raises(NamespaceNotEmptyError):
                await ns.drop_namespace(DropNamespaceRequest(id=["cat", "a"]))


async def test_rights_are_distinguished_from_missing_things() -> None:
    with FakePolaris(powerless={"bob": "pw"}) as server:
        server.add_table("cat", ("a",), "t")
        async with connected(server, credential="bob:pw") as ns:
            for operation in OPERATIONS.values():
                with pytest.raises(PermissionDeniedError, match="Principal 'bob'"):
                    await operation(ns)
            with pytest.raises(TableNotFoundError):
                await described(ns, "cat", "a", "none")
            with pytest.raises(NamespaceNotFoundError):
                await ns.list_tables(ListTablesRequest(id=["cat", "none"]))


async def test_an_address_that_is_no_polaris_is_no_missing_table() -> None:
    with open_server() as server:
        server.add_table("cat", ("a",), "t")
        async with connected(server, endpoint=f"{server.endpoint}/not/here") as ns:
            with pytest.raises(InternalError, match="NotFoundException: HTTP 404 Not Found"):
                await described(ns, "cat", "a", "t")
            with pytest.raises(InternalError):
                await ns.exists(["cat", "a", "t"])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("<html>a proxy's page</html>", "no JSON.*a proxy's page"),
        ('{"table": {"name": "t", "format": "lance", "base-loc', "no JSON"),
        ('{"a": 1}', "unknown form.*it holds a"),
        ("[]", "unknown form"),
        ("", "unknown form"),
        ('{"table": {"format": "lance", "base-location": 5}}', "instead of a string"),
        ('{"table": {"format": "lance", "base-location": "x", "properties": {"k": 1}}}', "instead of a string"),
    ],
)
async def test_an_answer_of_another_kind_is_reported(answer: str, message: str) -> None:
    with open_server() as server:
        server.reply(answer)
        async with connected(server) as ns:
            with pytest.raises(InternalError, match=message):
                await described(ns, "cat", "a", "t")


async def test_an_answer_that_is_cut_short_quotes_no_secret() -> None:
    with open_server() as server:
        server.reply('{"storage-access-configs": [{"config": {"s3.secret-access-key": "sesame"')
        async with connected(server) as ns:
            with pytest.raises(InternalError) as raised:
                await described(ns, "cat", "a", "t", vend=True)
        assert "sesame" not in str(raised.value)


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0"}], ids=["alone", "retry-after"])
@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_load_that_fails_for_a_passing_reason_is_sent_again(status: int, headers: dict[str, str]) -> None:
    with open_server() as server:
        server.add_table("cat", ("a",), "t")
        server.fail(status, times=2, headers=headers)
        async with connected(server) as ns:
            assert (await described(ns, "cat", "a", "t")).location
        assert len(list_requests(server)) == 3


@pytest.mark.parametrize(("retries", "attempts"), [("0", 1), ("2", 3), (None, 4)])
async def test_there_are_no_more_attempts_than_allowed(retries: str | None, attempts: int) -> None:
    with open_server() as server:
        server.fail(429, times=None)
        async with connected(server, **({"max_retries": retries} if retries else {})) as ns:
            with pytest.raises(ThrottlingError):
                await described(ns, "cat", "a", "t")
        assert len(list_requests(server)) == attempts


async def test_a_connection_that_breaks_is_made_anew_for_what_changes_nothing() -> None:
    with open_server() as server:
        server.add_table("cat", ("a",), "t")
        async with connected(server) as ns:
            server.cut(times=2, match="GET")
            assert (await described(ns, "cat", "a", "t")).location
            server.clear()
            server.cut(match="POST")
            with pytest.raises(ServiceUnavailableError, match="whether it took effect is unknown"):
                await ns.create_namespace(CreateNamespaceRequest(id=["cat", "new"]))
            assert len(list_requests(server)) == 1
        server.stop()
        async with connected(server, max_retries="1") as ns:
            with pytest.raises(ServiceUnavailableError, match=r"is the endpoint right and the server up.*2 attempts"):
                await ns.create_namespace(CreateNamespaceRequest(id=["cat", "new"]))


async def test_an_answer_that_does_not_come_is_awaited_as_long_as_configured() -> None:
    with open_server() as server:
        with server.hold():
            async with connected(server, read_timeout="100", connect_timeout="400", max_retries="0") as ns:
                with pytest.raises(ServiceUnavailableError, match=r"no answer within 0\.5 s"):
                    await described(ns, "cat", "a", "t")


async def test_one_bad_table_spoils_no_other() -> None:
    with open_server() as server:
        names = server.add_lance_tables("cat", ("a",), 50)
        server.add_table("cat", ("a",), "delta", format="delta")
        server.fail(403, match="t0007", body=b"")
        server.fail(503, times=8, match="t001")
        async with connected(server) as ns:
            result = await ns.describe_tables([["cat", "a", name] for name in [*names, "delta", "none"]])
        assert len(result.tables) == 49
        errors = {id.name: type(error) for id, error in result.errors.items()}
        assert errors.pop("t0007") is PermissionDeniedError and errors.pop("none") is TableNotFoundError
        assert list(errors) == ["delta"] and issubclass(errors["delta"], InvalidInputError)
        for error in result.errors.values():
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), again.code, str(again)) == (type(error), error.code, str(error))


RACES = [
    ("IllegalStateException", "Unable to resolve sibling entities: PATH_COULD_NOT_BE_FULLY_RESOLVED"),
    ("NullPointerException", 'Cannot invoke "PolarisResolvedPathWrapper.getRawLeafEntity()" because it is null'),
]


@pytest.mark.parametrize(("type", "message"), RACES)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("mode", ["Create", "ExistOk"])
async def test_a_creation_that_lost_a_race_is_looked_up(type: str, message: str, when: When, mode: str) -> None:
    """`before` the creation the namespace is missing, so it is created; `after` it, another call has created it."""
    with open_server() as server:
        server.add_catalog("cat")
        body = {"error": {"message": message, "type": type, "code": 500}}
        server.fail(500, match="POST", body=body, when=when)
        async with connected(server) as ns:
            create = ns.create_namespace(CreateNamespaceRequest(id=["cat", "a"], mode=mode, properties={"k": "v"}))
            if when == "after" and mode == "Create":
                with pytest.raises(NamespaceAlreadyExistsError, match="at the same time"):
                    await create
            else:
                assert ("k", "v") in ((await create).properties or {}).items()
            assert await ns.exists(NamespaceId(["cat", "a"]))


async def test_a_creation_that_loses_every_race_fails() -> None:
    with open_server() as server:
        server.add_catalog("cat")
        body = {"error": {"message": RACES[0][1], "type": RACES[0][0], "code": 500}}
        server.fail(500, match="POST", body=body, times=None)
        async with connected(server) as ns:
            server.clear()
            with pytest.raises(InternalError, match="sibling entities"):
                await ns.create_namespace(CreateNamespaceRequest(id=["cat", "a"]))
        post = "POST catalog/v1/cat/namespaces"
        assert list_requests(server) == [post, "GET catalog/v1/cat/namespaces/a", post]
