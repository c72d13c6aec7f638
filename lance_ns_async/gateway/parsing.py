"""Parsing of HTTP requests: path, query and body become a request model of the spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, unquote_plus

import orjson
from lance_namespace.errors import InvalidInputError
from pydantic import BaseModel

from lance_ns_async.many.patterns import Selection
from lance_ns_async.model import is_pattern
from lance_ns_async.operations import requests
from lance_ns_async.spec.extensions import SearchTablesRequest, WatchRequest
from lance_ns_async.spec.routes import Route

_HOP = ("header.", "headers.")
"""Prefixes of context entries that the client has sent as headers: they are for this server, not for the catalog."""


_MAX_PARTS = 20_000  # Maximum number of lists and objects in a JSON body; brackets inside strings count, too.
_MAX_VALUES = 200_000  # Maximum number of values in a JSON body, by its commas: enough for 48 vectors of 4,096 numbers.
_MAX_STRINGS = 20_000  # Maximum strings in a JSON body, by its quotation marks; validation takes longer for them.
_MAX_PARAMETERS = 1_000  # Maximum number of parameters of a query.
_MAX_PATTERN_TEXT = 4_096  # Maximum length of all patterns of a request; compiling takes up to 15 µs a character.
_MAX_WILDCARDS = 100  # Maximum wildcards in all patterns of a request; each listed name is compared with each.


def parse(route: Route, names: Mapping[str, str], query: str, body: bytes, delimiter: str) -> BaseModel:
    """Returns the request model for a route; the names and the query are still percent-encoded."""
    pairs = _pairs(query)
    delimiter = dict(pairs).get("delimiter", delimiter)
    if not delimiter:
        raise InvalidInputError("delimiter: must not be empty")
    fields = _from_query(route.request, pairs)
    match route.body:
        case "json":
            fields.update(_object(body))
        case "metadata":
            fields["metadata"] = _object(body)
        case "rows":
            pass
    fields.pop("identity", None)
    if isinstance(context := fields.get("context"), dict):
        fields["context"] = {key: value for key, value in context.items() if not str(key).startswith(_HOP)} or None
    for name, encoded in names.items():
        # DuckDB's extension for Lance sends the id of the path as one name.
        if fields.get(name) is None or (name == "id" and fields[name] == [_decode(encoded)]):
            fields[name] = _id(encoded, delimiter) if name == "id" else _decode(encoded)
    try:
        fields = _with_integers(fields)
    except RecursionError:
        raise InvalidInputError("body: nested too deeply; use fewer levels") from None
    model = requests.parse(route.request, fields)
    if isinstance(model, SearchTablesRequest | WatchRequest):
        _check_patterns(model.tables)
    for name, encoded in names.items():
        _check_same(name, encoded, getattr(model, name), delimiter)
    return model


def _check_patterns(tables: Sequence[str | list[str]]) -> None:
    """Checks the effort for the patterns of a request, and compiles them, which takes some milliseconds."""
    patterns = [text for text in tables if isinstance(text, str) and is_pattern(text)]
    if (length := sum(map(len, patterns))) > _MAX_PATTERN_TEXT:
        raise InvalidInputError(f"tables: {length} characters of patterns; at most {_MAX_PATTERN_TEXT} are allowed")
    wildcards = sum(text.count(mark) for text in patterns for mark in "*?[")
    if wildcards > _MAX_WILDCARDS:
        raise InvalidInputError(f"tables: {wildcards} wildcards; at most {_MAX_WILDCARDS} are allowed")
    Selection.read(patterns)


def _pairs(query: str) -> Sequence[tuple[str, str]]:
    if query.count("&") >= _MAX_PARAMETERS:
        raise InvalidInputError(f"query: has more than {_MAX_PARAMETERS} parameters")
    try:
        return parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError as e:
        raise InvalidInputError("query: not percent-encoded UTF-8") from e


def _object(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    # Parsing holds up all threads, and validation takes far longer.
    parts = body.count(b"[") + body.count(b"{")
    for count, most, what in (
        (parts, _MAX_PARTS, "lists and objects"),
        (body.count(b","), _MAX_VALUES, "values"),
        (body.count(b'"') // 2, _MAX_STRINGS, "strings"),
    ):
        if count > most:
            raise InvalidInputError(f"body: has over {most} {what}; send several requests instead")
    content = _json("body", body)
    if not isinstance(content, dict):
        raise InvalidInputError("body: must be a JSON object")
    return content


def _json(name: str, text: bytes | str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise InvalidInputError(f"{name}: not valid JSON ({e})") from e


def _from_query(model: type[BaseModel], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Returns the fields in the query, converted to the types of the model; unknown fields are left out."""
    fields: dict[str, Any] = {}
    types = query_types(model)
    for name, text in pairs:
        match types.get(name):
            case "array":
                fields.setdefault(name, []).append(text)
            case str(kind):
                fields[name] = _value(name, kind, text)
    return fields


def _value(name: str, kind: str, text: str) -> Any:
    match kind:
        case "boolean" if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case "integer" if text.removeprefix("-").isdecimal() and len(text) < 20:
            return int(text)
        case "object":
            return _json(name, text)
        case "string":
            return text
    raise InvalidInputError(f"{name} {text!r}: not of the type {kind}")


@cache
def query_types(model: type[BaseModel]) -> Mapping[str, str]:
    """Returns the JSON type of each field that a query can set."""
    types: dict[str, str] = {}
    for name, schema in model.model_json_schema()["properties"].items():
        forms = [form["type"] for form in schema.get("anyOf", [schema]) if form.get("type", "null") != "null"]
        # The context and the identity are sent as headers, and the id in the path.
        if forms and name not in ("context", "id", "identity"):
            types[name] = forms[0]
    return types


def _with_integers(value: Any) -> Any:
    """Returns JSON with integers for numbers such as `1.0`: models accept them for floats, but not the reverse.

    Lists of numbers are vectors, and stay as they are.
    """
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _with_integers(it) for name, it in value.items()}
        case [dict(), *_]:
            return [_with_integers(it) for it in value]
    return value


def _id(encoded: str, delimiter: str) -> list[str]:
    text = _decode(encoded)
    return [] if text in ("", delimiter) else text.split(delimiter)


def _decode(encoded: str) -> str:
    """Returns a decoded path segment; `+` means a blank, because Lance's own clients encode blanks like that."""
    try:
        text = unquote_plus(encoded, errors="strict")
    except UnicodeDecodeError as e:
        raise InvalidInputError(f"path: {encoded!r} is not percent-encoded UTF-8") from e
    if "\0" in text:
        raise InvalidInputError(f"path: {encoded!r} has a NUL character, which no name may have")
    return text


def _check_same(name: str, encoded: str, value: Any, delimiter: str) -> None:
    """Raises InvalidInputError if path and body contain different values."""
    texts = {_decode(encoded), unquote(encoded)}
    if name != "id":
        if value not in texts:
            raise InvalidInputError(f"{name}: the body has {value!r}, but the path has {_decode(encoded)!r}")
        return
    names = cast("list[str]", value)
    text = delimiter.join(names)
    # There are two spellings of the root id.
    if text not in texts and {text, *texts} - {"", delimiter}:
        raise InvalidInputError(f"id: the body has {names!r}, but the path has {_id(encoded, delimiter)!r}")
