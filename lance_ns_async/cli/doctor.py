"""The command `doctor`: what works with a catalog, step by step."""

from __future__ import annotations

import platform
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import urlsplit

import lance_namespace.errors as err
import typer
from typer import Argument

from lance_ns_async.cli import output
from lance_ns_async.cli.catalog import suggest_id
from lance_ns_async.cli.errors import Code, Misuse, describe_error, exit_code
from lance_ns_async.cli.options import CommonOptions, OutputFormat
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.selecting import complete_table
from lance_ns_async.model import TableId
from lance_ns_async.rendering import counted, printable

if TYPE_CHECKING:
    from lance_ns_async import Namespace
    from lance_ns_async.cli.catalog import Catalog

PACKAGES = ("lance-ns-async", "pylance", "lance-namespace", "pyarrow")
_PORTS = {"https": 443, "http": 80}
_TIME_TO_CONNECT = 5.0

Step = tuple[str, Callable[[], str]]
"""The name of a step, and a function that does it and returns what it found."""


def doctor(
    on: CommonOptions,
    table: Annotated[
        str | None, Argument(help="Table to look at; by default the first one.", autocompletion=complete_table)
    ] = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Check step by step what works: the address, the sign-in, a listing, a table and its storage."""
    check(on.require(), None if table is None else TableId(table), format)


def check(chosen: Catalog, id: TableId | None, format: Format) -> NoReturn:
    """Shows what works with a table, by default the first one; ends the command with the code of the first failure."""
    code = Code.OK
    results: list[dict[str, str]] = []
    with chosen.open() as catalog:
        for name, step in _steps(chosen, catalog, id):
            try:
                outcome, detail = "ok", step()
            except (err.LanceNamespaceError, Misuse, OSError) as error:
                if id is not None and isinstance(error, err.TableNotFoundError) and (hint := suggest_id(catalog, id)):
                    error.add_note(hint)
                outcome, detail, code = "failed", describe_error(error), exit_code(error) or Code.INTERNAL
            results.append({"step": name, "outcome": outcome, "detail": detail})
            if format is Format.TABLE:
                print(printable(f"{outcome:6}  {name}: {detail}"))
            if code:
                break
    if format is not Format.TABLE:
        output.write(results, ("step", "outcome", "detail"), format)
    raise typer.Exit(code)


def _steps(chosen: Catalog, catalog: Namespace, id: TableId | None) -> Iterator[Step]:
    """Yields the steps; each is possible only if the ones before it have succeeded."""
    yield "versions", _versions
    yield "address", lambda: _reach(chosen, catalog.namespace_id())
    yield "sign-in and listing", lambda: _list(chosen, catalog)
    tables = [] if id is None else [id]
    if id is None:
        yield "search for a table", lambda: _search(catalog, tables)
    if not tables:
        for root in catalog.own_folders([])[:1]:
            yield f"storage at {root}", partial(_list_storage, catalog, root)
        return
    table = tables[0]
    yield f"description of {table}", lambda: _describe(catalog, table)
    yield f"data of {table}", lambda: _open(catalog, table)


def _versions() -> str:
    from importlib.metadata import version

    packages = [f"{package} {version(package)}" for package in PACKAGES]
    return ", ".join([f"Python {platform.python_version()}", *packages])


def _reach(chosen: Catalog, namespace_id: str) -> str:
    """Resolves the host of a catalog and connects to it, unless that is the task of a proxy."""
    from lance_ns_async.transports.http.wire import environment_proxy

    chosen.check_root()
    _, impl, identity = namespace_id.rpartition("#")[0].split(":", 2)
    # A metastore may have several addresses.
    url = urlsplit(identity.partition("|")[0].partition(",")[0])
    port = url.port or _PORTS.get(url.scheme)
    if url.hostname is None or port is None:
        return f"{impl} at {identity}"
    if "proxy" in chosen.properties or environment_proxy(url.geturl()) is not None:
        return f"{impl} at {url.hostname}:{port}, through a proxy"
    try:
        with socket.create_connection((url.hostname, port), _TIME_TO_CONNECT) as connection:
            return f"{impl} at {url.hostname}:{port}, which is {connection.getpeername()[0]}"
    except socket.gaierror as error:
        raise err.ServiceUnavailableError(
            f"the host {url.hostname} is unknown ({error.strerror}); is it right?"
        ) from error
    except OSError as error:
        reason = error.strerror or f"no answer within {_TIME_TO_CONNECT:g} s"
        message = f"{url.hostname}:{port}: {reason}; is the port right, and the server up?"
        raise err.ServiceUnavailableError(message) from error


def _list(chosen: Catalog, catalog: Namespace) -> str:
    try:
        page = catalog.list_namespaces({"id": [], "limit": 100})
    except err.InvalidInputError:
        # Polaris lists its catalogs only on request, without a call. Any other call shows whether the sign-in works.
        with suppress(err.NamespaceNotFoundError):
            catalog.describe_namespace({"id": ["lance-ns-doctor"]})
        raise
    if page.namespaces and any(key.rpartition(".")[2] == "catalogs" for key in chosen.properties):
        # The names are those of the property, and were listed without a call.
        catalog.describe_namespace({"id": [page.namespaces[0]]})
    if page.page_token:
        return f"{len(page.namespaces):,} or more namespaces"
    return counted(len(page.namespaces), "namespaces")


def _search(catalog: Namespace, tables: list[TableId]) -> str:
    """Adds the first table of the catalog to `tables`, if there is any."""
    # The last reference to the listing ends with this line, which closes it.
    tables += islice(catalog.iter_tables(recursive=True), 1)
    return str(tables[0]) if tables else "there is none"


def _list_storage(catalog: Namespace, root: str) -> str:
    """Lists the root of an empty catalog, where its first table will be."""
    from lance_ns_async.storage.folders import Folders

    folder = catalog.run(lambda client: Folders(root, client.session.backend.configured_options).list(""))
    return "nothing there yet" if folder is None else counted(len(folder.folders) + len(folder.files), "entries")


def _describe(catalog: Namespace, id: TableId) -> str:
    response = catalog.describe_table({"id": list(id)})
    options = ", ".join(sorted(response.storage_options or {}))
    return f"{response.location}" + (f", with the storage options {options}" if options else "")


def _open(catalog: Namespace, id: TableId) -> str:
    dataset = catalog.open(id)
    rows, columns = dataset.count_rows(), len(dataset.schema)
    return f"version {dataset.version}, {counted(rows, 'rows')}, {counted(columns, 'columns')}"
