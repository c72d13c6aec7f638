"""A Unity Catalog server in memory: Unity Catalog OSS 0.6.0, its older versions, and other services by options."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import uuid4

from tests.fakes.http import FakeServer
from tests.fakes.server import Answer, Received
from tests.fakes.unity import catalog as catalogs
from tests.fakes.unity.checks import CODES, Dialect, UnityError, Unserved
from tests.fakes.unity.routes import Call, Options, Pages, UnityRoutes

from ..tokens import EXCHANGE

API = "/api/2.1/unity-catalog"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
LANCE = {"table_type": "lance"}  # The property of an external table that makes it a Lance table


class FakeUnity(FakeServer):
    """A Unity Catalog server; its content and its recorded requests survive a restart."""

    def __init__(
        self,
        *,
        dialect: Dialect = "0.6",
        catalog: str | None = "main",
        authorization: Collection[str] | None = None,
        delta_only: bool = False,
        short_pages: bool = False,
        empty_pages: bool = False,
        unsorted: bool = False,
        repeat_token: bool = False,
        extra_fields: bool = False,
        credentials: Mapping[str, Any] | None = None,
        storage_root: str | None = None,
    ) -> None:
        """Creates a server. `authorization` are the tokens of users with all rights; None disables authorization.
        `catalog` is created. `delta_only` accepts only external Delta tables. `extra_fields` adds fields of other
        services to responses. `credentials` are parts of the responses to requests for temporary credentials, which are
        otherwise refused for all but local tables. `storage_root` is the folder of the locations of schemas."""
        super().__init__()
        self.subjects: set[str] = set()  # Tokens of trusted identity providers
        self.token_forms: list[dict[str, str]] = []  # The form of each request for a token
        self._dialect = dialect
        self._access = catalogs.Access(authorization)
        self._token = next(iter(authorization), None) if authorization else None
        self._options = Options(
            checks_columns=dialect == "0.6",
            delta_only=delta_only,
            extra_fields=extra_fields,
            credentials=credentials,
            storage_root=storage_root,
        )
        pages = Pages(short=short_pages, empty=empty_pages, repeat=repeat_token)
        self._routes = UnityRoutes(self._options, pages, shuffled=unsorted)
        self._catalog = catalog
        if catalog is not None:
            self.add_catalog(catalog)

    @property
    def properties(self) -> dict[str, str]:
        properties = {"endpoint": self.endpoint, "catalog": self._catalog or "main"}
        return properties if self._token is None else {**properties, "auth_token": self._token}

    def allow(self, token: str, *full_names: str) -> None:
        """Adds a user who may read only these tables."""
        with self._lock:
            self._access.set(token, catalogs.User(frozenset(full_names)))

    def disown(self, token: str) -> None:
        """Makes a token valid whose user is unknown."""
        with self._lock:
            self._access.set(token, None)

    def expire_tokens(self) -> None:
        with self._lock:
            self._access.expire()

    def add_catalog(self, name: str) -> None:
        with self._lock:
            self._planted_catalog(name)

    def add_schema(self, catalog: str, name: str, properties: Mapping[str, str] | None = None) -> None:
        with self._lock:
            self._planted(catalog, name).info["properties"].update(properties or {})

    def add_table(
        self,
        catalog: str,
        schema: str,
        name: str,
        *,
        location: str | None = None,
        properties: Mapping[str, str] | None = LANCE,
        columns: Sequence[catalogs.Json] | None = (),
        table_type: str = "EXTERNAL",
        data_source_format: str | None = "TEXT",
    ) -> str:
        """Adds a table of any kind and its schema; returns its location. Columns are stored unchanged."""
        location = location or f"s3://bucket/{catalog}/{schema}/{name}.lance"
        body = {
            "name": name,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": table_type,
            "data_source_format": data_source_format,
        }
        kept = None if columns is None else list(columns)
        with self._lock:
            row = self._planted(catalog, schema)
            self._routes.plant_table(row, body, location, None if properties is None else dict(properties), kept)
        return location

    def add_volume(self, catalog: str, schema: str, name: str, *, managed: bool, location: str = "s3://b/v") -> None:
        self._plant("volumes", catalogs.volume(catalog, schema, name, "MANAGED" if managed else "EXTERNAL", location))

    def add_function(self, catalog: str, schema: str, name: str) -> None:
        self._plant("functions", catalogs.function(catalog, schema, name))

    def add_model(self, catalog: str, schema: str, name: str, *, location: str = "s3://b/m") -> None:
        self._plant("models", catalogs.model(catalog, schema, name, location))

    def _plant(self, kind: str, row: catalogs.AssetRow) -> None:
        with self._lock:
            self._planted(row.info["catalog_name"], row.info["schema_name"]).assets[kind].put(row.info["name"], row)

    def duplicate(self, full_name: str) -> None:
        """Duplicates a table or schema, as after two concurrent creations; afterwards only listings work."""
        catalog, schema, *table = full_name.split(".")
        with self._lock:
            if table:
                row = self._routes.schema(catalog, schema)
                name = table[0]
                row.tables.put(
                    name, catalogs.TableRow({**self._routes.table(row, name).info, "table_id": str(uuid4())})
                )
            else:
                self._routes.plant_schema(self._routes.catalog(catalog), schema, {})

    def race(self, full_name: str) -> None:
        """Lets a table or schema be created once more although it exists, as if both creations had succeeded."""
        with self._lock:
            self._options.races.add(full_name)

    def error(self, status: int) -> Answer:
        """Returns an error in the catalog's form; errors of a gateway in front of it have the gateway's form."""
        if status not in CODES:
            return super().error(status)
        return UnityError(status, CODES[status], "on demand").answer(self._dialect)

    def handle(self, request: Received) -> Answer:
        path, _, query = request.path.partition("?")
        try:
            if (request.method, path) == ("POST", "/api/1.0/unity-control/auth/tokens"):
                return self._exchange(request)
            if not path.startswith(API + "/"):
                raise Unserved(404)
            if "%00" in path:
                raise Unserved(400, "Invalid request path")
            steps = [unquote(step) for step in path[len(API) + 1 :].split("/")]
            self._options.now = self._carried_out
            # Of repeated parameters, the first one counts.
            params = dict(reversed(parse_qsl(query, keep_blank_values=True))) if query else {}
            return self._routes.answer(Call(request, params, self._access.user(request)), steps)
        except UnityError as error:
            return error.answer(self._dialect)
        except Unserved as error:
            return error.answer()

    def _exchange(self, request: Received) -> Answer:
        """Exchanges a token of an identity provider, with the checks of Unity Catalog 0.3 in their order."""
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        self.token_forms.append(form)
        if form.get("grant_type") != EXCHANGE:
            raise UnityError(400, CODES[400], f"Unsupported grant type: {form.get('grant_type', 'null')}")
        if (requested := form.get("requested_token_type", "null")) != ACCESS_TOKEN:
            raise UnityError(400, CODES[400], f"Unsupported requested token type: {requested}")
        if "subject_token_type" not in form:
            raise UnityError(400, CODES[400], "Subject token type is required but was not specified")
        if form.get("subject_token") not in self.subjects:
            raise UnityError(401, CODES[401], "Invalid subject token")
        token = f"unity-token-{len(self.token_forms)}"
        self._access.set(token, catalogs.User())
        return Answer.of({"access_token": token, "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer"})

    def _planted_catalog(self, name: str) -> catalogs.CatalogRow:
        return self._routes.catalogs.find(name) or self._routes.plant_catalog(name, {})

    def _planted(self, catalog: str, name: str) -> catalogs.SchemaRow:
        owner = self._planted_catalog(catalog)
        return owner.schemas.find(name) or self._routes.plant_schema(owner, name, {})
