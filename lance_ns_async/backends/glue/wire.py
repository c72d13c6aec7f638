"""The wire format of AWS Glue: ids, request inputs, decoders of responses and error codes, without calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import lance_namespace.errors as err
from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.shared import registrations
from lance_ns_async.backends.shared.response_checks import check_name as check_answer
from lance_ns_async.backends.shared.response_checks import text
from lance_ns_async.errors import ErrorTable, not_lance
from lance_ns_async.model import EXPIRY, Id, NamespaceId, Page, Table, TableId, as_s3
from lance_ns_async.storage import locations
from lance_ns_async.storage.options import merge_options
from lance_ns_async.transports.aws.failures import AWS_ERRORS

KIND = "glue.kind"
"""The namespace property with the kind, `catalog` or `database`; used in requests and responses, never stored."""

PAGE_SIZE = 100
"""Tables or databases per page: the maximum of Glue."""

MAX_NAME_LENGTH = 255
_MAX_VALUE_LENGTH = 512_000
_MAX_LOCATION_LENGTH = 2056
_TEXT = re.compile(r"[ -\uFFFD\U00010000-\U0010FFFF\t]*")
"""Names that Glue accepts: one line without control characters, except tabs."""

_CATALOG = re.compile(r"(?!aws:)[^./\\:\x00-\x1f]{1,64}")
"""Valid names of a catalog inside another; a colon is invalid because it separates the account in the id."""

_CATALOG_ID = re.compile(r"([0-9]{12}):?(.*)", re.DOTALL)  # Ids of catalogs that begin with an account.

_RESERVED_IN_RESOURCES = "/:*?"  # Characters with a meaning in AWS's resource names.

_NOTES = {  # Parameters, in lower case, that Glue and its tools write.
    "external",
    "classification",
    "comment",
    "numfiles",
    "numrows",
    "rawdatasize",
    "totalsize",
    "transient_lastddltime",
}

OWN_PARAMETERS = {"table_type", "managed_by", "empty_table", *_NOTES}
"""Parameters, in lower case, that are not storage options."""

_INPUT = {  # Fields of a table that its TableInput also has; UpdateTable clears the fields that are omitted.
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
}


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table in a listing: its stored name, and its description if it is a Lance table."""

    name: str
    table: Table | None


def can_be_catalog(id: NamespaceId) -> bool:
    """Returns whether every level of `id` is a valid name of a catalog."""
    return all(_CATALOG.fullmatch(level) for level in id)


def catalog_id(above: str, levels: Iterable[str]) -> str:
    """Returns the id of the catalog at the path `levels`, in lower case, below the catalog with the id `above`."""
    path = "/".join(level.lower() for level in levels)
    return f"{above}{'/' if ':' in above else ':'}{path}" if path else above


def account(id: str) -> str:
    """Returns the account in a catalog's id."""
    return id.partition(":")[0]


def table_resource(id: TableId, catalog_id: str | None) -> tuple[str, str]:
    """Returns the account and the resource with which AWS's resource names (ARN) identify a table.

    Args:
        catalog_id: The id of the table's catalog; None for the caller's own root.

    Returns:
        The account, empty if the id contains none, and `table/{catalog}/.../{database}/{table}`, in lower case.
    """
    match = _CATALOG_ID.fullmatch(catalog_id or "")
    account, path = match.groups() if match else ("", catalog_id or "")
    names = [id.parent.name.lower(), id.name.lower()]
    if any(character in name for name in names for character in _RESERVED_IN_RESOURCES):
        raise InvalidInputError(
            f"table {id}: credentials cannot be requested for a name with '/', ':', '*' or '?', because a resource "
            "name of AWS with it could be that of another table"
        )
    return account, "/".join(filter(None, ("table", path, *names)))


def credentials(answer: Any) -> dict[str, str]:
    """Returns the temporary credentials in a response of Lake Formation as storage options of Lance."""
    try:
        until = int(answer["Expiration"] * 1000)
    except (TypeError, ValueError, OverflowError):
        # The value is not quoted, because it comes from a response with credentials.
        raise ValueError("Expiration is not a number") from None
    return {
        "aws_access_key_id": text(answer["AccessKeyId"]),
        "aws_secret_access_key": text(answer["SecretAccessKey"]),
        "aws_session_token": text(answer["SessionToken"]),
        EXPIRY: str(until),
    }


def databases(answer: Any) -> Page[str]:
    """Returns a page of the names of databases."""
    return Page([text(description["Name"]) for description in answer["DatabaseList"]], _token(answer))


def catalogs(answer: Any) -> Page[tuple[str, str]]:
    """Returns a page of names and ids of catalogs."""
    return Page(
        [(text(description["Name"]), text(description["CatalogId"])) for description in answer["CatalogList"]],
        _token(answer),
    )


