"""Conversions between the models of the spec and internal values, and requests that the server performs itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, reduce, wraps
from operator import or_
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import lance_namespace as spec
import pyarrow as pa
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema
from lance_namespace_urllib3_client.models.table_basic_stats import TableBasicStats
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from lance_ns_async.backends.base import OperationMissingError, Version
from lance_ns_async.calls import request_headers
from lance_ns_async.calls.paging import keep_all, take
from lance_ns_async.errors import suggest
from lance_ns_async.model import Id, Page, Table, TableId, is_pattern, split_names
from lance_ns_async.session import Session
from lance_ns_async.spec.arrow_json import json_schema
from lance_ns_async.spec.responses import DeclareTableResponse, DescribeTableResponse
from lance_ns_async.storage import arrow
from lance_ns_async.storage.datasets import Details

P = ParamSpec("P")

M = TypeVar("M", bound=BaseModel)


_MAX_PROBLEMS = 100  # Maximum number of errors in a message; a million of them would take half a minute and 100 MB.

FieldsOrId: TypeAlias = Mapping[str, Any] | str | Iterable[str]
"""A request as a dict with the field names of its model; or only the id in it, as names or as text."""
T = TypeVar("T")
R = TypeVar("R", bound=BaseModel)


def parse(model: type[M], request: object) -> M:
    """Returns the request as its model; Lance's Rust side sends mappings, Python callers send dicts, models or ids.

    Unknown fields of a plain dict are errors, because a person wrote it. Mappings of Lance may have fields of a newer
    spec.
    """
    if not isinstance(request, BaseModel | Mapping):
        request = {"id": _id_names(model, request)}
    try:
        if type(request) is dict and not _is_only_id(model, request):
            _check_fields(model, request, f"{model.__name__}: ")
        result: M | None = getattr(model, "from_dict")(request)  # noqa: B009 - generated for each model, in no base class
    except ValidationError as e:
        if isinstance(id := dict(request).get("id"), str):
            raise InvalidInputError(f"{model.__name__}: id: must be a list of names; use {split_names(id)!r}") from None
        if e.error_count() > _MAX_PROBLEMS:
            raise InvalidInputError(f"{model.__name__}: {e.error_count()} values are not as in the spec") from None
        problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in e.errors(include_url=False))
        # The error of a nested model does not name the field that contains it.
        within = [f"{name}: " for name, part in _fields(model).items() if part and part.model.__name__ == e.title]
        raise InvalidInputError(f"{model.__name__}: {''.join(within[:1])}{problems}") from None
    except RecursionError:
        raise InvalidInputError(f"{model.__name__}: nested too deeply; use fewer levels") from None
    except TypeError as e:
        # The generated code does not check for lists and dicts.
        raise InvalidInputError(f"{model.__name__}: the type of a field differs from the spec ({e})") from None
    assert result is not None
    if getattr(result, "identity", None) or getattr(result, "context", None) or hasattr(result, "query"):
        _take_headers(result)
    return result


def _is_only_id(model: type[BaseModel], request: Mapping[str, Any]) -> bool:
    """Returns whether a request is an id and needs no more; the model itself finds the few errors that it can have."""
    id = request.get("id")
    is_short = isinstance(id, list) and len(id) <= _MAX_PROBLEMS and list not in map(type, id)
    return len(request) == 1 and is_short and not _needs_more(model)


@cache
def _needs_more(model: type[BaseModel]) -> bool:
    """Returns whether a request must have other fields than an id."""
    return any(field.is_required() for name, field in model.model_fields.items() if (field.alias or name) != "id")


def with_fields(request: Any, fields: Mapping[str, Any]) -> Any:
    """Returns a request with the fields that a caller has passed by name."""
    if not fields:
        return request
    if isinstance(request, BaseModel):
        raise InvalidInputError(f"{', '.join(fields)}: not allowed beside a {type(request).__name__}; set it there")
    values = request if isinstance(request, Mapping) else {"id": _names(request)}
    if twice := [name for name in fields if name in values]:
        raise InvalidInputError(f"{twice[0]}: it is given twice, in the request and by name")
    return {**values, **fields}


def _names(id: object) -> object:
    return split_names(id) if isinstance(id, str) else list(id) if isinstance(id, Iterable) else id


def _id_names(model: type[BaseModel], id: object) -> object:
    """Returns the names of an id in place of a request."""
    if "id" not in _fields(model) or not isinstance(id, Iterable) or isinstance(id, bytes):
        also = " or an id" if "id" in _fields(model) else ""
        raise InvalidInputError(f"{model.__name__}: a request must be a dict{also}, not {type(id).__name__}")
    return _names(id)


def _take_headers(request: BaseModel) -> None:
    """Uses the credentials and the headers of a request for the current operation, if the backend takes them."""
    identity, context = getattr(request, "identity", None), getattr(request, "context", None)
    if not request_headers.use(identity and identity.auth_token, identity and identity.api_key, context):
        _check_identity(request)
    elif (query := getattr(request, "query", None)) is not None:
        _check_identity(query)


def _check_identity(request: BaseModel) -> None:
    """Raises UnsupportedOperationError if a request has credentials of its own."""
    fields = _fields(type(request))
    if "identity" in fields:
        identity = getattr(request, "identity")  # noqa: B009 - in each request, in no base class
        if identity is not None and (identity.api_key or identity.auth_token):
            raise UnsupportedOperationError(
                "Not supported: identity in a request (the namespace's properties have the identity; connect another)"
            )
    if "query" in fields:
        _check_identity(getattr(request, "query"))  # noqa: B009


_SYNONYMS = ({"vector", "nearest"}, {"full_text_query", "full_text", "text"}, {"k", "limit", "n"}, {"filter", "where"})
"""What the spec, the shell and other libraries call one argument of a search."""


def synonym(name: str, known: Collection[str]) -> str | None:
    """Returns the known name of an argument that has another name elsewhere; None if there is none."""
    return next((own for names in _SYNONYMS if name in names for own in known if own in names), None)


def _check_fields(model: type[BaseModel], values: Mapping[str, Any], where: str) -> None:
    """Raises InvalidInputError for missing fields, and for fields that the model, or a model in it, does not have."""
    fields = _fields(model)
    for name, value in values.items():
        if name not in fields:
            # Some clients send all fields of their version of the spec, those without a value as null.
            if value is None:
                continue
            own = synonym(name, fields)
            hint = suggest(str(name), fields) if own is None else f"use {own}"
            raise InvalidInputError(f"{where}{name}: unknown, {hint}")
        part = fields[name]
        if part is None:
            _check_values(model, name, value, f"{where}{name}: ")
        elif value is not None:
            _check_part(part, value, f"{where}{name}: ")
    # A misspelt field is missing, too, but its error says more.
    required = [field.alias or name for name, field in model.model_fields.items() if field.is_required()]
    missing = [name for name in required if values.get(name) is None]
    if missing:
        hint = '; without a search, use {"vector": {}}' if "vector" in missing else ""
        raise InvalidInputError(
            f"{where}{' and '.join(missing)}: {'it is' if len(missing) == 1 else 'they are'} missing{hint}"
        )


def _check_part(part: _Part, value: object, where: str) -> None:
    names = " or ".join(list(_fields(part.model))[:3])
    if part.many and not isinstance(value, list):
        raise InvalidInputError(f"{where}must be a list of dicts with {names}, not {type(value).__name__}")
    for one in value if isinstance(value, list) and part.many else [value]:
        if type(one) is dict:
            _check_fields(part.model, one, where)
        elif not isinstance(one, Mapping | BaseModel):
            raise InvalidInputError(f"{where}must be a dict with {names}, not {type(one).__name__}")


def _check_values(model: type[BaseModel], name: str, value: object, where: str) -> None:
    """Raises InvalidInputError for the first wrong one of many values; the model would make an error for each."""
    values = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(values, list) or not (len(values) > _MAX_PROBLEMS or any(isinstance(it, list) for it in values)):
        return
    try:
        _until_first_error(model, name).validate_python(values)
    except ValidationError as e:
        problem = e.errors(include_url=False)[0]
        place = [list(value)[it] if isinstance(value, dict) else it for it in problem["loc"][:1] if isinstance(it, int)]
        raise InvalidInputError(f"{where}{''.join(f'{it}: ' for it in place)}{problem['msg']}") from None


@cache
def _until_first_error(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    """Returns what validates the values of a list or a dict, as a list, up to the first one that is wrong."""
    [annotation] = [it.annotation for field, it in model.model_fields.items() if name == (it.alias or field)]
    return TypeAdapter(_fail_fast(annotation))


def _fail_fast(annotation: Any) -> Any:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (list, dict):
        return Annotated[list[_fail_fast(inner[-1])], Field(fail_fast=True)]  # type: ignore[misc]
    if origin in (Union, UnionType):
        return reduce(or_, map(_fail_fast, inner))
    if origin is Annotated:
        return Annotated[(_fail_fast(inner[0]), *inner[1:])]
    return annotation


@dataclass(frozen=True, slots=True)
class _Part:
    """The model of a field's values, and whether the field is a list of such values."""

    model: type[BaseModel]
    many: bool


