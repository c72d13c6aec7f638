"""The errors of Unity Catalog servers, and their checks of names, properties, columns and locations."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

from tests.fakes.server import Answer

Dialect = Literal["0.6", "0.4.1", "0.4.0"]
"""The version of the error codes: 0.5.0 and later, 0.4.1 only, or 0.4.0 and earlier."""

CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "TEMPORARILY_UNAVAILABLE",
}

_STACK = (
    "io.unitycatalog.server.exception.BaseException\n" + "\tat io.unitycatalog.server.Frame.call(Frame.java:1)\n" * 33
)


class UnityError(Exception):
    """An error of the newest version: a status, a code and a message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def answer(self, dialect: Dialect) -> Answer:
        status, code = self.status, self.code
        if dialect != "0.6" and code.endswith("_NOT_FOUND"):
            code = "NOT_FOUND"
        if dialect == "0.4.0" and code.endswith("_ALREADY_EXISTS"):
            status, code = 409, "ALREADY_EXISTS"
        info = {"reason": code, "@type": "google.rpc.ErrorInfo"}
        body: dict[str, Any] = {"error_code": code, "details": [info], "message": str(self)}
        if dialect != "0.6":
            body = {
                **body,
                "details": [{**info, "metadata": {}}],
                "stack_trace": _STACK if dialect == "0.4.0" else None,
            }
        return Answer.of(body, status)


class Unserved(Exception):
    """The server's own refusal of a path or method, which does not reach the catalog's error handling."""

    def __init__(self, status: int, description: str | None = None) -> None:
        super().__init__(str(status))
        self.status = status
        self._description = description or HTTPStatus(status).phrase

    def answer(self) -> Answer:
        end = "\n" if self.status in (404, 405) else ""
        return plain(f"Status: {self.status}\nDescription: {self._description}{end}", self.status)


def plain(text: str, status: int = 200) -> Answer:
    return Answer(status, text.encode(), {"Content-Type": "text/plain; charset=utf-8"})


def invalid(message: str) -> UnityError:
    return UnityError(400, "INVALID_ARGUMENT", message)


def internal(message: str) -> UnityError:
    return UnityError(500, "INTERNAL", message)


def lost_race(kind: str) -> UnityError:
    """Returns the error for a removal during which another request removed or changed the object."""
    return internal(
        f"Failed to delete {kind}: Row was updated or deleted by another transaction (or unsaved-value mapping was "
        "incorrect) : [row]"
    )


def missing(kind: str, name: str) -> UnityError:
    return UnityError(404, f"{kind.upper()}_NOT_FOUND", f"{kind} not found: {name}")


def exists(kind: str, name: str) -> UnityError:
    """Returns the error for a name that is in use; since 0.4.1, it is a bad request."""
    return UnityError(400, f"{kind.upper()}_ALREADY_EXISTS", f"{kind} already exists: {name}")


def forbidden(message: str = "Access denied.") -> UnityError:
    return UnityError(403, "PERMISSION_DENIED", message)


def unauthenticated(message: str) -> UnityError:
    return UnityError(401, "UNAUTHENTICATED", message)


_NAME = re.compile(r"[a-zA-Z0-9_@-]+")
_PAGE = 100


def checked_name(name: Any) -> str:
    if not name:
        raise invalid("Name cannot be empty")
    if len(name) > 255:
        raise invalid("Name cannot be longer than 255 characters")
    if not _NAME.fullmatch(name):
        raise invalid("Name cannot contain a period, space, forward-slash, or control characters")
    return str(name)


def properties_read(properties: Any) -> dict[str, str | None]:
    """Returns properties as the server reads them: missing ones are empty, scalars become strings."""
    if properties is None:
        return {}
    if not isinstance(properties, Mapping) or any(isinstance(value, dict | list) for value in properties.values()):
        raise invalid("Cannot deserialize value of type `java.lang.String`")
    return {key: text_of(value) for key, value in properties.items()}


def check_properties(properties: Mapping[str, str | None]) -> None:
    for key, value in properties.items():
        if value is None:
            raise internal("not-null property references a null or transient value: PropertyDAO.value")
        # The database counts UTF-16 units.
        if any(len(text.encode("utf-16-le", "surrogatepass")) > 2 * 255 for text in (key, value)):
            column = 'column "PROPERTY_VALUE CHARACTER VARYING(255)"'
            raise internal(f"could not execute statement [Value too long for {column}]")


def needed(params: Mapping[str, str], name: str) -> str:
    if name not in params:
        raise invalid(f"Mandatory parameter/header is missing: {name}")
    return params[name]


def page_size(params: Mapping[str, str]) -> int:
    text = params.get("max_results") or "0"
    try:
        size = int(text)
    except ValueError:
        raise _no_integer(text) from None
    if size >= 2**31:
        raise _no_integer(text)
    if size < 0:
        raise invalid("maxResults must be greater than or equal to 0")
    return min(size or _PAGE, _PAGE)


def flag(params: Mapping[str, str], name: str) -> bool:
    match params.get(name, "false").lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
    raise invalid(f"Can't convert '{params[name]}' to type 'Boolean'.")


def _no_integer(text: str) -> UnityError:
    return invalid(f'For input string: "{text}"')


