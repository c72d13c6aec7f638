"""The catalogs behind the proxy, with the properties of their clients."""

from __future__ import annotations

import atexit
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from lance_namespace import CreateNamespaceRequest, DeclareTableRequest
from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError

from lance_ns_async import Namespace, TableId
from tests.fakes.certificates import authority
from tests.fakes.glue import FakeGlue
from tests.fakes.hive3 import FakeHive
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.fakes.rest import FakeRest
from tests.fakes.sockets import http
from tests.fakes.unity import FakeUnity
from tests.faults.proxy import AwsWire, HttpWire, ThriftWire, Wire

SECRET = "sEcReT-4711"  # A part of every secret in the properties

UNREACHABLE = {
    "storage.region": "us-east-1",
    "storage.endpoint": "http://127.0.0.1:1",
    "storage.allow_http": "true",
    "storage.client_max_retries": "0",
}
"""Storage options with which connections fail immediately; without them, Lance would send requests to the real S3."""

FINE, FAULTY = "fine", "faulty"
"""Namespaces of tables without and with faults; a request signature cannot contain these names."""

FINE_TABLES = (*(f"t{i}" for i in range(4)), *(f"good{i:02}" for i in range(12)))
FAULTY_TABLES = tuple(f"odd{i}" for i in range(8))
_HTTP_WIRE = HttpWire()


@dataclass(frozen=True, slots=True)
class Kind:
    """What the tests know about the API of a catalog."""

    open: Callable[[ExitStack, Path], str]  # Starts a fake, and returns its address
    write: str
    """A pattern for the requests of declarations: method and target, an action of Glue, or a method of Thrift."""
    listing: str = r"GET \S+/(generic-)?tables(\?\S*)?$"  # A pattern for the requests of a page of tables
    aside: str = r"^$"  # A pattern for the requests that are not about tables; they get no faults
    page: Callable[[Sequence[str], object], Any] = lambda names, token: None
    """Returns a page of tables in JSON, with a page token."""
    levels: tuple[str, ...] = ()  # The levels above the namespace of a table
    ambiguous: type[LanceNamespaceError] | None = None
    """The error of a declaration after which the client looks up whether the table exists; None means no such error."""
    wire: Wire = _HTTP_WIRE


def _open_polaris(stack: ExitStack, tmp: Path) -> str:
    server = stack.enter_context(FakePolaris(base=tmp.as_uri(), credential=None))
    server.add_catalog("c")
    return server.endpoint


def _open_rest(stack: ExitStack, tmp: Path) -> str:
    server = stack.enter_context(FakeRest(base=tmp.as_uri(), lacks=["table/create-empty"]))
    server.namespaces["c",] = {}
    return server.url


def _open_hive(stack: ExitStack, tmp: Path) -> str:
    uri = stack.enter_context(FakeHive(tmp / "hive", version="3.1.3")).uri
    with Namespace.connect("hive3", {"uri": uri, "root": tmp.as_uri()}) as ns:
        ns.create_namespace(CreateNamespaceRequest(id=["c"]))
    return uri


def _iceberg_page(names: Sequence[str], token: object) -> Any:
    return {"identifiers": [{"namespace": [FINE], "name": name} for name in names], "next-page-token": token}


def _unity_page(names: Sequence[str], token: object) -> Any:
    table = {"table_type": "EXTERNAL", "storage_location": "file:///t", "properties": {"table_type": "lance"}}
    return {"tables": [{"name": name, **table} for name in names], "next_page_token": token}


def _glue_page(names: Sequence[str], token: object) -> Any:
    table = {"DatabaseName": FINE, "TableType": "EXTERNAL_TABLE", "Parameters": {"table_type": "lance"}}
    table |= {"StorageDescriptor": {"Location": "file:///t"}}
    return {"TableList": [{"Name": name, **table} for name in names], "NextToken": token}


