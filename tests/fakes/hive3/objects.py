"""The objects of a Hive Metastore, its errors, and the locations of its files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.thrift_wire import LIST, STRING, STRUCT, Struct, Typed

ALREADY_EXISTS = "AlreadyExistsException"
INVALID_OBJECT = "InvalidObjectException"
INVALID_OPERATION = "InvalidOperationException"
META = "MetaException"
NO_SUCH_OBJECT = "NoSuchObjectException"
UNKNOWN_DB = "UnknownDBException"

METHODS: Mapping[str, tuple[str, ...]] = {
    "getStatus": (),
    "set_ugi": (META,),
    "get_catalogs": (META,),
    "get_catalog": (NO_SUCH_OBJECT, META),
    "create_catalog": (ALREADY_EXISTS, INVALID_OBJECT, META),
    "alter_catalog": (NO_SUCH_OBJECT, INVALID_OPERATION, META),
    "drop_catalog": (NO_SUCH_OBJECT, INVALID_OPERATION, META),
    "create_database": (ALREADY_EXISTS, INVALID_OBJECT, META),
    "get_database": (NO_SUCH_OBJECT, META),
    "get_databases": (META,),
    "drop_database": (NO_SUCH_OBJECT, INVALID_OPERATION, META),
    "create_table": (ALREADY_EXISTS, INVALID_OBJECT, META, NO_SUCH_OBJECT),
    "get_all_tables": (META,),
    "get_functions": (META,),
    "get_table_req": (META, NO_SUCH_OBJECT),
    "get_table_objects_by_name_req": (META, INVALID_OPERATION, UNKNOWN_DB),
    "get_table_names_by_filter": (META, INVALID_OPERATION, UNKNOWN_DB),
    "alter_table": (INVALID_OPERATION, META),
    "alter_table_with_environment_context": (INVALID_OPERATION, META),
    "drop_table": (NO_SUCH_OBJECT, META),
}
"""The known methods, with their declared exceptions, that of field 1 first."""

APPLICATION_TYPES: Mapping[str, int] = {"unknown method": 1, "internal": 6}
"""The types of `TApplicationException`, for calls that cannot be made at all."""


class Thrown(Exception):
    """An exception of the metastore, with its name and message."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class Unforeseen(Exception):
    """An error that the metastore does not handle: 3.1 closes the connection, 4.0 returns an internal error."""


class Words:
    """Messages that differ between versions."""

    def __init__(self, *, modern: bool) -> None:
        self._modern = modern

    def no_database(self, catalog: str, database: str) -> str:
        """Returns the message for a database that does not exist; 3.1 does not name the catalog."""
        return f"database {catalog}.{database}" if self._modern else database

    def bulk_without_database(self, catalog: str, database: str) -> str:
        text = f"Could not find database {catalog}.{database}"
        return f"{text}: {self.no_database(catalog, database)}" if self._modern else text

    def too_long(self, value: str, column: str, limit: int) -> str:
        text = f'Attempt to store value "{value}" in column "{column}" that has maximum length of {limit}. '
        return self._caused(
            "JDOFatalUserException",
            f"{text}Please correct your data!",
            f"org.datanucleus.exceptions.NucleusUserException: {text}Please correct your data!",
        )

    def not_put(self, table: str, key: str, value: str, limit: int) -> str:
        """Returns the message for a parameter that is longer than its column, with the name of the database's table."""
        text = f"Put request failed : INSERT INTO {table} (PARAM_VALUE,{key},PARAM_KEY) VALUES (?,?,?) "
        cause = f"ERROR 22001: A truncation error was encountered trying to shrink VARCHAR '{value[:60]}&' "
        return self._caused("JDODataStoreException", text, f"{cause}to length {limit}.")

    def _caused(self, kind: str, text: str, cause: str) -> str:
        return f"{kind}: {text}\nRoot cause: {cause}" if self._modern else text


EXTERNAL, MANAGED, VIEW = "EXTERNAL_TABLE", "MANAGED_TABLE", "VIRTUAL_VIEW"


@dataclass(slots=True)
class Table:
    """A table; its database and catalog are recorded elsewhere."""

    name: str
    owner: str | None
    created: int
    type: str
    location: str | None
    parameters: dict[str, str]
    storage: Struct  # Its storage descriptor as it was sent, including fields that the metastore ignores
    number: int = 0

    def struct(self, catalog: str, database: str, *, modern: bool) -> Struct:
        descriptor = self.storage
        serde = descriptor.get(7) or {}
        storage = Struct(
            {
                1: Typed(STRUCT, []),
                2: self.location,
                3: descriptor.get(3),
                4: descriptor.get(4),
                5: descriptor.get(5) or False,
                6: descriptor.get(6) or 0,
                7: Struct({1: serde.get(1), 2: serde.get(2), 3: serde.get(3) or {}}),
                8: Typed(STRING, []),
                9: Typed(STRUCT, []),
                10: descriptor.get(10) or {},
                11: Struct({1: Typed(STRING, []), 2: Typed(LIST, []), 3: {}}),
                12: False,
            }
        )
        return Struct(
            {
                1: self.name,
                2: database,
                3: self.owner,
                4: self.created,
                5: 0,
                6: 0,
                7: storage,
                8: Typed(STRUCT, []),
                9: self.parameters,
                12: self.type,
                15: False,
                17: catalog,
                18: 1,
                **({19: 0, 25: self.number} if modern else {}),
            }
        )


