"""The routes of a Unity Catalog server, for requests of authenticated users, and the pages of its listings."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.fakes.server import Answer, Received
from tests.fakes.unity import checks
from tests.fakes.unity.catalog import (
    KINDS,
    AssetRow,
    CatalogRow,
    Json,
    NamedObjects,
    SchemaRow,
    TableRow,
    User,
    catalog_info,
    compact,
    delete_directory,
    schema_info,
    table_info,
)

TABLE_TYPES = frozenset({"MANAGED", "EXTERNAL", "STREAMING_TABLE", "MATERIALIZED_VIEW", "METRIC_VIEW"})
FORMATS = frozenset({"DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT"})
PATH_OPERATIONS = frozenset({"PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"})
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Call:
    """A request of an authenticated user."""

    request: Received
    params: Mapping[str, str]
    user: User

    def body(self) -> Json:
        if not self.request.headers.get("Content-Type", "").startswith("application/json"):
            raise checks.invalid("No suitable request converter found: the body must be application/json")
        try:
            body = self.request.json
        except ValueError as e:
            raise checks.invalid(f"Unrecognized token: {e}") from None
        if not isinstance(body, dict):
            raise checks.invalid("Cannot deserialize value from Array value")
        return {key: value if isinstance(value, dict | list) else checks.text_of(value) for key, value in body.items()}


def json_answer(value: Any) -> Answer:
    return Answer(200, compact(value), JSON)


def split_name(full_name: str) -> list[str]:
    """Returns the parts of a full name; empty ones at its end are dropped."""
    return full_name.rstrip(".").split(".")


def three_parts(full_name: str) -> tuple[str, str, str]:
    match split_name(full_name):
        case [catalog, schema, name]:
            return catalog, schema, name
    raise checks.invalid(f"Invalid table name: {full_name}")


def one_of(known: Collection[str], body: Json, key: str) -> str | None:
    value = body.get(key)
    if value is not None and value not in known:
        raise checks.invalid(f"Cannot construct an instance for {key}, problem: Unexpected value '{value}'")
    return None if value is None else str(value)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of listings. The token of a page is its last name, and a full page has one even if it is the last."""

    short: bool = False  # Whether pages have fewer entries than requested, in varying numbers
    empty: bool = False  # Whether an empty page with a token comes before each other page
    repeat: bool = False  # Whether each page is the first one, with the same token

    def answer(
        self, shelf: NamedObjects[T], params: Mapping[str, str], sees: Callable[[str], bool], text: Callable[[T], bytes]
    ) -> Answer:
        """Returns the requested page; entries that the user may not see are removed afterwards."""
        size, token = checks.page_size(params), params.get("page_token") or None
        if self.repeat:
            token = None
        if self.empty and not (token or "").startswith("~"):
            return _answer(shelf.kind, [], f"~{token or ''}")
        after = token.removeprefix("~") or None if token else None
        if self.short:
            size = 1 + zlib.crc32((after or "").encode()) % size
        page = shelf.after(after, size)
        more = page[-1][0] if page and len(page) == size else None
        shown = [text(entry) for name, entry in page if sees(name)]
        return _answer(shelf.kind, shown, "again" if self.repeat else more)


def _answer(kind: str, shown: list[bytes], token: str | None) -> Answer:
    body = b'{"%b":[%b],"next_page_token":%b}' % (f"{kind.lower()}s".encode(), b",".join(shown), compact(token))
    return Answer(200, body, {"Content-Type": "application/json"})


_NO_CREDENTIALS: Json = dict.fromkeys(
    ("aws_temp_credentials", "azure_user_delegation_sas", "gcp_oauth_token", "expiration_time", "url")
)

_UUID = re.compile("[0-9a-fA-F]{1,8}(-[0-9a-fA-F]{1,4}){3}-[0-9a-fA-F]{1,12}")