_KINDS: Mapping[str, Kind] = {
    "iceberg": Kind(
        lambda stack, tmp: stack.enter_context(FakeIceberg()).endpoint,
        r"^POST ",
        aside=r"/v1/config\b",
        page=_iceberg_page,
    ),
    "polaris": Kind(_open_polaris, r"^POST ", aside=r"/v1/config\b", page=_iceberg_page, levels=("c",)),
    "unity": Kind(
        lambda stack, tmp: stack.enter_context(FakeUnity(catalog="c")).endpoint,
        r"^POST ",
        page=_unity_page,
        levels=("c",),
        ambiguous=PermissionDeniedError,
    ),
    "rest": Kind(
        _open_rest,
        r"POST \S+/declare\?",
        r"GET \S+/table/list\?",
        r"POST /v1/(namespace/\S+/describe|table/\S+/create-empty)\?",
        lambda names, token: {"tables": list(names), "page_token": token},
        ("c",),
    ),
    "glue": Kind(
        lambda stack, tmp: stack.enter_context(FakeGlue()).endpoint,
        "^CreateTable$",
        "^GetTables$",
        page=_glue_page,
        wire=AwsWire(),
    ),
    "hive3": Kind(_open_hive, "^create_table$", "^get_all_tables$", "^set_ugi$", levels=("c",), wire=ThriftWire()),
    "lakekeeper": Kind(
        lambda stack, tmp: stack.enter_context(FakeLakekeeper(base=tmp.as_uri(), also=["file://"])).endpoint,
        r"^POST ",
        aside=r"/v1/config\b",
    ),
}

HTTP = ("iceberg", "polaris", "unity", "rest")  # The catalogs with JSON over HTTP, which have expectations
CATALOGS = (*HTTP, "glue", "hive3")  # The catalogs with expectations
ALL = (*CATALOGS, "lakekeeper")
"""All catalogs; Lakekeeper's client is that of Polaris, so that its outcomes are only compared with its state."""


def properties(impl: str, url: str) -> Mapping[str, str]:
    """Returns the properties for a server at `url`, including secrets."""
    storage = {"storage.secret_access_key": f"storage-{SECRET}", **UNREACHABLE}
    match impl:
        case "hive3":
            return {"uri": re.sub("^https?:", "thrift:", url)}
        case "glue":
            keys = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": f"key-{SECRET}"}
            token = {"region": "us-east-1", "session_token": f"session-{SECRET}"}
            # Loading the default authorities would exceed the time of an attempt.
            return {"endpoint": url, **keys, **token, "ca_bundle": authority().bundle, **storage}
    own = {"unity": {"catalog": "c"}, "lakekeeper": {"warehouse": "lake"}}.get(impl, {})
    secrets = {"auth_token": f"token-{SECRET}", "header.X-Key": f"key-{SECRET}"}
    return {"endpoint": url, **own, **secrets, **storage, "proxy": "none"}


class Catalog:
    """A fake with the tables of the tests; the names of other tables are unique, so that tests do not interfere."""

    def __init__(self, impl: str, url: str = "http://127.0.0.1:1", base: str = "file:///tmp") -> None:
        self.impl = impl
        self.url = url
        self.port = urlsplit(url).port
        self.wire = _KINDS[impl].wire
        self.ambiguous = _KINDS[impl].ambiguous
        self._kind = _KINDS[impl]
        self._base = base
        self._numbers = count()

    def id(self, name: str, namespace: str = FINE) -> TableId:
        return TableId([*self._kind.levels, namespace, name])

    def new(self) -> TableId:
        return self.id(f"new{next(self._numbers)}")

    def place(self, id: TableId) -> str:
        return f"{self._base}/{id.parent.name}/{id.name}"

    def is_write(self, request: bytes) -> bool:
        return re.search(self._kind.write, self.wire.label(request)) is not None

    def is_listing(self, request: bytes) -> bool:
        return re.search(self._kind.listing, self.wire.label(request)) is not None

    def is_aside(self, request: bytes) -> bool:
        """Returns whether a request is not about tables; such requests get no faults."""
        return re.search(self._kind.aside, self.wire.label(request)) is not None

    def page(self, names: Sequence[str], token: object = None) -> bytes:
        """Returns a response with a page of tables; `token` is the value of its page token, of any type."""
        return http(200, json.dumps(self._kind.page(names, token))).data


@cache
def open_catalog(impl: str) -> Catalog:
    """Returns the catalog of this process, which is started at the first call and ends with the process."""
    stack = ExitStack()
    atexit.register(stack.close)
    tmp = Path(stack.enter_context(TemporaryDirectory()))
    catalog = Catalog(impl, _KINDS[impl].open(stack, tmp), tmp.as_uri())
    with Namespace.connect(impl, properties(impl, catalog.url)) as ns:
        for namespace, names in ((FINE, FINE_TABLES), (FAULTY, FAULTY_TABLES)):
            ns.create_namespace(CreateNamespaceRequest(id=list(catalog.id(names[0], namespace).parent)))
            for id in (catalog.id(name, namespace) for name in names):
                ns.declare_table(DeclareTableRequest(id=list(id), location=catalog.place(id)))
    return catalog
