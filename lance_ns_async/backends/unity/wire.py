"""Encoding of requests to Unity Catalog, decoding of its responses, its locations and error codes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import isabs
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import lance_namespace.errors as err
from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.shared.lost_responses import LOST_RACE
from lance_ns_async.backends.shared.response_checks import check_levels, text, texts
from lance_ns_async.backends.shared.response_checks import check_name as check_answer
from lance_ns_async.backends.unity.columns import schema
from lance_ns_async.errors import COMMON_ERRORS, AnotherAnswerError, Code, ErrorTable, not_lance
from lance_ns_async.model import EXPIRY, Id, NamespaceId, Page, Table, TableId, as_s3
from lance_ns_async.transports.http import oauth2

TOKENS = "/api/1.0/unity-control/auth/tokens"
"""The path of the server's token endpoint, which exchanges tokens of the identity providers that it trusts."""

PAGE_SIZE = 100
"""Maximum page size of the server."""

CLOCK_SKEW_MILLIS = 60_000
"""Milliseconds by which the server's clock may be behind the local clock."""

_NAME = re.compile(r"[a-zA-Z0-9_@-]{1,255}")
_MAX_PROPERTY_LENGTH = 255
_WITH_DATA = ("MANAGED", "STREAMING_TABLE", "MATERIALIZED_VIEW")
_MISSING = re.compile(r"(Catalog|Schema|Table) not found")
DUPLICATE = "NOT_UNIQUE"
"""Code of this package for a name that the server has twice; the server's own code is only a general failure."""

_DUPLICATE_ADVICE = (
    "the server has that name twice, because two processes created it at the same time, and can no longer "
    "describe it; use another name, or have one of its two rows deleted in the server's database, from "
    "uc_columns first and then from uc_tables"
)
_LOST_RACE = re.compile(
    r"updated or deleted by another transaction|Concurrent update in table|could not serialize access|deadlock",
    re.IGNORECASE,
)
"""Messages of Hibernate and of databases about a transaction that was rolled back because another one was first."""

_DELTA = re.compile(r"\bdelta\b", re.IGNORECASE)
_ONLY = re.compile(r"\b(only|supported|format)\b", re.IGNORECASE)
_DELTA_ONLY = "this service registers Delta tables only, declare Lance tables in another catalog"
_REFUSALS = ("INVALID_ARGUMENT", "INVALID_PARAMETER_VALUE", "BAD_REQUEST", "UNSUPPORTED_TABLE_FORMAT", "UNIMPLEMENTED")
_CREDENTIAL_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "aws_temp_credentials": {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
    },
    "azure_user_delegation_sas": {"sas_token": "azure_storage_sas_token"},
    "gcp_oauth_token": {"oauth_token": "google_storage_token"},
}
"""Members of Unity's response with temporary credentials, and the corresponding storage options of Lance."""


@dataclass(frozen=True, slots=True)
class UnityTable:
    """A table and its id in Unity Catalog, which is empty if the response has none."""

    table: Table
    uuid: str


def possible(name: str) -> bool:
    """Returns whether a catalog, a schema or a table can have this name."""
    return _NAME.fullmatch(name) is not None


def check_name(id: Id) -> None:
    """Raises InvalidInputError if the server does not accept the last level of `id` as a name."""
    if not possible(id[-1]):
        raise InvalidInputError(
            f"{id.kind} {id}: Unity Catalog does not allow the name {id[-1]!r}; "
            "use 1 to 255 of the characters a-z, A-Z, 0-9, _, @ and -"
        )


def check_properties(id: Id, properties: Mapping[str, object]) -> None:
    """Raises InvalidInputError for properties that the server cannot store."""
    for key, value in properties.items():
        if not isinstance(value, str) or max(_units(key), _units(value)) > _MAX_PROPERTY_LENGTH:
            raise InvalidInputError(
                f"{id.kind} {id}: property {key[:40]!r}: Unity Catalog stores strings of up to "
                f"{_MAX_PROPERTY_LENGTH} characters, names and values alike; an emoji counts as two"
            )


def _units(value: str) -> int:
    """Returns the length in UTF-16 units, in which the server's database counts."""
    return len(value) + sum(character > "\uffff" for character in value)


def schema_path(id: NamespaceId) -> str:
    """Returns the path of a catalog or of a schema."""
    return f"/schemas/{_full_name(id)}" if len(id) > 1 else f"/catalogs/{_full_name(id)}"


