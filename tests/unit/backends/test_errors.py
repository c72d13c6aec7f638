"""Completeness of the error tables of all backends."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import lance_namespace.errors as err
import pytest

import lance_ns_async
from lance_ns_async import registry
from lance_ns_async.backends.base import Backend
from lance_ns_async.errors import PHRASES, Code, Failure, error_class
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.spec.routes import ROUTES
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS

PACKAGE = Path(lance_ns_async.__file__).parent
INTERNAL = {"unreadable", "TApplicationException"}
"""Codes without a row: a response that cannot be decoded, and a server's exception of no known type."""

ANY = "list_namespaces describe_namespace create_namespace drop_namespace list_tables describe_table"
HIVE: Mapping[Code, str] = {
    "AlreadyExistsException": "create_namespace declare_table",
    "InvalidObjectException": "create_namespace declare_table",
    "InvalidOperationException": "drop_namespace rename_table replace_table",
    "NoSuchObjectException": "describe_namespace drop_namespace create_namespace declare_table",
    "UNKNOWN_METHOD": ANY,
    "UnknownDBException": "list_tables describe_tables",
}
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
    "hive2": HIVE,
    "hive3": HIVE,
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
    "polaris": {
        **{code: operations.replace(" rename_table", "") for code, operations in ICEBERG.items() if code != 406},
        "AlreadyExistsException": "create_namespace declare_table",
        "ForbiddenException": ANY,
        "IllegalArgumentException": "create_namespace declare_table",
        "NamespaceNotEmptyException": "drop_namespace",
        "NoSuchNamespaceException": f"{ANY} declare_table deregister_table",
        "NoSuchTableException": "describe_table deregister_table",
    },
    "rest": {cls.code.name: f"{ANY} declare_table" for cls in PHRASES if cls is not err.InternalError},
    "unity": {
        "ALREADY_EXISTS": "create_namespace declare_table",
        "CATALOG_NOT_FOUND": ANY,
        "FAILED_PRECONDITION": "drop_namespace",
        "INVALID_ARGUMENT": f"{ANY} declare_table",
        "PERMISSION_DENIED": ANY,
        "RESOURCE_EXHAUSTED": ANY,
        "SCHEMA_ALREADY_EXISTS": "create_namespace",
        "SCHEMA_NOT_FOUND": f"{ANY} declare_table",
        "TABLE_ALREADY_EXISTS": "declare_table",
        "TABLE_NOT_FOUND": "describe_table deregister_table",
        "UNAUTHENTICATED": ANY,
    },
}
"""The codes in each catalog's specification, with the operations that can fail with them."""

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
def test_the_table_is_in_the_folder_of_the_backend(impl: str) -> None:
    folder = registry.BACKENDS[impl].module.removesuffix("backend")
    module = {"dir": "backend", "hive2": "responses", "hive3": "responses"}.get(impl, "wire")
    assert registry.load(impl).errors is import_module(folder + module).ERRORS


@pytest.mark.parametrize("impl", registry.BACKENDS)
def test_rows_name_operations_of_backends(impl: str) -> None:
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
    assert codes - INTERNAL <= registry.load(impl).errors.keys()


@pytest.mark.parametrize("impl", registry.BACKENDS)
def test_documented_codes_have_rows(impl: str) -> None:
    errors = registry.load(impl).errors
    for code, operations in DOCUMENTED[impl].items():
        for operation in operations.split():
            subject = NamespaceId(["a"]) if operation.endswith(("namespace", "namespaces")) else TableId(["a", "t"])
            cls = error_class(Failure(code, message=""), subject, operation, errors)
            assert cls is not err.InternalError, (code, operation)


@pytest.mark.parametrize("impl", ["iceberg", "polaris", "rest"])
def test_backends_that_sign_have_the_codes_of_signatures(impl: str) -> None:
    assert SIGNING_ERRORS.keys() <= registry.load(impl).errors.keys()