@cache
def _fields(model: type[BaseModel]) -> Mapping[str, _Part | None]:
    """Returns the fields of a model by their names in dicts, with the model in each, or None for other fields."""
    return {field.alias or name: _part(field.annotation) for name, field in model.model_fields.items()}


def _part(annotation: Any, *, many: bool = False) -> _Part | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _Part(annotation, many)
    if get_origin(annotation) is dict:
        return None
    inner = [it for it in get_args(annotation) if it is not type(None)]
    return _part(inner[0], many=many or get_origin(annotation) is list) if inner else None


def several(ids: Iterable[Iterable[str]]) -> Iterable[Iterable[str]]:
    """Returns the ids; raises InvalidInputError for one id in place of a list of ids."""
    if isinstance(ids, str) and is_pattern(ids):
        raise InvalidInputError(f"ids {ids!r}: a pattern instead of a list of ids; pass it to describe_tables")
    if isinstance(ids, str | Id):
        raise InvalidInputError(f"ids {str(ids)!r}: one id instead of a list of ids; use [{str(ids)!r}]")
    return ids


def word(value: str | None, field: str, options: Collection[str]) -> str:
    """Returns one of the `options`, whatever the case, dashes and underscores of the value; the first one for None."""
    if value is None:
        return next(iter(options))
    plain = {option.replace("_", ""): option for option in options}
    option = plain.get(re.sub("[_-]", "", value).lower())
    if option is None:
        raise InvalidInputError(f"{field} {value!r}: unknown, {suggest(value.lower(), options)}")
    return option