def table_path(id: TableId) -> str:
    """Returns the path of a table."""
    return f"/tables/{_full_name(id)}"


def schemas_query(parent: NamespaceId, token: str | None) -> str:
    """Returns the query for a page of the schemas in a catalog."""
    return urlencode({"catalog_name": parent.name, **_page(token)})


def tables_query(parent: NamespaceId, token: str | None) -> str:
    """Returns the query for a page of tables in a schema, without columns, which the server reads table by table."""
    catalog, name = parent
    return urlencode({"catalog_name": catalog, "schema_name": name, "omit_columns": "true", **_page(token)})


def schema_body(id: NamespaceId, properties: Mapping[str, str]) -> dict[str, Any]:
    """Returns the body of the request that creates a schema."""
    return {"name": id.name, "catalog_name": id.parent.name, "properties": dict(properties)}


def table_body(
    id: TableId, location: str, properties: Mapping[str, str], columns: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the body of the request that creates a table; its format is TEXT, because Unity has none for Lance."""
    catalog, schema_name = id.parent
    return {
        "name": id.name,
        "catalog_name": catalog,
        "schema_name": schema_name,
        "table_type": "EXTERNAL",
        "data_source_format": "TEXT",
        "storage_location": location,
        "properties": {**properties, "table_type": "lance"},
        "columns": columns,
    }


def read_error(body: Any) -> tuple[tuple[Code, ...], str]:
    """Returns codes and message of an error; if the message is more precise than the code, a precise code is first."""
    code, message = text(body["error_code"]), text(body.get("message") or "")
    text_with_code = f"{code}: {message}"
    if "did not return a unique result" in message:
        return (DUPLICATE, code), f"{text_with_code} ({_DUPLICATE_ADVICE})"
    if code == "INTERNAL" and _LOST_RACE.search(message):
        return (LOST_RACE, code), text_with_code
    if code in _REFUSALS and _DELTA.search(message) and _ONLY.search(message):
        return ("DELTA_ONLY", code), f"{text_with_code} ({_DELTA_ONLY})"
    if code == "NOT_FOUND" and (missing := _MISSING.match(message)) is not None:
        return (f"{missing[1].upper()}_NOT_FOUND", code), text_with_code
    # The replaced suffix is Databricks' spelling.
    return (code.replace("_DOES_NOT_EXIST", "_NOT_FOUND"), code), text_with_code


def explain_token_error(body: Any) -> tuple[tuple[Code, ...], str]:
    """Returns codes and message of an error of a token endpoint, in Unity's format or in that of OAuth2."""
    if "error_code" in body:
        return (text(body["error_code"]),), f"{body['error_code']}: {text(body.get('message') or '')}"
    return oauth2.read_error(body)


def schema_names(parent: NamespaceId, body: Any) -> Page[str]:
    """Returns the sorted names of the schemas in a page."""
    for one in _list(body, "schemas"):
        check_answer(parent.name, one.get("catalog_name"), "catalog")
    return Page(_sort_names(_list(body, "schemas")), _token(body))


def table_names(parent: NamespaceId, body: Any) -> Page[str]:
    """Returns the sorted names of the Lance tables in a page, which may be empty before the last page."""
    return Page(_sort_names([one for one in _tables(parent, body) if is_lance(one)]), _token(body))


def tables(parent: NamespaceId, storage_options: Mapping[str, str] | None, body: Any) -> Page[Table]:
    """Returns the Lance tables in a page, without columns."""
    lance = {parent.table(text(one["name"])): one for one in _tables(parent, body) if is_lance(one)}
    return Page([_table(id, storage_options, one) for id, one in lance.items()], _token(body))


@dataclass(frozen=True, slots=True)
class SchemaObject:
    """An object in a schema: a table, a volume, a function or a model."""

    kind: str
    name: str
    is_lance: bool = False
    has_data: bool = False
    """Whether the server deletes the data together with the object."""


OBJECT_KINDS = ("tables", "volumes", "functions", "models")
"""The paths of the listings of a schema's objects."""


def objects_query(schema: NamespaceId, kind: str, token: str | None) -> str:
    """Returns the query for a page of the objects of one kind in a schema."""
    if kind == "tables":
        return tables_query(schema, token)
    catalog, name = schema
    return urlencode({"catalog_name": catalog, "schema_name": name, **_page(token)})


def schema_objects(kind: str, body: Any) -> Page[SchemaObject]:
    """Returns the objects of one kind in a page."""
    objects = body.get("registered_models" if kind == "models" else kind) or []
    return Page([_schema_object(kind, one) for one in objects], _token(body))


def _schema_object(kind: str, one: Any) -> SchemaObject:
    name = text(one["name"])
    if kind == "tables":
        table_type = text(one.get("table_type") or "table of no type")
        return SchemaObject(f"{table_type} table", name, is_lance=is_lance(one), has_data=table_type in _WITH_DATA)
    if kind == "volumes":
        volume_type = text(one.get("volume_type") or "volume of no type")
        return SchemaObject(f"{volume_type} volume", name, has_data=volume_type != "EXTERNAL")
    return SchemaObject(kind.removesuffix("s"), name)


def own_id(body: Any) -> str:
    """Returns the server's unique id of a table or schema; empty if the response has none."""
    return text(body.get("table_id") or body.get("schema_id") or "")


def namespace_properties(id: NamespaceId, body: Any) -> Mapping[str, str]:
    """Returns the properties of a catalog or of a schema."""
    check_answer(id.name, body.get("name"), "namespace")
    return texts(body.get("properties"))


def unity_table(id: TableId, storage_options: Mapping[str, str] | None, body: Any) -> UnityTable:
    """Returns the Lance table in a response, with columns."""
    check_answer(id.name, text(body["name"]))
    _check_place(id.parent, body)
    if not is_lance(body):
        kind, property_type = (
            None if it is None else text(it)
            for it in (body.get("table_type"), (body.get("properties") or {}).get("table_type"))
        )
        raise not_lance(id, f"it is {kind}, and its property table_type is {property_type!r}")
    return UnityTable(_table(id, storage_options, body), text(body.get("table_id") or ""))


def is_lance(body: Any) -> bool:
    """Returns whether a table is a Lance table, regardless of its `data_source_format`."""
    table_type = (body.get("properties") or {}).get("table_type")
    return body.get("table_type") == "EXTERNAL" and isinstance(table_type, str) and table_type.lower() == "lance"


def made_by(request: Mapping[str, Any], began_millis: float, body: Any) -> bool:
    """Returns whether a call may have created this object: it is equal to the request, and not older than the call.

    An equal object that another client created at the same time cannot be distinguished, which does no harm.

    Args:
        request: The body of the call.
        began_millis: Start of the call, in milliseconds since the Unix epoch.
        body: The description of the object.
    """
    if body["created_at"] < began_millis - CLOCK_SKEW_MILLIS or texts(body.get("properties")) != request["properties"]:
        return False
    # The server may choose a location for a schema that was created without one.
    return "storage_location" not in request or (
        stored_location(body.get("storage_location") or "") == stored_location(request["storage_location"])
        and schema(body.get("columns")) == schema(request["columns"])
    )


def credentials(body: Any) -> dict[str, str]:
    """Returns temporary credentials as storage options of Lance; empty if there are none, as for local tables."""
    options = {
        option: text(values[key])
        for kind, names in _CREDENTIAL_OPTIONS.items()
        if (values := body.get(kind))
        for key, option in names.items()
        if values.get(key)
    }
    if options and (until := body.get("expiration_time")):
        options[EXPIRY] = str(_millis(until))
    return options


def _table(id: TableId, storage_options: Mapping[str, str] | None, body: Any) -> Table:
    columns, uuid = schema(body.get("columns")), body.get("table_id") or None
    properties = body.get("properties") or {}
    return Table(id, body["storage_location"], properties, storage_options, schema=columns, registration=uuid)


def _millis(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        # The value is not quoted, because it comes from a response with credentials.
        raise ValueError("expiration_time is not a number") from None


def _tables(parent: NamespaceId, body: Any) -> Sequence[Any]:
    tables = _list(body, "tables")
    for one in tables:
        _check_place(parent, one)
    return tables


def _list(body: Any, key: str) -> Sequence[Any]:
    if key not in body and body.keys() - {"next_page_token"}:
        raise AnotherAnswerError(f"an answer without {key}")
    # Some servers omit an empty list.
    return body.get(key) or []


def _check_place(parent: NamespaceId, body: Any) -> None:
    """Raises AnotherAnswerError for a table of another schema than the requested one."""
    levels = [body.get("catalog_name"), body.get("schema_name")]
    check_levels(parent, levels)


def _token(body: Any) -> str | None:
    return text(body.get("next_page_token") or "") or None


def _sort_names(objects: Sequence[Any]) -> Sequence[str]:
    # A name that two concurrent calls created is listed twice.
    return sorted({text(one["name"]) for one in objects})


def _full_name(id: Id) -> str:
    return ".".join(quote(name, safe="") for name in id)


def _page(token: str | None) -> Mapping[str, str]:
    size = {"max_results": str(PAGE_SIZE)}
    return size if token is None else {**size, "page_token": token}


ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    "CATALOG_NOT_FOUND": err.NamespaceNotFoundError,
    "SCHEMA_NOT_FOUND": err.NamespaceNotFoundError,
    ("TABLE_NOT_FOUND", "table"): err.TableNotFoundError,
    "SCHEMA_ALREADY_EXISTS": err.NamespaceAlreadyExistsError,
    "TABLE_ALREADY_EXISTS": err.TableAlreadyExistsError,
    ("ALREADY_EXISTS", "create_namespace"): err.NamespaceAlreadyExistsError,
    ("ALREADY_EXISTS", "declare_table"): err.TableAlreadyExistsError,
    ("FAILED_PRECONDITION", "drop_namespace"): err.NamespaceNotEmptyError,
    "INVALID_ARGUMENT": err.InvalidInputError,
    "UNAUTHENTICATED": err.UnauthenticatedError,
    "PERMISSION_DENIED": err.PermissionDeniedError,
    "RESOURCE_EXHAUSTED": err.ThrottlingError,
    "REQUEST_LIMIT_EXCEEDED": err.ThrottlingError,
    DUPLICATE: err.InternalError,
    ("DELTA_ONLY", "declare_table"): err.UnsupportedOperationError,
    # There is no 404: without an error code, it means a wrong path and not a missing table.
    400: err.InvalidInputError,
    401: err.UnauthenticatedError,
    403: err.PermissionDeniedError,
    # A proxy requires credentials.
    407: err.UnauthenticatedError,
    408: err.ServiceUnavailableError,
    429: err.ThrottlingError,
    501: err.UnsupportedOperationError,
    502: err.ServiceUnavailableError,
    503: err.ServiceUnavailableError,
    504: err.ServiceUnavailableError,
}


SCHEMES = ("file", "s3", "gs", "abfss")
"""The URI schemes that the server accepts, in lower case only, and that Lance can open."""

_MAX_LOCATION_LENGTH = 2048
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def normalize_location(id: TableId, raw: str) -> str:
    """Returns the location in the form that the server accepts, which is always a URI.

    Args:
        raw: A URI, or an absolute local path.
    """
    if not raw:
        raise _location_error(id, raw, "is empty; omit it for the default location")
    scheme = _SCHEME.match(raw)
    if not scheme and not isabs(raw):
        raise _location_error(id, raw, "is relative; give an absolute path or a URI")
    location = as_s3(raw if scheme else Path(raw).as_uri())
    if scheme and location == raw and scheme[1] not in SCHEMES:
        raise _location_error(id, raw, f"has the scheme {scheme[1]!r}; use one of {', '.join(SCHEMES)}")
    if re.match(r"file:[^/]", raw):
        raise _location_error(id, raw, "is a relative file URI; give an absolute one, file:///path")
    if any(c.isspace() or not c.isprintable() for c in location):
        raise _location_error(id, raw, "has a space or a control character; write it percent-encoded, a space as %20")
    if len(location) > _MAX_LOCATION_LENGTH:
        raise _location_error(
            id, f"{raw[:40]}...", f"has {len(location)} characters; at most {_MAX_LOCATION_LENGTH} are allowed"
        )
    _, bucket, path = _parts(location)
    if not path or (not bucket and not location.startswith("file:")):
        raise _location_error(id, raw, "has no bucket, or no path in it; give both, e.g. s3://bucket/tables/t.lance")
    return location


def stored_location(location: str) -> str:
    """Returns the normalized form in which the server stores a location."""
    scheme, bucket, path = _parts(location)
    return f"{scheme}://{'' if scheme == 'file' else bucket}/{path}"


def _parts(location: str) -> tuple[str, str, str]:
    """Returns scheme, bucket and path, with dot segments resolved."""
    scheme, _, rest = location.partition(":")
    bucket, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)
    return scheme, bucket, "/".join(names)


def _location_error(id: TableId, location: str, why: str) -> InvalidInputError:
    return InvalidInputError(f"table {id}: its location {location!r} {why}")