def is_child(id: str, parent: str | None) -> bool:
    """Returns whether a catalog is directly below another; a parent of None is the root of any account."""
    own, above = _path(id), _path(parent or "")
    return len(own) == len(above) + 1 and [level.lower() for level in own[:-1]] == [level.lower() for level in above]


def parameters(description: Mapping[str, Any]) -> dict[str, str]:
    """Returns the stored parameters of a database, a catalog or a table."""
    return {key: text(value) for key, value in (description.get("Parameters") or {}).items() if value is not None}


def table(id: TableId, options: Mapping[str, str] | None, answer: Any) -> Table:
    """Returns the Lance table in a GetTable response; `options` are the configured storage options."""
    description = answer["Table"]
    # DatabaseName is not checked: for a resource link, it is the name of the target database.
    check_answer(id.name, description.get("Name"))
    if (why := _why_not_lance(description)) is not None:
        raise not_lance(id, why)
    return _table(id, options, description)


def table_and_catalog(id: TableId, options: Mapping[str, str] | None, answer: Any) -> tuple[Table, str | None]:
    """Returns the Lance table in a GetTable response, and the id of its catalog if there is one; see `table`."""
    return table(id, options, answer), text(answer["Table"].get("CatalogId") or "") or None


def tables(parent: NamespaceId, options: Mapping[str, str] | None, answer: Any) -> Page[ListedTable]:
    """Returns a page of the tables in `parent`, of all formats."""
    descriptions = [(text(description["Name"]), description) for description in answer["TableList"]]
    page = [
        ListedTable(name, None if _why_not_lance(description) else _table(parent.table(name), options, description))
        for name, description in descriptions
    ]
    return Page(page, _token(answer))


def lance_tables(page: Page[ListedTable]) -> Page[Table]:
    """Returns the same page with only the Lance tables."""
    return Page([entry.table for entry in page.items if entry.table is not None], page.token)


def names(answer: Any) -> Page[str]:
    """Returns a page of the names of tables."""
    return Page([text(description["Name"]) for description in answer["TableList"]], _token(answer))


def location_uri(id: NamespaceId, answer: Any) -> str:
    """Returns the `LocationUri` of a database; the empty string if it has none."""
    check_answer(id.name, answer["Database"].get("Name"), "database")
    return as_s3(text(answer["Database"].get("LocationUri") or ""))


def is_made_of(table: Table, declaration: Table) -> bool:
    """Returns whether a table matches a declaration; parameters that Glue added are ignored."""
    properties, requested_properties = table.properties or {}, declaration.properties or {}
    same = table.location == declaration.location and requested_properties.items() <= properties.items()
    return same and table.registration == declaration.registration