def description(
    table: Table,
    *,
    with_uri: bool | None,
    details: Details | None = None,
    is_only_declared: bool | None = None,
    wants_schema: bool | None = False,
) -> DescribeTableResponse:
    """Returns the response to a describe.

    Args:
        table: The table.
        with_uri: Whether to include the location as a URI.
        details: The details of the dataset; None if it was not opened for them.
        is_only_declared: Whether the table is only declared; None if unknown.
        wants_schema: Whether a schema that the spec cannot represent is an error; otherwise it is left out.
    """
    fields: dict[str, Any] = {
        "location": table.location,
        "table_uri": uri(table.location) if with_uri else None,
        "properties": None if table.properties is None else dict(table.properties),
        "storage_options": None if table.storage_options is None else dict(table.storage_options),
        "managed_versioning": table.managed_versioning,
        "version": table.version,
        "is_only_declared": is_only_declared,
    }
    if (schema := table.schema if details is None else details.schema) is not None:
        fields["var_schema"] = _json_schema(schema, is_required=wants_schema)
    if details is not None:
        fields |= {
            "table": table.id.name,
            "namespace": list(table.id.parent),
            "version": details.version,
            "stats": TableBasicStats(num_deleted_rows=details.deleted_rows, num_fragments=details.fragments),
            "metadata": {k.decode(): v.decode() for k, v in (details.schema.metadata or {}).items()},
            "is_only_declared": False,
        }
    return DescribeTableResponse(**fields)


def registration(table: Table) -> DeclareTableResponse:
    """Returns what the catalog stores about a table: the response to a declaration, and a part of others."""
    return DeclareTableResponse(
        location=table.location,
        storage_options=None if table.storage_options is None else dict(table.storage_options),
        properties=None if table.properties is None else dict(table.properties),
        managed_versioning=table.managed_versioning,
    )