def text_of(value: Any) -> str | None:
    """Returns a value as the server reads it where it expects a string: numbers and booleans become text."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


Json = dict[str, Any]

TYPE_NAMES = frozenset(
    "BOOLEAN BYTE SHORT INT LONG FLOAT DOUBLE DATE TIMESTAMP TIMESTAMP_NTZ STRING BINARY DECIMAL INTERVAL ARRAY STRUCT "
    "MAP CHAR NULL USER_DEFINED_TYPE TABLE_TYPE VARIANT".split()
)
_FIELD = ("name", "type", "nullable", "metadata")
_NESTED = {
    "array": {"elementType": True, "containsNull": False},
    "map": {"keyType": True, "valueType": True, "valueContainsNull": False},
}


def read_columns(value: Any) -> list[Json]:
    columns = [] if value is None else value
    if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
        raise invalid("Cannot deserialize value of type `ColumnInfo`")
    for column in columns:
        kind = column.get("type_name")
        if kind is not None and kind not in TYPE_NAMES:
            raise invalid(f"Cannot construct instance of `ColumnTypeName`, problem: Unexpected value '{kind}'")
    return list(columns)


def check_types(columns: list[Json]) -> None:
    """Raises an error if a column's `type_json` is not a field of Spark, or not the field of this column."""
    for column in columns:
        name, text = column.get("name"), column.get("type_json")
        if not text:
            raise _bad_type(name, f"Column {name} has null/empty typeJson")
        field = _parsed_type(name, text)
        for key in _FIELD:
            if field.get(key) is None:
                raise invalid(f"type_json.{key} is required.")
        if field["name"] != name:
            raise _bad_type(name, f"field name {field['name']} does not match column name {name}")
        nullable = column.get("nullable")
        if nullable is not None and nullable != field["nullable"]:
            raise _bad_type(
                name, f"field nullable {_java(field['nullable'])} does not match column nullable {_java(nullable)}"
            )


def check_storable(columns: list[Json]) -> None:
    if len({(column.get("name"), column.get("position")) for column in columns}) < len(columns):
        raise internal("could not execute statement [Unique index or primary key violation]")
    for column in columns:
        for key in ("type_text", "type_name", "position"):
            if column.get(key) is None:
                raise internal(f"not-null property references a null or transient value: ColumnInfoDAO.{key}")
        if len(column.get("name") or "") > 255:
            raise internal("Value too long for column: CHARACTER VARYING(255)")


def kept_column(column: Json) -> Json:
    nullable = column.get("nullable")
    return {
        "name": column.get("name"),
        "type_text": column["type_text"].lower(),
        "type_json": column.get("type_json"),
        "type_name": column["type_name"],
        "type_precision": column.get("type_precision"),
        "type_scale": column.get("type_scale"),
        "type_interval_type": column.get("type_interval_type"),
        "position": column["position"],
        "comment": column.get("comment"),
        "nullable": True if nullable is None else nullable,
        "partition_index": column.get("partition_index"),
    }


def _parsed_type(name: Any, text: str) -> Json:
    try:
        field = json.loads(text)
    except ValueError:
        field = None
    if not _is_field(field):
        raise _bad_type(name, f"Failed to parse typeJson for column {name}: {text}")
    parsed: Json = field
    return parsed


def _is_field(field: Any) -> bool:
    # Missing keys are found later, and only in the outermost field.
    return (
        isinstance(field, dict)
        and field.keys() <= set(_FIELD)
        and _is_type(field.get("type"))
        and isinstance(field.get("nullable"), bool | None)
        and isinstance(field.get("metadata"), dict | None)
        and not isinstance(field.get("name"), dict | list)
    )


def _is_type(type: Any) -> bool:
    match type:
        case None | str():
            return True
        case {"type": "struct", "fields": list(fields)}:
            return type.keys() == {"type", "fields"} and all(map(_is_field, fields))
        case {"type": "array" | "map" as kind}:
            parts = _NESTED[kind]
            return type.keys() <= {"type", *parts} and all(
                _is_type(type.get(key)) for key, is_type in parts.items() if is_type
            )
    return False


def _bad_type(name: Any, message: str) -> UnityError:
    return invalid(f"Invalid type_json for column {name}: {message}")


def _java(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL)
_OUT_OF_URIS = re.compile(r'["<>\\^`{|}]|%(?![0-9a-fA-F]{2})')


def normalised(location: Any) -> str:
    if location is None:
        raise internal("Cannot invoke String.length() because storage_location is null")
    if not location:
        raise invalid("Path cannot be null or empty")
    if " " in location:
        raise invalid(f"Unsupported path: {location}")
    if result := _OUT_OF_URIS.search(location):
        raise invalid(f"Unsupported path: {location} ({result[0]!r})")
    scheme, rest = _split_scheme(location)
    if scheme == "file":
        stored = "file://" + _resolved(_local_path(rest))
    elif scheme in {"s3", "gs", "abfs", "abfss"}:
        stored = _in_cloud(location, scheme, rest)
    else:
        raise invalid(f"Unsupported URI scheme: {scheme}")
    if len(location) > 2048:
        raise internal("Value too long for column: CHARACTER VARYING(2048)")
    return stored


def _split_scheme(location: str) -> tuple[str, str]:
    result = _SCHEME.fullmatch(location)
    return (result[1], result[2]) if result else ("file", location)


def _local_path(rest: str) -> str:
    if rest.startswith("//"):
        # The host becomes the first folder, even if it is localhost.
        return rest[1:]
    # A relative path is below the working directory of the server.
    return os.path.join(os.getcwd(), rest)


def _in_cloud(location: str, scheme: str, rest: str) -> str:
    bucket, _, path = rest.removeprefix("//").partition("/")
    inside = _resolved(path, is_uri=True)
    if inside == "/":
        raise invalid(f"External table storage location must include a non-empty path prefix: {location}")
    return f"{scheme}://{bucket}{inside}"


def _resolved(path: str, *, is_uri: bool = False) -> str:
    """Returns the path without dot segments; a URI keeps those that lead above its root."""
    kept: list[str] = []
    for part in path.split("/"):
        if part == ".." and is_uri and all(it == ".." for it in kept):
            kept.append(part)
        elif part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    return "/" + "/".join(kept)
