"""The tables of a Hive Metastore in memory, with their columns, and the filters of its listings."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.fakes.hive3.catalog import HiveCatalog, now
from tests.fakes.hive3.objects import (
    ALREADY_EXISTS,
    HIVE,
    INVALID_OBJECT,
    INVALID_OPERATION,
    MANAGED,
    META,
    NO_SUCH_OBJECT,
    UNKNOWN_DB,
    VIEW,
    Abandoned,
    Database,
    Malformed,
    NoClassError,
    RelativePathError,
    Table,
    Thrown,
    Unforeseen,
    address,
    folded,
    table_type,
)
from tests.fakes.thrift_wire import Struct

_TYPES = frozenset(
    "void boolean tinyint smallint int bigint float double string varchar char date datetime timestamp decimal "
    "binary interval_year_month interval_day_time array map struct uniontype".split()
)
_FIRST_WORD = re.compile(r"\w*", re.ASCII)


def bad_column(columns: Sequence[Struct]) -> str | None:
    """Returns the error for the first column with an invalid type; raises for two columns with one name."""
    for column in columns:
        type = column.get(2) or ""
        first = _FIRST_WORD.match(type)
        if first is None or first[0] not in _TYPES:
            return f"Invalid column type: {type}"
    names = [column[1].lower() for column in columns]
    if len(set(names)) < len(names):
        statement = 'INSERT INTO COLUMNS_V2 (CD_ID,COMMENT,"COLUMN_NAME",TYPE_NAME,INTEGER_IDX) VALUES (?,?,?,?,?) '
        raise Thrown(META, f"Add request failed : {statement}")
    return None


Compared = Callable[[str, str], None]
"""Receives the operator and the parameter's key of each comparison. May raise an error."""

_PARAMETER = "hive_filter_field_params__"
_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z0-9_]+)|(?P<text>"[^"]*"|'[^']*')|(?P<sign><>|!=|[<>]=?|=|\(|\)))""", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Filtered:
    """The values of a table that a filter uses."""

    parameters: Mapping[str, str]
    owner: str | None


Condition = Callable[[Filtered], bool]


def condition(text: str, compared: Compared) -> Condition:
    """Returns the condition of a filter; an empty one is true for each table."""
    if not text:
        return lambda table: True
    keys: set[str] = set()

    def noted(operator: str, key: str) -> None:
        compared(operator, key)
        keys.add(key)

    holds = _Parser(text, noted).parsed()
    # Parameters are joined to tables: a table without any parameter of the filter does not match an `or` either.
    return lambda table: keys <= table.parameters.keys() and holds(table)


class _Parser:
    def __init__(self, text: str, compared: Compared) -> None:
        self._tokens = _tokens(text)
        self._compared = compared

    def parsed(self) -> Condition:
        result = self._either()
        if self._tokens:
            raise _unreadable()
        return result

    def _either(self) -> Condition:
        result = self._both()
        while self._next_is("or"):
            left, right = result, self._both()
            result = _or(left, right)
        return result

    def _both(self) -> Condition:
        result = self._single()
        while self._next_is("and"):
            left, right = result, self._single()
            result = _and(left, right)
        return result

    def _single(self) -> Condition:
        if self._next_is("("):
            result = self._either()
            if not self._next_is(")"):
                raise _unreadable()
            return result
        key, operator, value = self._take(), self._take().lower(), self._take()
        if operator not in {"=", "<>", "!=", "like"}:
            raise _unreadable()
        expected = value[1:-1] if value[0] in "\"'" else value
        if key.startswith(_PARAMETER):
            name = key.removeprefix(_PARAMETER)
            self._compared(operator, name)
            return lambda table: _holds(operator, table.parameters[name], expected)
        if key == "hive_filter_field_owner__":
            return lambda table: table.owner is not None and _holds(operator, table.owner, expected)
        raise Thrown(META, "Invalid key name in filter.  Use constants from org.apache.hadoop.hive.metastore.api")

    def _next_is(self, word: str) -> bool:
        if self._tokens and self._tokens[0].lower() == word:
            self._tokens.pop(0)
            return True
        return False

    def _take(self) -> str:
        if not self._tokens:
            raise _unreadable()
        return self._tokens.pop(0)


