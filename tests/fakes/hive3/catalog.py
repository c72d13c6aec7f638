"""Catalogs and databases in memory, with the behaviour of a Hive Metastore."""

from __future__ import annotations

import getpass
import re
import time
from collections.abc import Mapping

from tests.fakes.hive3.objects import (
    ALREADY_EXISTS,
    DEFAULT,
    HIVE,
    INVALID_OBJECT,
    INVALID_OPERATION,
    MANAGED,
    META,
    NO_SUCH_OBJECT,
    Catalog,
    Database,
    NoClassError,
    Places,
    RelativePathError,
    Thrown,
    Unforeseen,
    Words,
    address,
    folded,
)

from ..thrift_wire import Struct

_NULL_NAME = "Database name cannot be null."
_PLAIN_NAME = re.compile(r"\w+", re.ASCII)
# Since 4.0, all printable ASCII characters except the backslash.
_MODERN_NAME = re.compile(r"[ -\[\]-~]+")


class HiveCatalog:
    """The objects of a metastore above tables. Its strings are those on the wire."""

    def __init__(self, warehouse: str, places: Places, *, modern: bool = False) -> None:
        self.places = places
        self.modern = modern
        self.words = Words(modern=modern)
        self.catalogs: dict[str, Catalog] = {}
        hive = self.plant_catalog(HIVE, warehouse, "Default catalog for Hive")
        hive.created = 0
        hive.databases[DEFAULT].description = "Default Hive database"
        hive.databases[DEFAULT].owner, hive.databases[DEFAULT].owner_type = "public", 2

    def plant_catalog(self, name: str, location: str, description: str | None = None) -> Catalog:
        """Adds a catalog with its database `default`, without a directory."""
        new = Catalog(folded(name), location, now(), description)
        where = self.places.planted(location)
        new.databases[DEFAULT] = Database(DEFAULT, where, now(), f"Default database for catalog {name}")
        self.catalogs[new.name] = new
        return new

    def plant_database(self, catalog: str, name: str, parameters: Mapping[str, str]) -> Database:
        """Adds a database at the default location, without a directory."""
        parent = self.catalogs[folded(catalog)]
        where = f"{self.places.planted(parent.location)}/{folded(name)}.db"
        new = Database(folded(name), where, now(), parameters=dict(parameters), owner=self._server_user)
        parent.databases[new.name] = new
        return new

    def catalog(self, name: str | None) -> Catalog:
        if name is None:
            raise Unforeseen
        result = self.catalogs.get(folded(name))
        if result is None:
            raise Thrown(NO_SUCH_OBJECT, f"No catalog {name}")
        return result

    def create_catalog(self, request: Struct) -> None:
        name, location = request.get(1), request.get(3)
        if location is None:
            raise Thrown(INVALID_OBJECT, "You must specify a path for the catalog")
        if name is None or not location:
            raise Unforeseen
        if not _PLAIN_NAME.fullmatch(name):
            raise Thrown(INVALID_OBJECT, f"{name} is not a valid catalog name")
        if folded(name) in self.catalogs:
            raise Thrown(ALREADY_EXISTS, f"Catalog {name} already exists")
        self._check_lengths(name, 256, request.get(2), location)
        self._make_directory(location)
        self.plant_catalog(name, location, request.get(2)).databases[DEFAULT].owner = self._server_user

    def alter_catalog(self, name: str | None, request: Struct | None) -> None:
        if name is None or request is None:
            raise Unforeseen
        if name != request.get(1):
            raise Thrown(INVALID_OPERATION, "You cannot change a catalog's name")
        result = self.catalog(name)
        result.description = request.get(2) or result.description
        result.location = request.get(3) or result.location

    def drop_catalog(self, name: str) -> None:
        if folded(name) == HIVE:
            raise Thrown(META, "Can not drop hive catalog")
        result = self.catalog(name)
        if result.databases.keys() - {DEFAULT}:
            message = f"There are non-default databases in the catalog {name} so it cannot be dropped."
            raise Thrown(INVALID_OPERATION, message)
        if DEFAULT in result.databases and result.databases[DEFAULT].tables:
            message = f"There are still objects in the default database for catalog {name}"
            raise Thrown(INVALID_OPERATION, message)
        del self.catalogs[result.name]
        # With all content, including former tables, as observed with 3.1.3 and 4.0.1.
        for database in result.databases.values():
            self.places.delete(database.location)
        self.places.delete(self.places.normalised(result.location))

    def database(self, catalog: str, name: str | None) -> Database:
        """Returns a database by the parts of its address."""
        if name is None:
            raise Thrown(META, _NULL_NAME)
        result = self.find_database(catalog, name)
        if result is None:
            raise Thrown(NO_SUCH_OBJECT, self.words.no_database(catalog, name))
        return result

    def find_database(self, catalog: str, name: str) -> Database | None:
        parent = self.catalogs.get(folded(catalog))
        return None if parent is None else parent.databases.get(folded(name))

    def databases(self, text: str | None) -> list[str]:
        """Returns the names of a catalog's databases that match a pattern; none if the catalog does not exist."""
        catalog, pattern = address(text)
        if text is None:
            raise Thrown(META, 'java.lang.NullPointerException: Cannot invoke "String.trim()" because it is null')
        everything = pattern is None or pattern == "*"
        parent = self.catalogs.get(folded(catalog) if everything else catalog)
        names = sorted(parent.databases) if parent else []
        if pattern is None or everything:
            return names
        parts = [part.strip().replace("*", ".*") for part in pattern.split("|")]
        return [name for name in names if any(re.fullmatch(part, name, re.IGNORECASE) for part in parts)]

    def functions(self, text: str | None) -> list[str]:
        """Returns the names of a database's functions; none if the database does not exist."""
        catalog, name = address(text)
        result = self.find_database(catalog, name or "")
        return sorted(result.functions) if result else []

    def create_database(self, request: Struct) -> None:
        name, catalog = request.get(1), request.get(8) or HIVE
        if name is None:
            raise Thrown(META, _NULL_NAME)
        if not self.is_name(name):
            raise Thrown(INVALID_OBJECT, f"{name} is not a valid database name")
        parent = self.catalogs.get(folded(catalog))
        if parent is None:
            raise Thrown(INVALID_OBJECT, f"No such catalog {catalog}")
        if folded(name) in parent.databases:
            raise Thrown(ALREADY_EXISTS, f"Database {name} already exists")
        usual = self.places.below(parent.location, f"{folded(name)}.db")
        location = self.places.normalised(request.get(3) or usual)
        parameters = request.get(4) or {}
        if self.modern:
            # 4.0 leaves the directory of a database that it then refuses.
            self.places.make(location)
        self._check_lengths(name, 128, request.get(2), location)
        self._check_parameters(parameters)
        self.places.make(location)
        parent.databases[folded(name)] = Database(
            folded(name),
            location,
            now(),
            request.get(2),
            dict(parameters),
            request.get(6) or self._server_user,
            request.get(7) or 1,
        )

    def alter_database(self, text: str | None, request: Struct | None) -> None:
        if text is None or request is None:
            raise Unforeseen
        result = self.database(*address(text))
        location = self._other_location(request.get(3)) or result.location
        parameters = request.get(4) or {}
        if len(request.get(2) or "") > 4000:
            catalog, name = address(text)
            message = self.words.no_database(catalog, name or "")
            raise Thrown(NO_SUCH_OBJECT, f"{message}: Invalid state. Transaction has already started")
        try:
            self._check_parameters(parameters)
        except Thrown:
            # The server's second attempt succeeds, but stores nothing.
            return
        result.description, result.location = request.get(2) or result.description, location
        result.parameters, result.owner = dict(parameters), request.get(6)
        result.owner_type = request.get(7) or result.owner_type

    def drop_database(self, text: str | None, *, delete_data: bool, cascade: bool) -> None:
        catalog, name = address(text)
        if name is None:
            raise Thrown(META, _NULL_NAME)
        result = self.find_database(catalog, name)
        if result is None and not self.modern:
            message = 'Cannot invoke "org.apache.hadoop.hive.metastore.api.Database.getName()" because "db" is null'
            raise Thrown(META, f"java.lang.NullPointerException: {message}")
        result = self.database(catalog, name)
        if (folded(catalog), result.name) == (HIVE, DEFAULT):
            raise Thrown(META, "Can not drop default database in catalog hive")
        if result.tables and not cascade:
            raise Thrown(INVALID_OPERATION, f"Database {result.name} is not empty. One or more tables exist.")
        if result.functions and not cascade:
            raise Thrown(INVALID_OPERATION, f"Database {result.name} is not empty. One or more functions exist.")
        for table in result.tables.values():
            if table.location is not None:
                self.places.normalised(table.location)
        del self.catalogs[folded(catalog)].databases[result.name]
        if delete_data:
            # Not only managed tables: external tables in the database's own directory are deleted with it.
            for table in result.tables.values():
                if table.location is not None and table.type == MANAGED:
                    self.places.delete(table.location)
            self.places.delete(result.location)

    def is_name(self, name: str) -> bool:
        """Returns whether a database may have this name."""
        return (_MODERN_NAME if self.modern else _PLAIN_NAME).fullmatch(name) is not None

    @property
    def _server_user(self) -> str | None:
        return getpass.getuser() if self.modern else None

    def _make_directory(self, location: str) -> None:
        try:
            self.places.make(self.places.normalised(location))
        except (RelativePathError, NoClassError):
            raise Unforeseen from None

    def _other_location(self, location: str | None) -> str | None:
        if not location:
            return None
        try:
            return self.places.normalised(location)
        except RelativePathError:
            raise Unforeseen from None
        except NoClassError:
            if not self.modern:
                raise Unforeseen from None
            return location

    def _check_lengths(self, name: str, limit: int, description: str | None, location: str) -> None:
        columns = (('"NAME"', name, limit), ('"DESC"', description or "", 4000), ("LOCATION_URI", location, 4000))
        for column, value, most in columns:
            if len(value) > most:
                raise Thrown(META, self.words.too_long(value, column, most))

    def _check_parameters(self, parameters: Mapping[str, str]) -> None:
        for key, value in parameters.items():
            for text, most in ((key, 180), (value, 4000)):
                if len(text) > most:
                    raise Thrown(META, self.words.not_put("DATABASE_PARAMS", "DB_ID", text, most))


def now() -> int:
    """Returns the seconds since 1970."""
    return int(time.time())
