"""Exceptions of a Hive Metastore: those that each method declares, and their messages."""

from __future__ import annotations

from collections.abc import Mapping

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
    "alter_database": (META, NO_SUCH_OBJECT),
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

APPLICATION_TYPES: Mapping[str, int] = {"unknown method": 1, "internal": 6, "protocol": 7}
"""The types of `TApplicationException`, for calls that cannot be made at all."""


class Thrown(Exception):
    """An exception of the metastore, with its name and message."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class Unforeseen(Exception):
    """An error that the metastore does not handle: 3.1 closes the connection, 4.0 returns an internal error."""


class Abandoned(Exception):
    """A request for which each version closes the connection."""


class Malformed(Exception):
    """A request without a field that it requires."""


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

    def not_compared(self, operator: str, key: str) -> str:
        """Returns the message for a comparison in a filter where the database only supports matching."""
        text = (
            "Exception thrown when executing query : SELECT A0.TBL_NAME FROM TBLS A0 LEFT OUTER JOIN DBS B0 "
            "ON A0.DB_ID = B0.DB_ID INNER JOIN TABLE_PARAMS C0 ON A0.TBL_ID = C0.TBL_ID "
            f"WHERE C0.PARAM_KEY = '{key}' AND B0.\"NAME\" = ? AND B0.CTLG_NAME = ? AND C0.PARAM_VALUE {operator} ?"
        )
        cause = "ERROR 42818: Comparisons between 'CLOB (UCS_BASIC)' and 'CLOB (UCS_BASIC)' are not supported."
        return self._caused("JDOException", text, cause)

    def _caused(self, kind: str, text: str, cause: str) -> str:
        return f"{kind}: {text}\nRoot cause: {cause}" if self._modern else text
