"""Completeness of the error tables, and the errors of changes that lost their response or a race."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import lance_namespace.errors as err
import pytest

import lance_ns_async
from lance_ns_async import NamespaceId, TableId, registry
from lance_ns_async.backends.base import Backend
from lance_ns_async.backends.shared.lost_responses import (
    LOST_RACE,
    create_or_check_race,
    create_or_find,
    remove_or_check,
)
from lance_ns_async.errors import PHRASES, Code, Failure, error_class, with_failure
from lance_ns_async.spec.routes import ROUTES
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS
from tests.support.errors import catch

PACKAGE = Path(lance_ns_async.__file__).parent
INTERNAL = {"unreadable", "TApplicationException"}
"""Codes without a row: a response that cannot be decoded, and a server's exception of no known type."""

ANY = "list_namespaces describe_namespace create_namespace drop_namespace list_tables describe_table"
ICEBERG: Mapping[Code, str] = {
    **dict.fromkeys((400, 401, 403, 419, 429, 503, 504), f"{ANY} declare_table deregister_table"),
    404: f"{ANY} declare_table deregister_table rename_table",
    406: "create_namespace rename_table",
    409: "create_namespace drop_namespace declare_table rename_table",
    422: "create_namespace",
}
"""The statuses of the Iceberg REST specification, except of 500, which is an internal error."""

DOCUMENTED: Mapping[str, Mapping[Code, str]] = {
    "dir": {f"{cls.__name__}": ANY for cls in PHRASES if cls is not err.InternalError},
    "glue": {
        "AccessDeniedException": ANY,
        "AlreadyExistsException": "create_namespace declare_table rename_table",
        "ConcurrentModificationException": f"{ANY} declare_table deregister_table rename_table replace_table",
        "EntityNotFoundException": f"{ANY} declare_table deregister_table rename_table",
        "FederatedResourceAlreadyExistsException": "create_namespace declare_table",
        "FederationSourceException": ANY,
        "FederationSourceRetryableException": ANY,
        "InternalServiceException": ANY,
        "InvalidInputException": f"{ANY} declare_table deregister_table rename_table",
        "OperationTimeoutException": ANY,
        "PermissionTypeMismatchException": "describe_table",
        "ResourceNotReadyException": "declare_table",
        "ResourceNumberLimitExceededException": "create_namespace declare_table",
        "ThrottlingException": ANY,
    },
    "iceberg": {
        **ICEBERG,
        405: "vend_credentials",
        "NamespaceNotEmptyException": "drop_namespace",
        "NoSuchNamespaceException": f"{ANY} declare_table",
        "NoSuchTableException": "describe_table deregister_table rename_table",
    },
    "lakekeeper": {
        **{code: operations for code, operations in ICEBERG.items() if code != 406},
        "NamespaceNotEmptyException": "drop_namespace",
        "NoSuchNamespaceException": f"{ANY} declare_table deregister_table",
        "NoSuchWarehouseException": "get_config",
    },
    "rest": {cls.code.name: f"{ANY} declare_table" for cls in PHRASES if cls is not err.InternalError},
}
"""The codes in catalogs' specifications, with the operations that can fail with them; other backends test each code."""

TRANSPORTS = {"dir": "lance.py", "glue": "aws", "hive2": "thrift", "hive3": "thrift"}
"""The transport of each backend; all others use HTTP."""


def calls_in(*paths: str) -> Iterator[ast.Call]:
    """Yields the calls in the sources of the package below `paths`."""
    for path in paths:
        root = PACKAGE / path
        for file in [root] if root.is_file() else root.rglob("*.py"):
            yield from (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))


OPERATIONS = (
    {name for name in vars(Backend) if not name.startswith("_")}
    | {route.operation for route in ROUTES}
    | {
        keyword.value.value
        for call in calls_in("backends", "transports")
        for keyword in call.keywords
        if keyword.arg == "operation" and isinstance(keyword.value, ast.Constant)
    }
)


@pytest.mark.parametrize("impl", registry.BACKENDS)
def test_the_table_is_in_the_folder_of_the_backend_and_names_its_operations(impl: str) -> None:
    folder = registry.BACKENDS[impl].module.removesuffix("backend")
    module = {"dir": "backend", "hive2": "responses", "hive3": "responses"}.get(impl, "wire")
    assert registry.load(impl).errors is import_module(folder + module).ERRORS
    contexts = {key[1] for key in registry.load(impl).errors if isinstance(key, tuple)}
    assert contexts - {"namespace", "table"} <= OPERATIONS


@pytest.mark.parametrize("impl", registry.BACKENDS)
def test_codes_of_the_transport_have_rows(impl: str) -> None:
    folder = TRANSPORTS.get(impl, "http")
    codes = {
        code.value
        for call in calls_in(f"transports/{folder}", "transports/responses.py", "calls")
        if isinstance(call.func, ast.Name) and call.func.id == "Failure"
        for code in call.args
        if isinstance(code, ast.Constant)
    }
    assert {"deadline", "mismatch", "timeout"} <= codes
    signed = SIGNING_ERRORS.keys() if impl in ("iceberg", "polaris", "rest") else set()
    assert (codes - INTERNAL) | signed <= registry.load(impl).errors.keys()