def _tokens(text: str) -> list[str]:
    result, at = [], 0
    while at < len(text.rstrip()):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _unreadable()
        result.append(token[token.lastgroup or 0])
        at = token.end()
    return result


def _and(left: Condition, right: Condition) -> Condition:
    return lambda table: left(table) and right(table)


def _or(left: Condition, right: Condition) -> Condition:
    return lambda table: left(table) or right(table)


def _holds(operator: str, held: str, expected: str) -> bool:
    match operator:
        case "=":
            return held == expected
        case "like":
            try:
                return re.fullmatch(expected, held) is not None
            except re.error:
                return False
        case _:
            return held != expected


def _unreadable() -> Thrown:
    return Thrown(META, "Error parsing partition filter; lexer error: null; exception NoViableAltException(-1@[])")


Filters = Literal["clob", "text", "refused"]
"""The capabilities of filters over parameters: only matching, if values are CLOBs; also comparison; or neither."""

_NO_STATISTICS = "DO_NOT_UPDATE_STATS"
_TABLE_NAME = re.compile(r"[\w/]+", re.ASCII)
_NPE = "java.lang.NullPointerException: Cannot invoke"
_API = "org.apache.hadoop.hive.metastore.api"


class HiveTables:
    """The tables of the databases of a catalog. Its strings are those on the wire."""

    def __init__(self, catalog: HiveCatalog, filters: Filters) -> None:
        self._catalog = catalog
        self._places = catalog.places
        self._words = catalog.words
        self._filters = filters
        self._made = 0
        self.before_commit: Callable[[], None] = lambda: None

    def add_other_table(
        self, catalog: str, database: str, name: str, parameters: Mapping[str, str], location: str | None, type: str
    ) -> None:
        """Adds a table whose values are returned unchanged, without a directory."""
        parent = self._catalog.catalogs[folded(catalog)].databases[folded(database)]
        where = location or f"{parent.location}/{folded(name)}"
        storage = Struct({1: [], 7: Struct()})
        self._keep(parent, Table(folded(name), None, now(), type, where, dict(parameters), storage))

    def names(self, text: str | None) -> list[str]:
        """Returns the names in a database in order; none if the database does not exist."""
        if text is None:
            raise Thrown(META, f'{_NPE} "String.trim()" because "identifier" is null')
        catalog, name = address(text)
        result = self._catalog.find_database(catalog, name or "")
        return sorted(result.tables) if result else []

    def filtered(self, text: str | None, filter: str | None, most: int) -> list[str]:
        """Returns the names of the tables that match a filter, in no order."""
        catalog, name = address(text)
        if not name:
            raise Thrown(UNKNOWN_DB, "DB name is null or empty")
        if filter is None:
            raise Thrown(INVALID_OPERATION, "null cannot apply null filter")
        holds = condition(filter, self._check_comparison)
        result = self._catalog.find_database(catalog, name)
        tables = result.tables.values() if result else []
        names = [table.name for table in tables if holds(Filtered(table.parameters, table.owner))]
        return _shuffled(names)[: most if most >= 0 else None]

    def get(self, request: Struct | None) -> Struct:
        if request is None:
            raise Unforeseen
        database, name, catalog = request.get(1), request.get(2), request.get(4) or HIVE
        if database is None:
            raise Abandoned
        if name is None:
            fields = f"Struct:GetTableRequest(dbName:{database}, tblName:null, catName:{catalog})"
            raise Malformed(f"Required field 'tblName' is unset! {fields}")
        result = self._catalog.find_database(catalog, database)
        table = result.tables.get(folded(name)) if result else None
        if result is None or table is None:
            raise _no_table(catalog, database, name)
        return table.struct(folded(catalog), result.name, modern=self._catalog.modern)

    def get_many(self, request: Struct | None) -> list[Struct]:
        """Returns the existing tables of a request, each once and in no order."""
        if request is None:
            raise Unforeseen
        database, names, catalog = request.get(1) or "", request.get(2), request.get(4) or HIVE
        result = self._catalog.find_database(catalog, database)
        if result is None:
            raise Thrown(UNKNOWN_DB, self._words.bulk_without_database(catalog, database))
        if names is None:
            raise Thrown(INVALID_OPERATION, f"{database} cannot find null tables")
        keys = {folded(name) for name in names} & result.tables.keys()
        modern = self._catalog.modern
        return [result.tables[name].struct(folded(catalog), result.name, modern=modern) for name in _shuffled(keys)]

    def create(self, table: Struct | None) -> None:
        if table is None:
            raise Unforeseen
        name, database, catalog = table.get(1), table.get(2) or "", table.get(17) or HIVE
        if name is None:
            raise Thrown(META, f'{_NPE} "java.lang.CharSequence.length()" because "this.text" is null')
        if not self._is_name(name):
            raise Thrown(INVALID_OBJECT, f"{name} is not a valid object name")
        storage = self._storage(table)
        problem = bad_column(storage[1])
        if problem:
            raise Thrown(INVALID_OBJECT, problem)
        parent = self._catalog.find_database(catalog, database)
        if parent is None:
            raise Thrown(INVALID_OBJECT, self._words.no_database(catalog, database))
        if folded(name) in parent.tables:
            raise Thrown(ALREADY_EXISTS, f"Table {catalog}.{database}.{name} already exists")
        parameters = dict(table.get(9) or {})
        type = table_type(table.get(12), parameters)
        location = None
        if type != VIEW:
            location = self._places.normalised(storage.get(2) or self._places.below(parent.location, folded(name)))
            self._check_lengths(name, parameters)
            new_folder = self._places.make(location)
            if not new_folder and _NO_STATISTICS not in parameters:
                parameters = {**self._statistics(location, existing=True), **parameters}
            self.before_commit()
            if folded(name) in parent.tables:
                if new_folder:
                    self._places.delete(location)
                raise Thrown(ALREADY_EXISTS, f"Table {catalog}.{database}.{name} already exists")
        parameters.pop(_NO_STATISTICS, None)
        parameters.setdefault("transient_lastDdlTime", str(now()))
        self._keep(parent, Table(folded(name), table.get(3), now(), type, location, parameters, storage))

    def alter(self, text: str | None, name: str | None, new_table: Struct | None, context: Mapping[str, str]) -> None:
        if text is None or name is None or new_table is None:
            raise Unforeseen
        catalog, database = address(text)
        new_name, new_database, new_catalog = new_table.get(1), new_table.get(2), new_table.get(17) or catalog
        if new_database is None:
            raise _null("DbName")
        if new_name is None:
            raise _null("TableName")
        if not self._is_name(new_name):
            raise Thrown(INVALID_OPERATION, f"{new_name} is not a valid object name")
        if folded(new_catalog) != folded(catalog):
            message = f"Tables cannot be moved between catalogs, old catalog{catalog}, new catalog {new_catalog}"
            raise Thrown(INVALID_OPERATION, message)
        result = self._catalog.find_database(catalog, database or "")
        if result is None and self._catalog.modern:
            raise Thrown(INVALID_OPERATION, "Alter table in REMOTE database is not allowed")
        table = result.tables.get(folded(name)) if result else None
        if result is None or table is None:
            raise Thrown(INVALID_OPERATION, str(_no_table(catalog, database or "", name)))
        key, expected = (context.get(f"expected_parameter_{it}") for it in ("key", "value"))
        if self._catalog.modern and key is not None and table.parameters.get(key) != expected:
            is_now = f"The parameter value for key '{key}' is '{table.parameters.get(key)}'"
            raise Thrown(META, f"The table has been modified. {is_now}. The expected was value was '{expected}'")
        target = self._target(catalog, result, new_database, managed=table.type == MANAGED)
        renamed = (target.name, folded(new_name)) != (result.name, table.name)
        if renamed and folded(new_name) in target.tables:
            raise Thrown(INVALID_OPERATION, f"new table {target.name}.{folded(new_name)} already exists")
        storage = self._storage(new_table)
        if new_table.get(8) is None:
            raise Thrown(INVALID_OPERATION, "partition keys can not be changed.")
        location = self._new_location(storage.get(2))
        parameters = dict(new_table.get(9) or {})
        self._check_lengths(new_name, {key: value for key, value in parameters.items() if key != _NO_STATISTICS})
        if renamed and table.type == MANAGED and table.location == self._places.below(result.location, table.name):
            location = self._places.below(target.location, folded(new_name))
            self._places.move(table.location, location)
        elif _NO_STATISTICS not in parameters and not (renamed and table.type == MANAGED):
            parameters = {**parameters, **self._statistics(location)}
        if not (self._catalog.modern and renamed):
            parameters.pop(_NO_STATISTICS, None)
        parameters["transient_lastDdlTime"] = str(now())
        del result.tables[table.name]
        type = table_type(new_table.get(12), parameters)
        target.tables[folded(new_name)] = Table(
            folded(new_name), new_table.get(3), table.created, type, location, parameters, storage, table.number
        )

    def drop(self, text: str | None, name: str | None, *, delete_data: bool) -> None:
        catalog, database = address(text)
        if not database or name is None:
            raise Thrown(NO_SUCH_OBJECT, f'{database}: Cannot invoke "String.trim()" because "identifier" is null')
        result = self._catalog.database(catalog, database)
        table = result.tables.get(folded(name))
        if table is None:
            raise _no_table(catalog, database, name)
        if table.location is not None:
            self._places.normalised(table.location)
        del result.tables[table.name]
        if delete_data and table.type == MANAGED and table.location is not None:
            self._places.delete(table.location)

    def _keep(self, parent: Database, table: Table) -> None:
        self._made += 1
        table.number = self._made
        parent.tables[table.name] = table

    def _target(self, catalog: str, old: Database, new: str, *, managed: bool) -> Database:
        result = self._catalog.find_database(catalog, new)
        if result is not None:
            return result
        stack = "Check metastore logs for detailed stack."
        message = f"Database {old.name} does not exist {stack}{new}"
        if self._catalog.modern:
            message = f"Object database {catalog}.{new} does not exist. {stack}"
        elif managed:
            message = f"{stack}Database {catalog}.{new} doesn't exist."
        raise Thrown(INVALID_OPERATION, f"Unable to change partition or table. {message}")

    def _storage(self, table: Struct) -> Struct:
        storage: Struct | None = table.get(7)
        if storage is None:
            message = f'"{_API}.StorageDescriptor.getCols()" because the return value of "{_API}.Table.getSd()" is null'
            raise Thrown(META, f"{_NPE} {message}")
        if storage.get(1) is None:
            raise Thrown(META, f'{_NPE} "java.util.List.iterator()" because "cols" is null')
        if storage.get(7) is None:
            raise Thrown(META, "Invalid SerDeInfo object")
        return storage

    def _new_location(self, location: str | None) -> str:
        if not location:
            kind = "a null" if location is None else "an empty"
            raise Thrown(META, f"java.lang.IllegalArgumentException: Can not create a Path from {kind} string")
        try:
            return self._places.normalised(location)
        except RelativePathError:
            raise Unforeseen from None
        except NoClassError:
            if self._catalog.modern:
                raise
            raise Unforeseen from None

    def _statistics(self, location: str, *, existing: bool = False) -> dict[str, str]:
        result = self._places.statistics(location)
        if existing and result["numFiles"] == "0":
            return {}
        return {**result, **({"numFilesErasureCoded": "0"} if self._catalog.modern else {})}

    def _check_comparison(self, operator: str, key: str) -> None:
        if self._filters == "refused" or (self._filters == "clob" and operator != "like"):
            raise Thrown(META, self._words.not_compared(operator, key))

    def _check_lengths(self, name: str, parameters: Mapping[str, str]) -> None:
        if len(name) > 256:
            raise Thrown(META, self._words.too_long(name, "TBL_NAME", 256))
        for key in parameters:
            if len(key) > 256:
                raise Thrown(META, self._words.not_put("TABLE_PARAMS", "TBL_ID", key, 256))

    def _is_name(self, name: str) -> bool:
        return self._catalog.is_name(name) or _TABLE_NAME.fullmatch(name) is not None


def _no_table(catalog: str, database: str, name: str) -> Thrown:
    return Thrown(NO_SUCH_OBJECT, f"{catalog}.{database}.{name} table not found")


def _null(field: str) -> Thrown:
    message = f'because the return value of "{_API}.Table.get{field}()" is null'
    return Thrown(META, f'{_NPE} "String.toLowerCase()" {message}')


def _shuffled(names: Sequence[str] | set[str]) -> list[str]:
    """Returns the names in an arbitrary order, which is always the same."""
    return sorted(names, key=lambda name: (zlib.crc32(name.encode()), name))
