"""Glue's operations over catalogs, as an extension of moto's handlers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar

import orjson
from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import camelcase_to_underscores
from moto.glue.models import GlueBackend
from moto.glue.responses import GlueResponse

from .calls import REQUEST_ID
from .pages import BadRequest, matching, page, shell_matching
from .quirks import GlueQuirks
from .scopes import CatalogScope, invalid, root_of

T = TypeVar("T")

_TABLE_ATTRIBUTES: Mapping[tuple[str, ...], Sequence[str]] = {
    ("NAME",): ("Name",),
    ("NAME", "TABLE_TYPE"): ("Name", "TableType"),
}
_DATABASE_ATTRIBUTES: Mapping[tuple[str, ...], Sequence[str]] = {
    ("NAME",): ("Name",),
    ("NAME", "TARGET_DATABASE"): ("Name", "TargetDatabase"),
}
_HEADERS = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": REQUEST_ID}
_MOST = 100
_MOST_CATALOGS = 1000


class CatalogGlueResponse(GlueResponse):
    """Glue with catalogs and pages: each inherited operation works on the catalog in `CatalogId`."""

    quirks: ClassVar[GlueQuirks] = GlueQuirks()

    def __init__(self) -> None:
        super().__init__()
        self._parameters: dict[str, Any] | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        if self._parameters is None:
            self._parameters = orjson.loads(self.body)
        return self._parameters

    @property
    def root(self) -> CatalogScope:
        """The root catalog of the caller's account."""
        return root_of(self.current_account, self.region)

    @property
    def scope(self) -> CatalogScope:
        """The catalog of the call."""
        return self.root.resolve(self.parameters.get("CatalogId"))

    @property
    def glue_backend(self) -> GlueBackend:
        return self.scope

    def call_action(self) -> tuple[int, dict[str, Any], str | bytes]:
        # moto's own implementation searches the whole class for each call, and the service's model for each field. The
        # stored values already have the form of the model.
        action = getattr(self, camelcase_to_underscores(self._get_action()), None)
        if action is None:
            raise NotImplementedError(self._get_action())
        try:
            result = action().result or {}
        except JsonRESTError as e:
            return e.code, {**dict(e.get_headers()), **_HEADERS}, e.description
        return 200, _HEADERS, orjson.dumps(result, default=_epoch, option=orjson.OPT_PASSTHROUGH_DATETIME)

    def get_catalog(self) -> ActionResult:
        self._catalogs_wanted()
        return ActionResult({"Catalog": self.scope.as_catalog()})

    def get_catalogs(self) -> ActionResult:
        self._catalogs_wanted()
        parent, with_root = self.parameters.get("ParentCatalogId"), self.parameters.get("IncludeRoot")
        if parent is not None and with_root is not None:
            raise invalid("IncludeRoot cannot be given together with ParentCatalogId.")
        recursive, filled = self.parameters.get("Recursive"), self.parameters.get("HasDatabases")
        scope = self.root.resolve(parent)
        result = [scope] if with_root else []
        result += scope.descendants() if recursive else scope.children.values()
        if filled:
            result = [catalog for catalog in result if catalog.databases]
        subject = f"catalogs {scope.catalog_id} {recursive} {with_root} {filled}"
        return self._listing("CatalogList", result, subject, most=_MOST_CATALOGS, form=CatalogScope.as_catalog)

    def create_catalog(self) -> ActionResult:
        self._catalogs_wanted()
        self.root.create_child(self.parameters["Name"], self.parameters["CatalogInput"])
        return EmptyResult()

    def update_catalog(self) -> ActionResult:
        self._catalogs_wanted()
        self.scope.replace_input(self.parameters["CatalogInput"])
        return EmptyResult()

    def delete_catalog(self) -> ActionResult:
        self._catalogs_wanted()
        scope = self.scope
        if not scope.path:
            raise invalid("The default catalog cannot be deleted.")
        account = self.root.resolve(scope.account_id)
        del account.below(scope.path[:-1]).children[scope.path[-1]]
        return EmptyResult()

    def get_database(self) -> ActionResult:
        return ActionResult({"Database": _present(self.scope.get_database(self.parameters["Name"]).as_dict())})

    def get_databases(self) -> ActionResult:
        scope, kept = self.scope, self._attributes(_DATABASE_ATTRIBUTES)
        result = list(scope.databases.values())
        subject = f"databases {scope.catalog_id} {kept}"
        return self._listing("DatabaseList", result, subject, form=lambda each: _reduced(each.as_dict(), kept))

    def get_tables(self) -> ActionResult:
        scope, kept = self.scope, self._attributes(_TABLE_ATTRIBUTES)
        database = scope.get_database(self.parameters["DatabaseName"])
        expression = self.parameters.get("Expression")
        names = self._chosen(list(database.tables), expression)
        subject = f"tables {scope.catalog_id} {database.name} {kept} {expression}"
        return self._listing(
            "TableList", names, subject, form=lambda name: _reduced(database.tables[name].as_dict(), kept)
        )

    def get_table(self) -> ActionResult:
        table = self.scope.get_table(self.parameters["DatabaseName"], self.parameters["Name"]).as_dict()
        if self.quirks.no_catalog_ids:
            del table["CatalogId"]
        return ActionResult({"Table": table})

    def update_table(self) -> ActionResult:
        self.scope.replace_table(
            self.parameters["DatabaseName"],
            self.parameters["TableInput"],
            version=self.parameters.get("VersionId"),
            archive=not self.parameters.get("SkipArchive"),
        )
        return EmptyResult()

    def _catalogs_wanted(self) -> None:
        if self.quirks.no_catalog_api:
            raise NotImplementedError("there are no catalogs here")

    def _chosen(self, names: Sequence[str], expression: str | None) -> Sequence[str]:
        if not expression or self.quirks.ignore_expression:
            return names
        if self.quirks.fnmatch_expression:
            return shell_matching(names, expression)
        try:
            return matching(names, expression)
        except BadRequest as e:
            raise invalid(str(e)) from e

    def _attributes(self, known: Mapping[tuple[str, ...], Sequence[str]]) -> Sequence[str] | None:
        """Returns the requested fields; None for all."""
        attributes = self.parameters.get("AttributesToGet")
        if attributes is None:
            return None
        fields = known.get(tuple(sorted(attributes)))
        if fields is None:
            raise invalid(f"attributesToGet failed to satisfy constraint: {attributes} is not one of {list(known)}")
        return fields

    def _listing(self, key: str, items: Sequence[T], subject: str, *, form: Any, most: int = _MOST) -> ActionResult:
        try:
            shown, token = page(
                items,
                subject,
                token=self.parameters.get("NextToken"),
                size=self.parameters.get("MaxResults"),
                most=most,
                short=self.quirks.short_pages,
            )
        except BadRequest as e:
            raise invalid(str(e)) from e
        return ActionResult({key: [form(item) for item in shown], **({"NextToken": token} if token else {})})


def _reduced(body: Mapping[str, Any], kept: Iterable[str] | None) -> dict[str, Any]:
    present = _present(body)
    return present if kept is None else {key: present[key] for key in kept if key in present}


def _present(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None}


def _epoch(value: object) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(type(value).__name__)