@pytest.mark.parametrize("impl", DOCUMENTED)
def test_documented_codes_have_rows(impl: str) -> None:
    errors = registry.load(impl).errors
    for code, operations in DOCUMENTED[impl].items():
        for operation in operations.split():
            subject = NamespaceId(["a"]) if operation.endswith(("namespace", "namespaces")) else TableId(["a", "t"])
            cls = error_class(Failure(code, message=""), subject, operation, errors)
            assert cls is not err.InternalError, (code, operation)


ID, SPACE = TableId(["a", "t"]), NamespaceId(["a"])


def failing(error: err.LanceNamespaceError, cause: Exception | None = None) -> Callable[[], Awaitable[NoReturn]]:
    if isinstance(cause, Failure):
        with_failure(error, cause)

    async def fail() -> NoReturn:
        raise error from cause

    return fail


def lost(delivered: bool | None = None) -> Callable[[], Awaitable[NoReturn]]:
    return failing(err.ServiceUnavailableError("lost"), Failure("disconnected", message="cut", delivered=delivered))


async def it() -> str:
    return "it"


async def nothing() -> None:
    return None


@pytest.mark.parametrize("delivered", [None, True])
async def test_only_what_may_have_been_done_is_looked_up(delivered: bool | None) -> None:
    assert await create_or_find(ID, it, failing(err.InternalError("looked up"))) == "it"
    await remove_or_check(nothing, failing(err.InternalError("looked up")))
    assert await create_or_find(ID, lost(delivered), it) == "it"
    for missing in (err.TableNotFoundError("gone"), err.NamespaceNotFoundError("gone")):
        await remove_or_check(lost(delivered), failing(missing))
    await catch(err.ServiceUnavailableError, remove_or_check(lost(delivered), it), "lost")


async def test_an_object_of_others_or_the_first_error_is_reported() -> None:
    await catch(err.TableAlreadyExistsError, create_or_find(ID, lost(), nothing), r"a\$t \(created by another client")
    space = create_or_find(SPACE, lost(), nothing, err.NamespaceAlreadyExistsError)
    await catch(err.NamespaceAlreadyExistsError, space, r"^Namespace already exists: a \(created by another client\)$")
    rolled_back = failing(err.InternalError("lost"), Failure(LOST_RACE, message="another was first"))
    await catch(err.TableAlreadyExistsError, create_or_find(ID, rolled_back, it))
    find = failing(err.PermissionDeniedError("not yours"))
    for work in (create_or_find(ID, lost(), find), remove_or_check(lost(), find)):
        raised = await catch(err.ServiceUnavailableError, work, "lost")
        assert isinstance(raised.value.__cause__, err.PermissionDeniedError)
    # Such an error still belongs to a call that may have acted.
    assert await create_or_find(ID, lambda: create_or_find(ID, lost(), find), it) == "it"


async def test_what_was_never_sent_or_was_rejected_is_not_looked_up() -> None:
    for create in (
        lost(delivered=False),
        # It waited for a token that another call then failed to get: such an error has no failure of its own.
        failing(err.ServiceUnavailableError("lost"), err.ServiceUnavailableError("no token")),
        failing(err.ServiceUnavailableError("lost")),
        failing(err.PermissionDeniedError("lost"), Failure(403, message="no", delivered=None)),
    ):
        for work in (create_or_find(ID, create, it), remove_or_check(create, failing(err.TableNotFoundError("gone")))):
            await catch((err.ServiceUnavailableError, err.PermissionDeniedError), work, "lost")


def answers(*outcomes: str | err.LanceNamespaceError) -> Callable[[], Awaitable[str]]:
    """Returns a call that returns or raises each outcome once, in order."""
    left = iter(outcomes)

    async def call() -> str:
        outcome = next(left)
        if isinstance(outcome, str):
            return outcome
        raise outcome

    return call


def lost_race(code: str = LOST_RACE) -> err.InternalError:
    return with_failure(err.InternalError("lost"), Failure(code, message="lost"))


async def test_only_a_lost_race_is_looked_up() -> None:
    assert await create_or_check_race(SPACE, answers("made"), answers()) == "made"
    await catch(err.InternalError, create_or_check_race(SPACE, answers(lost_race("INTERNAL")), answers()), "lost")
    there = create_or_check_race(SPACE, answers(lost_race()), answers("there"))
    await catch(err.NamespaceAlreadyExistsError, there, "created by another call at the same time")
    # One that was dropped meanwhile is created again, and a lookup that fails leaves the first error.
    gone = err.NamespaceNotFoundError("gone")
    assert await create_or_check_race(SPACE, answers(lost_race(), "made"), answers(gone)) == "made"
    denied = create_or_check_race(SPACE, answers(lost_race()), answers(err.PermissionDeniedError("no")))
    await catch(err.InternalError, denied, "lost")
