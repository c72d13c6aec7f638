"""Glue's catalogs: each is a moto back end, with catalogs below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.utils import utcnow
from moto.glue.exceptions import AlreadyExistsException, EntityNotFoundException
from moto.glue.models import FakeDatabase, FakeTable, GlueBackend, glue_backends

ROOT_NAME = "AwsDataCatalog"
_LONGEST_NAME = 255
_LONGEST_CATALOG_NAME = 64


def refused(code: str, message: str) -> JsonRESTError:
    return JsonRESTError(code, message)


def invalid(message: str) -> JsonRESTError:
    return refused("InvalidInputException", message)


class CatalogScope(GlueBackend):
    """The databases of one catalog, and the catalogs below it. Names are stored in lower case. Without a path, it is
    the root catalog of an account and a region."""

    def __init__(
        self,
        region_name: str,
        account_id: str,
        path: tuple[str, ...] = (),
        catalog_input: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(region_name, account_id)
        self.path = path
        self.children: dict[str, CatalogScope] = {}
        self.shared = False  # Whether other accounts may use it; only for root catalogs
        self._input = dict(catalog_input or {})
        self._created = self._updated = utcnow()

    @property
    def catalog_id(self) -> str:
        """`account`, or `account:a/b`."""
        return f"{self.account_id}:{'/'.join(self.path)}" if self.path else self.account_id

    def as_catalog(self) -> dict[str, Any]:
        return {
            **self._input,
            "CatalogId": self.catalog_id,
            "Name": self.path[-1] if self.path else ROOT_NAME,
            "ResourceArn": "/".join((self.default_catalog_arn, *self.path)),
            "CreateTime": self._created,
            "UpdateTime": self._updated,
        }

    def resolve(self, catalog_id: str | None) -> CatalogScope:
        """Returns the catalog of an id, relative to this root; None means the root."""
        if catalog_id is None:
            return self
        if len(catalog_id) > _LONGEST_NAME:
            raise invalid(f"catalogId failed to satisfy constraint: at most {_LONGEST_NAME} characters")
        account, colon, path = catalog_id.partition(":")
        if not account.isdigit():
            raise EntityNotFoundException(f"Catalog {catalog_id} not found.")
        if account != self.account_id:
            return self._other(account).resolve(catalog_id)
        return self.below(path.split("/")) if colon else self

    def below(self, names: Sequence[str]) -> CatalogScope:
        scope = self
        for name in names:
            child = scope.children.get(name.lower())
            if child is None:
                raise EntityNotFoundException(f"Catalog {'/'.join((*scope.path, name))} not found.")
            scope = child
        return scope

    def descendants(self) -> Iterator[CatalogScope]:
        for child in self.children.values():
            yield child
            yield from child.descendants()

    def create_child(self, name: str, catalog_input: Mapping[str, Any]) -> CatalogScope:
        allowed = 0 < len(name) <= _LONGEST_CATALOG_NAME and not any(part in name for part in (".", "/", "\\", "aws:"))
        if not allowed or name == self.account_id:
            raise invalid(f"name failed to satisfy constraint: {name!r} is no name of a catalog")
        if name.lower() in self.children:
            raise AlreadyExistsException("Catalog")
        path = (*self.path, name.lower())
        child = self.children[name.lower()] = CatalogScope(self.region_name, self.account_id, path, catalog_input)
        return child

    def replace_input(self, catalog_input: Mapping[str, Any]) -> None:
        self._input = dict(catalog_input)
        self._updated = utcnow()

    def create_database(
        self, database_name: str, database_input: dict[str, Any], tags: dict[str, str] | None = None
    ) -> FakeDatabase:
        name = folded(database_name)
        # moto would return the requested id instead of the catalog's own id.
        kept = {key: value for key, value in database_input.items() if key != "CatalogId"}
        database = super().create_database(name, {**kept, "Name": name}, tags)
        database.catalog_id = self.catalog_id
        return database

    def get_database(self, database_name: str) -> FakeDatabase:
        return super().get_database(folded(database_name))

    def update_database(self, database_name: str, database_input: dict[str, Any]) -> None:
        kept = {key: value for key, value in database_input.items() if key != "CatalogId"}
        super().update_database(folded(database_name), kept)

    def delete_database(self, database_name: str) -> None:
        super().delete_database(folded(database_name))

    def create_table(
        self,
        database_name: str,
        table_name: str,
        table_input: dict[str, Any],
        open_table_format_input: dict[str, Any] | None = None,
    ) -> FakeTable:
        name = folded(table_name)
        database = self.get_database(database_name)
        table = super().create_table(database.name, name, {**table_input, "Name": name}, open_table_format_input)
        table.catalog_id = self.catalog_id
        return table

    def get_table(self, database_name: str, table_name: str) -> FakeTable:
        return super().get_table(database_name, folded(table_name))

    def delete_table(self, database_name: str, table_name: str) -> None:
        super().delete_table(database_name, folded(table_name))

    def replace_table(
        self, database_name: str, table_input: Mapping[str, Any], *, version: str | None, archive: bool
    ) -> None:
        """Changes the properties of a table, if its version is unchanged; the old ones may stay as a version."""
        table = self.get_table(database_name, table_input["Name"])
        current = str(table.as_dict()["VersionId"])
        if version is not None and version != current:
            raise refused("ConcurrentModificationException", "Update table failed due to concurrent modifications.")
        table.update({**table_input, "Name": table.name})
        if not archive:
            table.delete_version(current)

    def _other(self, account: str) -> CatalogScope:
        root = root_of(account, self.region_name)
        if not root.shared:
            raise refused("AccessDeniedException", f"Cross account access to {account} is not allowed.")
        return root


def root_of(account: str, region: str) -> CatalogScope:
    root = glue_backends[account][region]
    assert isinstance(root, CatalogScope)
    return root


def folded(name: str) -> str:
    if not 0 < len(name) <= _LONGEST_NAME:
        raise invalid(f"name failed to satisfy constraint: between 1 and {_LONGEST_NAME} characters")
    return name.lower()
