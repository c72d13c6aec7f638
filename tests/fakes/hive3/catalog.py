"""Catalogs and databases in memory, with the behaviour of a Hive Metastore."""

from __future__ import annotations

import getpass
import re
import time
from collections.abc import Mapping

from tests.fakes.hive3 import objects

from ..thrift_wire import Struct

_PLAIN_NAME = re.compile(r"\w+", re.ASCII)
# Since 4.0, all printable ASCII characters except the backslash.
_MODERN_NAME = re.compile(r"[ -\[\]-~]+")


class HiveCatalog:
    """The objects of a metastore above tables. Its strings are those on the wire."""

    def __init__(self, warehouse: str, places: objects.Places, *, modern: bool = False) -> None:
        self.places = places
        self.modern = modern
        self.words = objects.Words(modern=modern)
        self.catalogs: dict[str, objects.Catalog] = {}
        hive = self.plant_catalog(objects.HIVE, warehouse, "Default catalog for Hive")
        hive.created = 0
        hive.databases[objects.DEFAULT].description = "Default Hive database"
        hive.databases[objects.DEFAULT].owner, hive.databases[objects.DEFAULT].owner_type = "public", 2

    def plant_catalog(self, name: str, location: str, description: str | None = None) -> objects.Catalog:
        """Adds a catalog with its database `default`, without a directory."""
        new = objects.Catalog(objects.folded(name), location, now(), description)
        where = self.places.planted(location)
        new.databases[objects.DEFAULT] = objects.Database(
            objects.DEFAULT, where, now(), f"Default database for catalog {name}"
        )
        self.catalogs[new.name] = new
        return new

    def plant_database(self, catalog: str, name: str, parameters: Mapping[str, str]) -> objects.Database:
        """Adds a database at the default location, without a directory."""
        parent = self.catalogs[objects.folded(catalog)]
        where = f"{self.places.planted(parent.location)}/{objects.folded(name)}.db"
        new = objects.Database(objects.folded(name), where, now(), parameters=dict(parameters), owner=self._server_user)
        parent.databases[new.name] = new
        return new

    def catalog(self, name: str) -> objects.Catalog:
        result = self.catalogs.get(objects.folded(name))
        if result is None:
            raise objects.Thrown(objects.NO_SUCH_OBJECT, f"No catalog {name}")
        return result

    def create_catalog(self, request: Struct) -> None:
        name, location = request[1], request[3]
        if not _PLAIN_NAME.fullmatch(name):
            raise objects.Thrown(objects.INVALID_OBJECT, f"{name} is not a valid catalog name")
        if objects.folded(name) in self.catalogs:
            raise objects.Thrown(objects.ALREADY_EXISTS, f"Catalog {name} already exists")
        self._check_lengths(name, 256, request.get(2), location)
        self._make_directory(location)
        self.plant_catalog(name, location, request.get(2)).databases[objects.DEFAULT].owner = self._server_user

    def alter_catalog(self, name: str, request: Struct) -> None:
        if name != request.get(1):
            raise objects.Thrown(objects.INVALID_OPERATION, "You cannot change a catalog's name")
        result = self.catalog(name)
        result.description = request.get(2) or result.description
        result.location = request.get(3) or result.location

    def drop_catalog(self, name: str) -> None:
        if objects.folded(name) == objects.HIVE:
            raise objects.Thrown(objects.META, "Can not drop hive catalog")
        result = self.catalog(name)
        if result.databases.keys() - {objects.DEFAULT}:
            message = f"There are non-default databases in the catalog {name} so it cannot be dropped."
            raise objects.Thrown(objects.INVALID_OPERATION, message)
        if objects.DEFAULT in result.databases and result.databases[objects.DEFAULT].tables:
            message = f"There are still objects in the default database for catalog {name}"
            raise objects.Thrown(objects.INVALID_OPERATION, message)
        del self.catalogs[result.name]
        # With all content, including former tables, as observed with 3.1.3 and 4.0.1.
        for database in result.databases.values():
            self.places.delete(database.location)
        self.places.delete(self.places.normalised(result.location))

    def database(self, catalog: str, name: str) -> objects.Database:
        result = self.find_database(catalog, name)
        if result is None:
            raise objects.Thrown(objects.NO_SUCH_OBJECT, self.words.no_database(catalog, name))
        return result

    def find_database(self, catalog: str, name: str) -> objects.Database | None:
        parent = self.catalogs.get(objects.folded(catalog))
        return None if parent is None else parent.databases.get(objects.folded(name))

    def databases(self, text: str) -> list[str]:
        """Returns the names of a catalog's databases, if the pattern is `*`; none if the catalog does not exist."""
        catalog, pattern = objects.address(text)
        assert pattern == "*", text
        parent = self.catalogs.get(objects.folded(catalog))
        return sorted(parent.databases) if parent else []

    def functions(self, text: str) -> list[str]:
        """Returns the names of a database's functions; none if the database does not exist."""
        catalog, name = objects.address(text)
        result = self.find_database(catalog, name)
        return sorted(result.functions) if result else []

    def create_database(self, request: Struct) -> None:
        name, catalog = request[1], request.get(8) or objects.HIVE
        if not self.is_name(name):
            raise objects.Thrown(objects.INVALID_OBJECT, f"{name} is not a valid database name")
        parent = self.catalogs.get(objects.folded(catalog))
        if parent is None:
            raise objects.Thrown(objects.INVALID_OBJECT, f"No such catalog {catalog}")
        if objects.folded(name) in parent.databases:
            raise objects.Thrown(objects.ALREADY_EXISTS, f"Database {name} already exists")
        usual = self.places.below(parent.location, f"{objects.folded(name)}.db")
        location = self.places.normalised(request.get(3) or usual)
        parameters = request.get(4) or {}
        if self.modern:
            # 4.0 leaves the directory of a database that it then refuses.
            self.places.make(location)
        self._check_lengths(name, 128, request.get(2), location)
        self._check_parameters(parameters)
        self.places.make(location)
        parent.databases[objects.folded(name)] = objects.Database(
            objects.folded(name),
            location,
            now(),
            request.get(2),
            dict(parameters),
            request.get(6) or self._server_user,
            request.get(7) or 1,
        )

    def drop_database(self, text: str, *, delete_data: bool, cascade: bool) -> None:
        catalog, name = objects.address(text)
        result = self.find_database(catalog, name)
        if result is None and not self.modern:
            message = 'Cannot invoke "org.apache.hadoop.hive.metastore.api.Database.getName()" because "db" is null'
            raise objects.Thrown(objects.META, f"java.lang.NullPointerException: {message}")
        result = self.database(catalog, name)
        if (objects.folded(catalog), result.name) == (objects.HIVE, objects.DEFAULT):
            raise objects.Thrown(objects.META, "Can not drop default database in catalog hive")
        if result.tables and not cascade:
            raise objects.Thrown(
                objects.INVALID_OPERATION, f"Database {result.name} is not empty. One or more tables exist."
            )
        if result.functions and not cascade:
            raise objects.Thrown(
                objects.INVALID_OPERATION, f"Database {result.name} is not empty. One or more functions exist."
            )
        for table in result.tables.values():
            if table.location is not None:
                self.places.normalised(table.location)
        del self.catalogs[objects.folded(catalog)].databases[result.name]
        if delete_data:
            # Not only managed tables: external tables in the database's own directory are deleted with it.
            for table in result.tables.values():
                if table.location is not None and table.type == objects.MANAGED:
                    self.places.delete(table.location)
            self.places.delete(result.location)

    def is_name(self, name: str) -> bool:
        return (_MODERN_NAME if self.modern else _PLAIN_NAME).fullmatch(name) is not None

    @property
    def _server_user(self) -> str | None:
        return getpass.getuser() if self.modern else None

    def _make_directory(self, location: str) -> None:
        try:
            self.places.make(self.places.normalised(location))
        except (objects.RelativePathError, objects.NoClassError):
            raise objects.Unforeseen from None

    def _check_lengths(self, name: str, limit: int, description: str | None, location: str) -> None:
        columns = (('"NAME"', name, limit), ('"DESC"', description or "", 4000), ("LOCATION_URI", location, 4000))
        for column, value, most in columns:
            if len(value) > most:
                raise objects.Thrown(objects.META, self.words.too_long(value, column, most))

    def _check_parameters(self, parameters: Mapping[str, str]) -> None:
        for key, value in parameters.items():
            for text, most in ((key, 180), (value, 4000)):
                if len(text) > most:
                    raise objects.Thrown(objects.META, self.words.not_put("DATABASE_PARAMS", "DB_ID", text, most))


def now() -> int:
    return int(time.time())
