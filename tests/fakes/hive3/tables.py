"""The tables of a Hive Metastore in memory, with their columns, and the filters of its listings."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from tests.fakes.hive3 import objects
from tests.fakes.hive3.catalog import HiveCatalog, now
from tests.fakes.thrift_wire import Struct

Filters = Literal["clob", "refused"]
"""The capabilities of filters over parameters: only matching, because values are CLOBs, or none."""

_LIKE = re.compile(r'hive_filter_field_params__(\w+) like "([^"]*)"', re.ASCII)

_NO_STATISTICS = "DO_NOT_UPDATE_STATS"
_TABLE_NAME = re.compile(r"[\w/]+", re.ASCII)


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
        parent = self._catalog.catalogs[objects.folded(catalog)].databases[objects.folded(database)]
        where = location or f"{parent.location}/{objects.folded(name)}"
        storage = Struct({1: [], 7: Struct()})
        self._keep(parent, objects.Table(objects.folded(name), None, now(), type, where, dict(parameters), storage))

    def names(self, text: str) -> list[str]:
        """Returns the names in a database in order; none if the database does not exist."""
        catalog, name = objects.address(text)
        result = self._catalog.find_database(catalog, name or "")
        return sorted(result.tables) if result else []

    def filtered(self, text: str, filter: str, most: int) -> list[str]:
        """Returns the names of the tables that match a filter, in no order."""
        catalog, name = objects.address(text)
        match = _LIKE.fullmatch(filter)
        if match is None or self._filters == "refused":
            raise objects.Thrown(objects.META, "Error parsing partition filter; lexer error: null")
        key, pattern = match.groups()
        result = self._catalog.find_database(catalog, name or "")
        tables = result.tables.values() if result else []
        # Parameters are joined to tables: a table without the parameter does not match.
        names = [it.name for it in tables if key in it.parameters and re.fullmatch(pattern, it.parameters[key])]
        return _shuffled(names)[: most if most >= 0 else None]

    def get(self, request: Struct) -> Struct:
        database, name, catalog = request[1], request[2], request.get(4) or objects.HIVE
        result = self._catalog.find_database(catalog, database)
        table = result.tables.get(objects.folded(name)) if result else None
        if result is None or table is None:
            raise _no_table(catalog, database, name)
        return table.struct(objects.folded(catalog), result.name, modern=self._catalog.modern)

    def get_many(self, request: Struct) -> list[Struct]:
        """Returns the existing tables of a request, each once and in no order."""
        database, names, catalog = request[1], request[2], request.get(4) or objects.HIVE
        result = self._catalog.find_database(catalog, database)
        if result is None:
            raise objects.Thrown(objects.UNKNOWN_DB, self._words.bulk_without_database(catalog, database))
        keys = {objects.folded(name) for name in names} & result.tables.keys()
        modern = self._catalog.modern
        return [
            result.tables[name].struct(objects.folded(catalog), result.name, modern=modern) for name in _shuffled(keys)
        ]

    def create(self, table: Struct) -> None:
        name, database, catalog = table[1], table[2], table.get(17) or objects.HIVE
        if not self._is_name(name):
            raise objects.Thrown(objects.INVALID_OBJECT, f"{name} is not a valid object name")
        storage = self._storage(table)
        parent = self._catalog.find_database(catalog, database)
        if parent is None:
            raise objects.Thrown(objects.INVALID_OBJECT, self._words.no_database(catalog, database))
        if objects.folded(name) in parent.tables:
            raise objects.Thrown(objects.ALREADY_EXISTS, f"Table {catalog}.{database}.{name} already exists")
        parameters = dict(table.get(9) or {})
        type = objects.table_type(table.get(12), parameters)
        location = None
        if type != objects.VIEW:
            location = self._places.normalised(
                storage.get(2) or self._places.below(parent.location, objects.folded(name))
            )
            self._check_lengths(name, parameters)
            new_folder = self._places.make(location)
            if not new_folder and _NO_STATISTICS not in parameters:
                parameters = {**self._statistics(location, existing=True), **parameters}
            self.before_commit()
            if objects.folded(name) in parent.tables:
                if new_folder:
                    self._places.delete(location)
                raise objects.Thrown(objects.ALREADY_EXISTS, f"Table {catalog}.{database}.{name} already exists")
        parameters.pop(_NO_STATISTICS, None)
        parameters.setdefault("transient_lastDdlTime", str(now()))
        self._keep(
            parent, objects.Table(objects.folded(name), table.get(3), now(), type, location, parameters, storage)
        )

    def alter(self, text: str, name: str, new_table: Struct, context: Mapping[str, str]) -> None:
        catalog, database = objects.address(text)
        new_name, new_database, new_catalog = new_table[1], new_table[2], new_table.get(17) or catalog
        if not self._is_name(new_name):
            raise objects.Thrown(objects.INVALID_OPERATION, f"{new_name} is not a valid object name")
        if objects.folded(new_catalog) != objects.folded(catalog):
            message = f"Tables cannot be moved between catalogs, old catalog{catalog}, new catalog {new_catalog}"
            raise objects.Thrown(objects.INVALID_OPERATION, message)
        result = self._catalog.find_database(catalog, database or "")
        if result is None and self._catalog.modern:
            raise objects.Thrown(objects.INVALID_OPERATION, "Alter table in REMOTE database is not allowed")
        table = result.tables.get(objects.folded(name)) if result else None
        if result is None or table is None:
            raise objects.Thrown(objects.INVALID_OPERATION, str(_no_table(catalog, database or "", name)))
        key, expected = (context.get(f"expected_parameter_{it}") for it in ("key", "value"))
        if self._catalog.modern and key is not None and table.parameters.get(key) != expected:
            is_now = f"The parameter value for key '{key}' is '{table.parameters.get(key)}'"
            raise objects.Thrown(
                objects.META, f"The table has been modified. {is_now}. The expected was value was '{expected}'"
            )
        target = self._target(catalog, result, new_database, managed=table.type == objects.MANAGED)
        renamed = (target.name, objects.folded(new_name)) != (result.name, table.name)
        if renamed and objects.folded(new_name) in target.tables:
            raise objects.Thrown(
                objects.INVALID_OPERATION, f"new table {target.name}.{objects.folded(new_name)} already exists"
            )
        storage = self._storage(new_table)
        location = self._new_location(storage[2])
        parameters = dict(new_table.get(9) or {})
        self._check_lengths(new_name, {key: value for key, value in parameters.items() if key != _NO_STATISTICS})
        if (
            renamed
            and table.type == objects.MANAGED
            and table.location == self._places.below(result.location, table.name)
        ):
            location = self._places.below(target.location, objects.folded(new_name))
            self._places.move(table.location, location)
        elif _NO_STATISTICS not in parameters and not (renamed and table.type == objects.MANAGED):
            parameters = {**parameters, **self._statistics(location)}
        if not (self._catalog.modern and renamed):
            parameters.pop(_NO_STATISTICS, None)
        parameters["transient_lastDdlTime"] = str(now())
        del result.tables[table.name]
        type = objects.table_type(new_table.get(12), parameters)
        target.tables[objects.folded(new_name)] = objects.Table(
            objects.folded(new_name), new_table.get(3), table.created, type, location, parameters, storage, table.number
        )

    def drop(self, text: str, name: str, *, delete_data: bool) -> None:
        catalog, database = objects.address(text)
        result = self._catalog.database(catalog, database)
        table = result.tables.get(objects.folded(name))
        if table is None:
            raise _no_table(catalog, result.name, name)
        if table.location is not None:
            self._places.normalised(table.location)
        del result.tables[table.name]
        if delete_data and table.type == objects.MANAGED and table.location is not None:
            self._places.delete(table.location)

    def _keep(self, parent: objects.Database, table: objects.Table) -> None:
        self._made += 1
        table.number = self._made
        parent.tables[table.name] = table

    def _target(self, catalog: str, old: objects.Database, new: str, *, managed: bool) -> objects.Database:
        result = self._catalog.find_database(catalog, new)
        if result is not None:
            return result
        stack = "Check metastore logs for detailed stack."
        message = f"Database {old.name} does not exist {stack}{new}"
        if self._catalog.modern:
            message = f"Object database {catalog}.{new} does not exist. {stack}"
        elif managed:
            message = f"{stack}Database {catalog}.{new} doesn't exist."
        raise objects.Thrown(objects.INVALID_OPERATION, f"Unable to change partition or table. {message}")

    def _storage(self, table: Struct) -> Struct:
        storage: Struct = table[7]
        if storage.get(7) is None:
            raise objects.Thrown(objects.META, "Invalid SerDeInfo object")
        return storage

    def _new_location(self, location: str) -> str:
        try:
            return self._places.normalised(location)
        except objects.RelativePathError:
            raise objects.Unforeseen from None
        except objects.NoClassError:
            if self._catalog.modern:
                raise
            raise objects.Unforeseen from None

    def _statistics(self, location: str, *, existing: bool = False) -> dict[str, str]:
        result = self._places.statistics(location)
        if existing and result["numFiles"] == "0":
            return {}
        return {**result, **({"numFilesErasureCoded": "0"} if self._catalog.modern else {})}

    def _check_lengths(self, name: str, parameters: Mapping[str, str]) -> None:
        if len(name) > 256:
            raise objects.Thrown(objects.META, self._words.too_long(name, "TBL_NAME", 256))
        for key in parameters:
            if len(key) > 256:
                raise objects.Thrown(objects.META, self._words.not_put("TABLE_PARAMS", "TBL_ID", key, 256))

    def _is_name(self, name: str) -> bool:
        return self._catalog.is_name(name) or _TABLE_NAME.fullmatch(name) is not None


def _no_table(catalog: str, database: str, name: str) -> objects.Thrown:
    return objects.Thrown(objects.NO_SUCH_OBJECT, f"{catalog}.{database}.{name} table not found")


def _shuffled(names: Sequence[str] | set[str]) -> list[str]:
    """Returns the names in an arbitrary order, which is always the same."""
    return sorted(names, key=lambda name: (zlib.crc32(name.encode()), name))
