"""moto without a socket of its own: in its original form, and with Glue's catalogs."""

from __future__ import annotations

import base64
import binascii
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from io import BytesIO
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode

import orjson
from moto.core.base_backend import BackendDict
from moto.core.exceptions import JsonRESTError
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.request import Request
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import camelcase_to_underscores
from moto.glue.models import GlueBackend, glue_backends
from moto.glue.responses import GlueResponse
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.exceptions import InternalServerError

from tests.fakes.glue.calls import REQUEST_ID, GlueQuirks, is_glue, operation_of
from tests.fakes.glue.scopes import CatalogScope, invalid, root_of
from tests.fakes.server import Answer, Received

ACCOUNT = DEFAULT_ACCOUNT_ID
HTML_ERROR = Answer.of(InternalServerError().get_body(), 500)  # moto's response to an unknown operation


class ServedRequest(Request):
    """A request that came through a server, which itself adds the date to responses."""

    from_wsgi_server = True


class StockMoto:
    """moto in its original form, by its own WSGI application. Its state belongs to the process."""

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)

    def answer(self, request: Received) -> Answer:
        response: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], _: object = None) -> None:
            response.update(status=int(status.split()[0]), headers=dict(headers))

        try:
            body = b"".join(self._application(_environ(request), start))
        except NotImplementedError:
            return HTML_ERROR
        return Answer(response["status"], body, response["headers"])

    def reset(self) -> None:
        BackendDict.reset()


class CatalogMoto(StockMoto):
    """moto whose Glue has catalogs; calls of Glue bypass Flask, which halves their cost."""

    def __init__(self, quirks: GlueQuirks) -> None:
        super().__init__()
        self.quirks = quirks
        glue_backends.clear()
        glue_backends.backend = CatalogScope

    @property
    def quirks(self) -> GlueQuirks:
        return CatalogGlueResponse.quirks

    @quirks.setter
    def quirks(self, quirks: GlueQuirks) -> None:
        CatalogGlueResponse.quirks = quirks

    def answer(self, request: Received) -> Answer:
        if not is_glue(request):
            return super().answer(self._shortened(request))
        try:
            status, headers, body = CatalogGlueResponse.dispatch(ServedRequest(_environ(request)))
        except NotImplementedError:
            return HTML_ERROR
        return Answer(status, body.encode() if isinstance(body, str) else body, headers)

    def _shortened(self, request: Received) -> Received:
        """Returns the same request, with the session length of the quirks."""
        seconds = self.quirks.session_seconds
        if seconds is None or operation_of(request) != "AssumeRole":
            return request
        parameters = dict(parse_qsl(request.body.decode()))
        return replace(request, body=urlencode({**parameters, "DurationSeconds": seconds}).encode())


def _environ(request: Received) -> dict[str, Any]:
    path, _, query = request.path.partition("?")
    return {
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()},
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote(path),
        "QUERY_STRING": query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(request.body),
        "wsgi.errors": sys.stderr,
    }


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
        return self._listing("CatalogList", result, subject, most=1000, form=CatalogScope.as_catalog)

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

    def _listing(self, key: str, items: Sequence[T], subject: str, *, form: Any, most: int = 100) -> ActionResult:
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


LONGEST_EXPRESSION = 2048


class BadRequest(ValueError):
    """An invalid listing request; the message is the reason."""


def page(
    items: Sequence[T], subject: str, *, token: str | None, size: int | None, most: int, short: bool = False
) -> tuple[Sequence[T], str | None]:
    """Returns one page with at most `most` items, and the token of the next one. A token is valid only for the listing
    of the same `subject`."""
    if size is not None and not 1 <= size <= most:
        raise BadRequest(f"maxResults failed to satisfy constraint: a value between 1 and {most}")
    offset, turn = _read_token(token, subject) if token is not None else (0, 0)
    count = size or most
    if short:
        count = 0 if turn % 2 == 0 else max(1, count // 2)
    end = min(offset + count, len(items))
    # Short pages end with an empty one, so the end is recognized by the missing token only.
    more = end < len(items) or (short and count > 0)
    return items[offset:end], _write_token(subject, end, turn + 1) if more else None


def matching(names: Sequence[str], expression: str) -> Sequence[str]:
    if len(expression) > LONGEST_EXPRESSION:
        raise BadRequest(f"expression failed to satisfy constraint: at most {LONGEST_EXPRESSION} characters")
    try:
        pattern = re.compile(expression)
    except re.error as e:
        raise BadRequest(f"expression is not a regular expression: {e}") from e
    return [name for name in names if pattern.fullmatch(name)]


def shell_matching(names: Sequence[str], expression: str) -> Sequence[str]:
    return [name for name in names if fnmatchcase(name, expression)]


def _write_token(subject: str, offset: int, turn: int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([subject, offset, turn])).decode()


def _read_token(token: str, subject: str) -> tuple[int, int]:
    try:
        written, offset, turn = orjson.loads(base64.urlsafe_b64decode(token))
    except (binascii.Error, ValueError, TypeError) as e:
        raise BadRequest("the token is invalid") from e
    if written != subject:
        raise BadRequest("the token is of another listing")
    return offset, turn