@dataclass(slots=True)
class Options:
    """Differences between servers."""

    checks_columns: bool = True
    delta_only: bool = False
    extra_fields: bool = False
    credentials: Mapping[str, Any] | None = None
    """The vended credentials for tables that are not local; None if no storage is configured."""
    storage_root: str | None = None  # The folder of the locations of schemas; None if schemas have none
    races: set[str] = field(default_factory=set)
    """Full names that can be created once more, as by two concurrent requests."""
    now: int = 0  # The number of requests that were performed before the current one


class UnityRoutes:
    """The REST API of the catalogs of one server."""

    def __init__(self, options: Options, pages: Pages, *, shuffled: bool) -> None:
        self.catalogs = NamedObjects[CatalogRow]("Catalog", shuffled=shuffled)
        self._options = options
        self._pages = pages
        self._by_id: dict[str, TableRow] = {}
        self._created: dict[str, int] = {}  # The times at which requests created tables and schemas, by full name
        self._removed: dict[str, int] = {}  # The times at which requests removed tables and schemas, by full name

    def answer(self, call: Call, steps: Sequence[str]) -> Answer:
        """Performs a request whose path, relative to the API's root, has these decoded segments."""
        handlers = self._handlers(steps)
        method = call.request.method
        handler = handlers.get("GET" if method == "HEAD" else method)
        if handler is None:
            raise checks.Unserved(405)
        return handler(call)

    def _handlers(self, steps: Sequence[str]) -> Mapping[str, Callable[[Call], Answer]]:
        match steps:
            case ["catalogs"]:
                return {"GET": self._list_catalogs, "POST": self._create_catalog}
            case ["catalogs", name] if name:
                return {
                    "GET": lambda call: self._get_catalog(call, name),
                    "DELETE": lambda call: self._drop_catalog(call, name),
                }
            case ["schemas"]:
                return {"GET": self._list_schemas, "POST": self._create_schema}
            case ["schemas", name] if name:
                return {
                    "GET": lambda call: self._get_schema(call, name),
                    "PATCH": lambda call: self._change_schema(call, name),
                    "DELETE": lambda call: self._drop_schema(call, name),
                }
            case ["tables"]:
                return {"GET": self._list_tables, "POST": self._create_table}
            case ["tables", name] if name:
                return {
                    "GET": lambda call: self._get_table(call, name),
                    "DELETE": lambda call: self._drop_table(call, name),
                }
            case [("volumes" | "functions" | "models") as kind]:
                return {"GET": lambda call: self._list_assets(call, kind)}
            case ["temporary-table-credentials"]:
                return {"POST": self._vend}
            case ["temporary-path-credentials"]:
                return {"POST": self._vend_path}
        raise checks.Unserved(404)

    def catalog(self, name: str) -> CatalogRow:
        result = self.catalogs.find(name)
        if result is None:
            raise checks.missing("Catalog", name)
        return result

    def schema(self, catalog: str, name: str) -> SchemaRow:
        result = self.catalog(catalog).schemas.find(name)
        if result is None:
            raise checks.missing("Schema", f"{catalog}.{name}")
        return result

    def table(self, schema: SchemaRow, name: str) -> TableRow:
        result = schema.tables.find(name)
        if result is None:
            raise checks.missing("Table", f"{schema.info['full_name']}.{name}")
        return result

    def _list_catalogs(self, call: Call) -> Answer:
        return self._pages.answer(self.catalogs, call.params, call.user.sees, CatalogRow.text)

    def _create_catalog(self, call: Call) -> Answer:
        body = call.body()
        properties, name = checks.properties_read(body.get("properties")), checks.checked_name(body.get("name"))
        call.user.check_owner()
        if self.catalogs.find(name) is not None:
            raise checks.exists("Catalog", name)
        checks.check_properties(properties)
        return json_answer(self.plant_catalog(name, properties, body.get("comment")).info)

    def plant_catalog(self, name: str, properties: Json, comment: str | None = None) -> CatalogRow:
        row = CatalogRow(catalog_info(name, properties, comment), self.catalogs.like("Schema"))
        self.catalogs.put(name, row)
        return row

    def _get_catalog(self, call: Call, name: str) -> Answer:
        row = self.catalog(name)
        call.user.check(name)
        return json_answer(row.info)

    def _drop_catalog(self, call: Call, name: str) -> Answer:
        row = self.catalog(name)
        call.user.check_owner()
        if row.schemas and not checks.flag(call.params, "force"):
            raise checks.UnityError(400, "FAILED_PRECONDITION", "Cannot delete catalog with schemas")
        for schema in row.schemas.names():
            self._drop_contents(row.schemas.one(schema), forced=True)
        self.catalogs.remove(name)
        return checks.plain("200 OK")

    def _list_schemas(self, call: Call) -> Answer:
        catalog = checks.needed(call.params, "catalog_name")
        shelf = self.catalog(catalog).schemas
        return self._pages.answer(shelf, call.params, lambda name: call.user.sees(f"{catalog}.{name}"), SchemaRow.text)

    def _create_schema(self, call: Call) -> Answer:
        body = call.body()
        properties, name = checks.properties_read(body.get("properties")), checks.checked_name(body.get("name"))
        owner = self.catalog(body.get("catalog_name") or "null")
        call.user.check_owner()
        full_name = f"{owner.info['name']}.{name}"
        if owner.schemas.find(name) is not None and not self._races(call, full_name):
            raise checks.exists("Schema", name)
        checks.check_properties(properties)
        self._created[full_name] = self._options.now
        info = self.plant_schema(owner, name, properties, body.get("comment"), body.get("storage_root")).info
        return json_answer(info | _echoed(body))

    def plant_schema(
        self, owner: CatalogRow, name: str, properties: Json, comment: str | None = None, root: str | None = None
    ) -> SchemaRow:
        info = schema_info(owner.info["name"], name, properties, comment, root or self._options.storage_root)
        assets = {path: self.catalogs.like(kind) for path, kind in KINDS.items()}
        row = SchemaRow(info, self.catalogs.like("Table"), assets)
        owner.schemas.put(name, row)
        return row

    def _get_schema(self, call: Call, full_name: str) -> Answer:
        return json_answer(self._found_schema(call, full_name).info)

    def _change_schema(self, call: Call, full_name: str) -> Answer:
        body = call.body()
        properties = checks.properties_read(body.get("properties"))
        row = self._found_schema(call, full_name)
        call.user.check_owner()
        checks.check_properties(properties)
        if body.get("properties") is not None:
            row.info["properties"] = properties
        if body.get("comment") is not None:
            row.info["comment"] = body["comment"]
        if body.get("new_name") is not None:
            self._rename_schema(row, checks.checked_name(body["new_name"]))
        return json_answer(row.info)

    def _rename_schema(self, row: SchemaRow, name: str) -> None:
        schemas = self.catalog(row.info["catalog_name"]).schemas
        if schemas.find(name) is not None:
            raise checks.exists("Schema", name)
        schemas.move(row.info["name"], name)
        row.info.update(name=name, full_name=f"{row.info['catalog_name']}.{name}")
        for table in row.tables.names():
            row.tables.one(table).change(schema_name=name)

    def _drop_schema(self, call: Call, full_name: str) -> Answer:
        self._check_race(call, full_name, "schema")
        row = self._found_schema(call, full_name)
        call.user.check_owner()
        self._drop_contents(row, forced=checks.flag(call.params, "force"))
        self.catalog(row.info["catalog_name"]).schemas.remove(row.info["name"])
        self._removed[full_name] = self._options.now
        return checks.plain("200 OK")

    def _drop_contents(self, row: SchemaRow, *, forced: bool) -> None:
        for kind, shelf in {"tables": row.tables, **row.assets}.items():
            if shelf and not forced:
                raise checks.UnityError(400, "FAILED_PRECONDITION", f"Cannot delete schema with {kind}")
            for name in shelf.names():
                info = shelf.one(name).info
                if "MANAGED" in (info.get("table_type"), info.get("volume_type")):
                    delete_directory(info["storage_location"])
                shelf.remove(name)

    def _list_tables(self, call: Call) -> Answer:
        params = call.params
        catalog, schema = checks.needed(params, "catalog_name"), checks.needed(params, "schema_name")
        has_columns, has_properties = (
            not checks.flag(params, "omit_columns"),
            not checks.flag(params, "omit_properties"),
        )

        def text(row: TableRow) -> bytes:
            return row.text(columns=has_columns, properties=has_properties)

        def sees(name: str) -> bool:
            return call.user.sees(f"{catalog}.{schema}.{name}")

        return self._pages.answer(self.schema(catalog, schema).tables, params, sees, text)

    def _list_assets(self, call: Call, kind: str) -> Answer:
        catalog, schema = checks.needed(call.params, "catalog_name"), checks.needed(call.params, "schema_name")

        shelf, sees = self.schema(catalog, schema).assets[kind], call.user.sees
        return self._pages.answer(shelf, call.params, lambda name: sees(f"{catalog}.{schema}.{name}"), AssetRow.text)

    def _create_table(self, call: Call) -> Answer:
        body = call.body()
        properties, requested = checks.properties_read(body.get("properties")), checks.read_columns(body.get("columns"))
        kind, format = one_of(TABLE_TYPES, body, "table_type"), one_of(FORMATS, body, "data_source_format")
        if self._options.delta_only and (kind, format) != ("EXTERNAL", "DELTA"):
            raise checks.UnityError(
                400,
                "INVALID_PARAMETER_VALUE",
                f"CreateTable: only EXTERNAL tables of format DELTA can be created here, not {kind} tables of {format}",
            )
        name = checks.checked_name(body.get("name"))
        if self._options.checks_columns:
            checks.check_types(requested)
        schema = self.schema(body.get("catalog_name") or "null", body.get("schema_name") or "null")
        call.user.check_owner()
        full_name = f"{schema.info['full_name']}.{name}"
        if call.user.is_authorized and self._is_taken(body.get("storage_location")):
            # The server checks the location before the name, and refuses it even to the owner of the table there.
            raise checks.forbidden()
        if schema.tables.find(name) is not None and not self._races(call, full_name):
            raise checks.exists("Table", full_name)
        if kind is None:
            raise checks.internal("Cannot invoke TableType.toString() because table_type is null")
        if kind != "EXTERNAL":
            raise checks.invalid(f"Cannot create a table of type {kind} here")
        location = checks.normalised(body.get("storage_location"))
        if "columns" in body and body["columns"] is None:
            raise checks.internal("Cannot invoke List.stream() because columns is null")
        checks.check_properties(properties)
        checks.check_storable(requested)
        self._created[full_name] = self._options.now
        row = self.plant_table(schema, body, location, properties, [checks.kept_column(column) for column in requested])
        if echoed := _echoed(body):
            return json_answer(row.info | echoed)
        return Answer(200, row.text(), JSON)

    def _is_taken(self, location: Any) -> bool:
        """Returns whether another table is at the location, above it or below it."""
        place = f"{checks.normalised(location)}/"
        tables = (
            catalog.schemas.one(schema).tables.one(table)
            for catalog in map(self.catalogs.one, self.catalogs.names())
            for schema in catalog.schemas.names()
            for table in catalog.schemas.one(schema).tables.names()
        )
        places = (f"{table.info['storage_location']}/" for table in tables)
        return any(place.startswith(other) or other.startswith(place) for other in places)

    def plant_table(
        self, schema: SchemaRow, body: Json, location: str, properties: Json | None, columns: list[Json] | None
    ) -> TableRow:
        info = table_info(body, location, properties, columns)
        if self._options.extra_fields:
            mask = {"function_name": f"{schema.info['full_name']}.mask", "using_column_names": []}
            full_name = f"{schema.info['full_name']}.{body['name']}"
            masked = columns and [{**column, "mask": mask} for column in columns]
            info = {**info, "columns": masked, "full_name": full_name, "securable_type": "TABLE"}
        row = TableRow(info)
        schema.tables.put(body["name"], row)
        self._by_id[info["table_id"]] = row
        return row

    def _get_table(self, call: Call, full_name: str) -> Answer:
        catalog, schema, name = three_parts(full_name)
        row = self.table(self.schema(catalog, schema), name)
        call.user.check(full_name)
        return Answer(200, row.text(), JSON)

    def _drop_table(self, call: Call, full_name: str) -> Answer:
        self._check_race(call, full_name, "table")
        catalog, schema, name = three_parts(full_name)
        tables = self.schema(catalog, schema).tables
        if tables.find(name) is None:
            raise checks.missing("Table", name)
        call.user.check_owner()
        tables.remove(name)
        self._removed[full_name] = self._options.now
        return checks.plain("200 OK")

    def _vend(self, call: Call) -> Answer:
        body = call.body()
        one_of(frozenset({"READ", "READ_WRITE"}), body, "operation")
        if body.get("table_id") is None:
            raise checks.internal("Cannot invoke String.length() because table_id is null")
        id = str(body["table_id"])
        if not _UUID.fullmatch(id):
            raise checks.invalid(f"Invalid UUID string: {id}")
        row = self._by_id.get(id)
        if row is None:
            raise checks.missing("Table", id)
        path = [row.info[f"{part}name"] for part in ("catalog_", "schema_", "")]
        if self.table(self.schema(*path[:2]), path[2]) is not row:
            raise checks.missing("Table", id)
        call.user.check(".".join(path))
        if body.get("operation") is None:
            raise checks.internal("Cannot invoke TableOperation.ordinal() because operation is null")
        return self._credentials_for(row.info["storage_location"])

    def _vend_path(self, call: Call) -> Answer:
        body = call.body()
        one_of(PATH_OPERATIONS, body, "operation")
        if body.get("operation") is None or body.get("url") is None:
            raise checks.internal("Cannot invoke a method because url or operation is null")
        return self._credentials_for(checks.normalised(body["url"]))

    def _credentials_for(self, location: str) -> Answer:
        if location.startswith("file:"):
            return json_answer({**_NO_CREDENTIALS, "url": location})
        if self._options.credentials is None:
            raise checks.UnityError(400, "FAILED_PRECONDITION", "S3 bucket configuration not found.")
        return json_answer({**_NO_CREDENTIALS, "url": location, **self._options.credentials})

    def _found_schema(self, call: Call, full_name: str) -> SchemaRow:
        parts = split_name(full_name)
        if len(parts) != 2:
            raise checks.invalid(f"Invalid schema full name: {full_name}")
        row = self.schema(*parts)
        call.user.check(".".join(parts))
        return row

    def _check_race(self, call: Call, full_name: str, kind: str) -> None:
        """Raises the error of a removal that began before another one removed the same object."""
        if self._removed.get(full_name, -1) >= call.request.arrived:
            raise checks.lost_race(kind)

    def _races(self, call: Call, full_name: str) -> bool:
        """Returns whether an existing object is created once more, because it was missing when the request arrived."""
        if self._created.get(full_name, -1) >= call.request.arrived:
            return True
        if full_name not in self._options.races:
            return False
        self._options.races.remove(full_name)
        return True


def _echoed(body: Json) -> Json:
    """Returns the parts of the response to a creation that repeat the request, although other values are stored."""
    echoed: Json = {"properties": None} if "properties" in body and body["properties"] is None else {}
    return echoed | ({"view_definition": body["view_definition"]} if body.get("view_definition") else {})