def table_input(id: TableId, location: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Returns the TableInput for CreateTable."""
    return {
        "Name": id.name.lower(),
        "TableType": "EXTERNAL_TABLE",
        "Parameters": registrations.add_identity({"managed_by": "storage", **properties, "table_type": "lance"}),
        "StorageDescriptor": {"Location": location},
    }


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A Lance table with all its fields in Glue, which a replacement has to send again."""

    table: Table
    version: str | None
    """The version id that UpdateTable compares; None if the server has none."""
    created: str
    """The time of creation, which no update changes; empty if the server has none."""
    input: Mapping[str, Any]
    """The TableInput that describes the table without any change."""


def stored_table(id: TableId, options: Mapping[str, str] | None, answer: Any) -> StoredTable:
    """Returns the Lance table in a GetTable response, with all its fields; see `table` for the errors."""
    version, created = answer["Table"].get("VersionId"), str(answer["Table"].get("CreateTime") or "")
    fields = _input(answer["Table"])
    return StoredTable(table(id, options, answer), None if version is None else text(version), created, fields)


def archived_input(answer: Any) -> Mapping[str, Any]:
    """Returns the TableInput of the version in a GetTableVersion response."""
    return _input(answer["TableVersion"]["Table"])


def _input(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in fields.items() if key in _INPUT and value is not None}


def replaced_input(current: StoredTable, location: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Returns the TableInput that changes a table's location and properties.

    All other fields, Glue's own parameters and the registration's identity are unchanged.
    """
    before = current.input.get("Parameters") or {}
    own = {key: value for key, value in before.items() if key.lower() in _NOTES or key == registrations.KEY}
    parameters = {**own, "managed_by": "storage", **properties, "table_type": "lance"}
    # The stored spelling of an unchanged location stays.
    place = {} if location == current.table.location else {"Location": location}
    return {
        **current.input,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        "StorageDescriptor": {**(current.input.get("StorageDescriptor") or {}), **place},
    }


def check_name(id: Id) -> None:
    """Raises InvalidInputError for a name that Glue would reject."""
    if len(id[-1]) > MAX_NAME_LENGTH or not _TEXT.fullmatch(id[-1]):
        raise InvalidInputError(
            f"{id.kind} id {list(id)!r}: Glue allows names of at most {MAX_NAME_LENGTH} characters, none of them a "
            "control character; choose another"
        )


def check_catalog_name(id: NamespaceId) -> None:
    """Raises InvalidInputError for a name that Glue would reject for a catalog."""
    if not can_be_catalog(id):
        raise InvalidInputError(
            f"namespace id {list(id)!r}: the name of a catalog has at most 64 characters, none of them '.', '/', "
            "'\\' or ':', and does not begin with 'aws:'; choose another"
        )


def check_properties(id: Id, properties: Mapping[str, str]) -> None:
    """Raises InvalidInputError for properties that Glue would reject."""
    for key, value in properties.items():
        if not 0 < len(key) <= MAX_NAME_LENGTH or not _TEXT.fullmatch(key) or len(value) > _MAX_VALUE_LENGTH:
            raise InvalidInputError(
                f"{id.kind} {id}: property {key[:40]!r}: Glue allows keys of 1 to {MAX_NAME_LENGTH} characters, none "
                f"of them a control character, and values of at most {_MAX_VALUE_LENGTH}"
            )


def location_inside(id: TableId, place: str) -> str:
    """Returns the location derived from the database's `LocationUri`; raises InvalidInputError if it is invalid."""
    try:
        locations.check_location(f"table {id}", place)
    except InvalidInputError as e:
        raise InvalidInputError(f"{e}; it comes from its database's LocationUri; give the table another") from e
    return place


def check_location(id: TableId, location: str) -> None:
    """Raises InvalidInputError for a location that Glue would reject."""
    if not location or len(location) > _MAX_LOCATION_LENGTH or not _TEXT.fullmatch(location):
        raise InvalidInputError(
            f"table {id}: Glue allows locations of 1 to {_MAX_LOCATION_LENGTH} characters, without control "
            f"characters, not {location[:40]!r}; choose another"
        )


def _table(id: TableId, options: Mapping[str, str] | None, description: Mapping[str, Any]) -> Table:
    stored_parameters = parameters(description)
    properties = registrations.remove_identity(stored_parameters)
    own = {key: value for key, value in properties.items() if key.lower() not in OWN_PARAMETERS}
    return Table(
        id,
        description["StorageDescriptor"]["Location"],
        properties,
        # The configured options take precedence over the table's parameters.
        merge_options(own, options) or None,
        registration=registrations.identity(stored_parameters, description.get("CreateTime")),
    )


def _why_not_lance(description: Mapping[str, Any]) -> str | None:
    if (target := description.get("TargetTable")) is not None:
        of = "$".join(filter(None, (target.get("DatabaseName"), target.get("Name"))))
        return f"it is a resource link; use its target, {of}"
    kind = parameters(description).get("table_type")
    if (kind or "").lower() != "lance":
        return f"its table_type is {kind!r}"
    # Some clients omit the TableType of Lance tables.
    if (form := description.get("TableType") or "EXTERNAL_TABLE").upper() != "EXTERNAL_TABLE":
        return f"its TableType is {form!r}"
    return None if (description.get("StorageDescriptor") or {}).get("Location") else "it has no Location"


def _token(answer: Any) -> str | None:
    return text(answer.get("NextToken") or "") or None


def _path(id: str) -> list[str]:
    path = id.partition(":")[2]
    return path.split("/") if path else []


ERRORS: ErrorTable = {
    **AWS_ERRORS,
    ("EntityNotFoundException", "namespace"): err.NamespaceNotFoundError,
    ("EntityNotFoundException", "table"): err.TableNotFoundError,
    # A declaration fails with this code if the table's database is missing.
    ("EntityNotFoundException", "declare_table"): err.NamespaceNotFoundError,
    ("AlreadyExistsException", "namespace"): err.NamespaceAlreadyExistsError,
    ("AlreadyExistsException", "table"): err.TableAlreadyExistsError,
    ("FederatedResourceAlreadyExistsException", "namespace"): err.NamespaceAlreadyExistsError,
    ("FederatedResourceAlreadyExistsException", "table"): err.TableAlreadyExistsError,
    ("ConcurrentModificationException", "replace_table"): err.ConcurrentModificationError,
    # Lake Formation has filters of rows or cells for the table, which Lance cannot apply.
    "PermissionTypeMismatchException": err.PermissionDeniedError,
}
