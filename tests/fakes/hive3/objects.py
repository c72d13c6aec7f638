"""Objects of the fake metastore, with the same encoding as in real ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..thrift_wire import LIST, STRING, STRUCT, Struct, Typed

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
    storage: Struct
    """Its storage descriptor as it was sent, including fields that the metastore ignores."""
    number: int = 0

    @property
    def columns(self) -> list[Struct]:
        """Returns its columns, with names in lower case."""
        return [Struct({**column, 1: column[1].lower()}) for column in self.storage[1]]

    def struct(self, catalog: str, database: str, *, modern: bool) -> Struct:
        """Returns the table as it is sent."""
        descriptor = self.storage
        serde = descriptor.get(7) or {}
        storage = Struct(
            {
                1: Typed(STRUCT, self.columns),
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
        """Returns the database as it is sent."""
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
        """Returns the catalog as it is sent."""
        return Struct({1: self.name, 2: self.description, 3: self.location, **({4: self.created} if modern else {})})


def table_type(requested: str | None, parameters: dict[str, str]) -> str:
    """Returns the type of a table when it is read: a parameter decides, whatever was requested."""
    if requested == VIEW:
        return VIEW
    return EXTERNAL if parameters.get("EXTERNAL", "").upper() == "TRUE" else MANAGED