@dataclass(slots=True)
class Database:
    """A database with its tables."""

    name: str
    location: str
    created: int
    description: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    owner: str | None = None
    owner_type: int | None = 1
    tables: dict[str, Table] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)

    def struct(self, catalog: str, *, modern: bool) -> Struct:
        return Struct(
            {
                1: self.name,
                2: self.description,
                3: self.location,
                4: self.parameters,
                6: self.owner,
                7: self.owner_type,
                8: catalog,
                **({9: self.created, 11: 1} if modern else {}),
            }
        )


@dataclass(slots=True)
class Catalog:
    """A catalog with its databases."""

    name: str
    location: str
    created: int
    description: str | None = None
    databases: dict[str, Database] = field(default_factory=dict)

    def struct(self, *, modern: bool) -> Struct:
        return Struct({1: self.name, 2: self.description, 3: self.location, **({4: self.created} if modern else {})})


def table_type(requested: str | None, parameters: dict[str, str]) -> str:
    """Returns the type of a table when it is read: a parameter decides, whatever was requested."""
    if requested == VIEW:
        return VIEW
    return EXTERNAL if parameters.get("EXTERNAL", "").upper() == "TRUE" else MANAGED


HIVE = "hive"  # The catalog of addresses without one
DEFAULT = "default"  # The database that each new catalog contains
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CLASSES = {
    "s3a": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "abfss": "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",
}


class RelativePathError(Thrown):
    """A relative location."""

    def __init__(self, location: str) -> None:
        message = f"java.net.URISyntaxException: Relative path in absolute URI: file:./{location}"
        super().__init__(META, f"java.lang.IllegalArgumentException: {message}")


class NoClassError(Thrown):
    """A location in a known file system that the server does not support."""

    def __init__(self, scheme: str) -> None:
        message = f"java.lang.ClassNotFoundException: Class {_CLASSES[scheme]} not found"
        super().__init__(META, f"java.lang.RuntimeException: {message}")


def folded(name: str) -> str:
    return name.strip().lower()


def address(text: str) -> tuple[str, str]:
    """Returns catalog and database of `@catalog#database`, or of a database of the catalog `hive`."""
    if not text.startswith("@"):
        return HIVE, text
    catalog, _, database = text[1:].partition("#")
    return catalog, database


class Places:
    """The directories of the server's file systems; only local files are changed."""

    def __init__(self, schemes: Collection[str] = ()) -> None:
        """Creates it; `schemes` are supported besides `file`."""
        self._schemes = frozenset(schemes)

    def normalised(self, location: str) -> str:
        """Returns the location as the server stores it: `file:/x` for a local one, without a slash at the end."""
        result = _SCHEME.match(location)
        scheme = result[1] if result else "file"
        rest = location[result.end() :] if result else location
        if scheme == "file":
            if not rest.startswith("/"):
                raise RelativePathError(rest)
            return f"file:{_tidy(_without_host(rest))}"
        if scheme not in self._schemes:
            if scheme in _CLASSES:
                raise NoClassError(scheme)
            message = f'org.apache.hadoop.fs.UnsupportedFileSystemException No FileSystem for scheme "{scheme}"'
            raise Thrown(META, f"Got exception: {message}")
        host, slash, path = rest.removeprefix("//").partition("/")
        return f"{scheme}://{host}{_tidy(slash + path)}".rstrip("/")

    def planted(self, location: str) -> str:
        """Returns the location as the server would store it if it supported its file system."""
        try:
            return self.normalised(location)
        except Thrown:
            return location.rstrip("/")

    def below(self, location: str, name: str) -> str:
        return f"{self.normalised(location).rstrip('/')}/{name}"

    def make(self, location: str) -> bool:
        """Creates the directory of a location; returns whether it is new."""
        path = _local(location)
        if path is None or path.is_dir():
            return False
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            message = f"FileAlreadyExistsException Destination exists and is not a directory: {path}"
            raise Thrown(META, f"Got exception: org.apache.hadoop.fs.{message}") from None
        except NotADirectoryError:
            message = f"ParentNotDirectoryException Parent path is not a directory: file:{path.parent}"
            raise Thrown(META, f"Got exception: org.apache.hadoop.fs.{message}") from None
        except OSError:
            raise Thrown(META, f"{location} is not a directory or unable to create one") from None
        return True

    def delete(self, location: str) -> None:
        path = _local(location)
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)

    def move(self, location: str, new: str) -> None:
        path, target = _local(location), _local(new)
        if path is not None and target is not None and path.exists():
            path.rename(target)

    def statistics(self, location: str) -> dict[str, str]:
        """Returns the server's statistics of the files in a directory; this reads all of it."""
        path = _local(location)
        files = [file for file in path.rglob("*") if file.is_file()] if path is not None and path.is_dir() else []
        return {"numFiles": str(len(files)), "totalSize": str(sum(file.stat().st_size for file in files))}


def _without_host(rest: str) -> str:
    return rest if not rest.startswith("//") else "/" + rest[2:].partition("/")[2]


def _tidy(path: str) -> str:
    levels: list[str] = []
    for level in path.split("/"):
        if level == ".." and levels:
            levels.pop()
        elif level not in ("", "."):
            levels.append(level)
    return "/" + "/".join(levels)


def _local(location: str) -> Path | None:
    return Path(location.removeprefix("file:")) if location.startswith("file:") else None