def table_version(version: Version) -> spec.TableVersion:
    """Returns the model of a version whose manifest exists."""
    return spec.TableVersion(
        version=version.number,
        manifest_path=version.manifest,
        manifest_size=version.size,
        timestamp_millis=version.timestamp_millis,
        metadata=dict(version.metadata),
    )


def uri(location: str) -> str:
    """Returns the location as an absolute URI."""
    return location if "://" in location else Path(location).absolute().as_uri()


def _json_schema(schema: pa.Schema, *, is_required: bool | None) -> JsonArrowSchema | None:
    try:
        return json_schema(schema)
    except UnsupportedOperationError:
        if is_required:
            raise
        return None


async def page_of(items: Mapping[str, T], limit: int | None, page_token: str | None) -> tuple[dict[str, T], str | None]:
    """Returns at most `limit` of the items, sorted by name, and the token of the next page."""

    async def fetch(token: str | None, size: int | None) -> Page[str]:
        return Page(sorted(items))

    page = await take(fetch, keep_all, limit=limit, page_token=page_token)
    return {name: items[name] for name in page.items}, page.token


_PARAMETERS = ("request", "request_data")

_NO_JOBS = "it starts a job, and a catalog runs no jobs"
_NO_TRANSACTIONS = "catalogs keep no transactions that outlive a request"

REASONS: Mapping[str, str] = {
    "alter_table_backfill_columns": _NO_JOBS,
    "create_materialized_view": _NO_JOBS,
    "refresh_materialized_view": _NO_JOBS,
    "describe_transaction": _NO_TRANSACTIONS,
    "alter_transaction": _NO_TRANSACTIONS,
}
"""The reason for each operation."""


def operation(
    function: Callable[Concatenate[Session, R, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Session, R | FieldsOrId, P], Coroutine[Any, Any, T]]:
    """Returns an operation of the spec that takes its request in any form, and parses it by its annotation."""
    model: str = function.__annotations__["request"].removeprefix("spec.")

    @wraps(function)
    async def parsed(session: Session, request: R | FieldsOrId, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # Models are loaded at their first use.
        return await function(session, parse(getattr(spec, model), request), *args, **kwargs)

    return parsed


def passed_on(
    operation: Callable[Concatenate[Session, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Session, P], Coroutine[Any, Any, T]]:
    """Returns the operation, which sends the request to the server if the backend passes it on.

    A server that does not have the operation has done nothing, so this process performs it then.
    """
    name = operation.__name__

    @wraps(operation)
    async def local_or_remote(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        arguments = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
        data = cast("bytes | None", arguments.get("request_data"))
        streamed = isinstance(data, pa.RecordBatchReader)
        if not session.backend.passes_on(name, streamed=streamed):
            return await operation(session, *args, **kwargs)
        rows = arrow.pieces(data) if isinstance(data, pa.RecordBatchReader) else data
        with session.operation():
            try:
                return cast("T", await pass_on(session, name, arguments["request"], rows))
            except OperationMissingError:
                if streamed:
                    # The rows may be used up.
                    raise
            return await operation(session, *args, **kwargs)

    return local_or_remote


async def pass_on(
    session: Session, operation: str, request: object, data: bytes | Iterator[bytes] | None = None
) -> Any:
    """Returns the server's response to a request; requires `Backend.passes_on`."""
    # The routes need the models of all requests.
    from lance_ns_async.spec.routes import BY_OPERATION

    route = BY_OPERATION[operation]
    parsed_request = parse(route.request, request)
    names = getattr(parsed_request, "id", None)
    with session.operation():
        try:
            return await session.backend.pass_on(operation, parsed_request, data)
        finally:
            if route.changes and names:
                session.locator.forget(TableId(names))


async def run(session: Session, operation: str, request: object, response: type[T]) -> T:
    """Passes a request on to the server, if the backend has one with this operation."""
    if not session.backend.passes_on(operation):
        raise UnsupportedOperationError(f"Not supported: {operation} ({REASONS[operation]})")
    result = await pass_on(session, operation, request)
    assert isinstance(result, response)
    return result
