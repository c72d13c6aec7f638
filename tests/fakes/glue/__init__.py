"""AWS Glue, STS and Lake Formation on 127.0.0.1: moto with catalogs, pages and faults, in a separate process."""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.fakes.certificates import authority
from tests.fakes.glue.calls import GlueCall, GlueQuirks, Occasion, Refusal
from tests.fakes.server import When

LANCE = {"table_type": "lance", "managed_by": "storage"}
"""The parameters of a Lance table whose versions the storage manages."""


class FakeGlue:
    """A Glue Data Catalog over HTTP, with STS; each has its own process, state and port. An `operation` of a fault is a
    regular expression for the whole name: `GetTable` does not match `GetTables`, `.*Catalogs?` matches those on
    catalogs, and an empty one matches all, including those of STS. A call first waits (`hold`, `delay`), then gets the
    oldest matching `cut` or `html_error`, then the oldest `fail` or `deny`, and then its temporary credentials are
    checked."""

    account = "123456789012"  # The account of each caller that has not assumed a role of another account

    def __init__(self, *, region: str = "us-east-1", **quirks: bool) -> None:
        """Creates the server; `quirks` are those of `GlueQuirks`."""
        self.region = region
        self._quirks = GlueQuirks(**quirks)
        self._control: Control | None = None
        self.endpoint = ""  # The URL of both services; it stays the same after a restart

    def __enter__(self) -> Self:
        self._control = Control(self._quirks, self.region)
        self.endpoint = self._control.url
        return self

    def __exit__(self, *_: object) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    @property
    def properties(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key_id": "AKIAIOSFODNN7EXAMPLE",
            "secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "sts_endpoint": self.endpoint,
            # The server has no certificate. Loading the default authorities takes most of the time of a connection.
            "ca_bundle": authority().bundle,
        }

    @property
    def vending(self) -> dict[str, str]:
        """Returns the further properties with which a namespace gets credentials of tables."""
        return {"vend_credentials": "true", "lake_formation_endpoint": self.endpoint}

    @property
    def calls(self) -> Log[str]:
        return Log(self._ask("operations"), self.clear)

    @property
    def requests(self) -> Log[GlueCall]:
        return Log(self._ask("received"), self.clear)

    @property
    def connections(self) -> int:
        return int(self._ask("figure", "connections"))

    @property
    def most_in_flight(self) -> int:
        """Maximum number of concurrent calls; calls are fast, so use `delay` or `hold` to make them concurrent."""
        return int(self._ask("figure", "most_in_flight"))

    @property
    def issued(self) -> Sequence[str]:
        """The access key ids from AssumeRole, oldest first."""
        issued: Sequence[str] = self._ask("issued")
        return issued

    def stop(self) -> None:
        """Refuses connections and resets the open ones; the content of the catalog stays."""
        self._ask("stop")

    def start(self) -> None:
        """Listens again after `stop`, on the same port."""
        self._ask("start")

    def clear(self) -> None:
        self._ask("clear")

    def heal(self) -> None:
        """Removes pending faults, denials and delays."""
        self._ask("heal")

    def reset(self) -> None:
        """Restores the initial state: empty, without faults, calls and expired credentials; quirks stay."""
        self._ask("reset")

    def switch(self, **changes: bool | int | None) -> None:
        """Changes options of the constructor, for example `short_pages=True`; not for stock moto."""
        self._ask("switch", changes)

    def fail(
        self,
        code: str,
        *,
        message: str = "",
        status: int | None = None,
        operation: str = "",
        times: int | None = 1,
        every: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answers each call, or each n-th call, with an error of AWS; without `times`, for an unlimited number of
        calls. The default status is 400, for STS 403; STS sends its codes without `Exception` at the end."""
        self._ask("refuse", Refusal(Occasion(operation, times, every or 1), code, message, status, dict(headers or {})))

    def deny(self, operation: str = "") -> None:
        self.fail("AccessDeniedException", operation=operation, times=None)

    def html_error(self, operation: str = "", times: int | None = 1, *, status: int = 500) -> None:
        """Answers with an HTML page, as proxies do, and moto for unknown operations."""
        self._ask("answer_html", Occasion(operation, times), status)

    def cut(self, operation: str = "", times: int | None = 1, when: When = "before") -> None:
        self._ask("break_off", Occasion(operation, times), when)

    def delay(self, seconds: float, operation: str = "", *, times: int | None = None) -> None:
        """Delays calls before they are performed; other calls are not affected."""
        self._ask("slow_down", Occasion(operation, times), seconds)

    @contextmanager
    def hold(self, operation: str = "") -> Iterator[Held]:
        held = Held(self._running(), self._ask("hold_back", Occasion(operation)))
        try:
            yield held
        finally:
            held.release()

    def expire(self, access_key_id: str | None = None) -> None:
        """Makes credentials expire now: these, or all from AssumeRole so far."""
        self._ask("expire", access_key_id)

    def grant(self, table: str, *permissions: str) -> None:
        """Grants only these permissions for a table in Lake Formation, named `database/table`; initially all are."""
        self._ask("lake", "grant", table, frozenset(permissions))

    def filter_cells(self, table: str) -> None:
        self._ask("lake", "filter_cells", table)

    def limit_credentials(self, seconds: float | None) -> None:
        """Sets the lifetime of tables' credentials, whatever is requested; None means as requested."""
        self._ask("lake", "limit", seconds)

    def add_nested_catalog(self, path: str, parameters: Mapping[str, str] | None = None, **catalog_input: Any) -> str:
        """Adds a catalog, such as `a/b` below `a`, and its missing parents; returns its id."""
        added = {} if parameters is None else {"Parameters": dict(parameters)}
        return str(self._ask("add_catalog", path, {**catalog_input, **added}))

    def add_database(
        self,
        catalog_path: str,
        name: str,
        *,
        parameters: Mapping[str, str] | None = None,
        location: str | None = None,
        **database_input: Any,
    ) -> None:
        """Adds a database. An empty path is the root catalog; `account:` and `account:a/b` are catalogs of another
        account. Catalogs of another account are accessible to each caller after something was added to them."""
        more = {} if parameters is None else {"Parameters": dict(parameters)}
        where = {} if location is None else {"LocationUri": location}
        self._ask("add_database", catalog_path, name, {**database_input, **more, **where})

    def add_table(self, catalog_path: str, database: str, name: str, **parts: Any) -> None:
        self.add_tables(catalog_path, database, [name], **parts)

    def add_tables(
        self,
        catalog_path: str,
        database: str,
        names: Iterable[str],
        *,
        parameters: Mapping[str, str] | None = LANCE,
        table_type: str | None = "EXTERNAL_TABLE",
        location: str | None = "",
        columns: Mapping[str, str] | None = None,
        **table_input: Any,
    ) -> None:
        """Adds Lance tables to a database at once; None omits a part, and an empty location means a separate one.
        Columns are names and types; other parts have the names of Glue, such as `TargetTable`."""
        more = (parameters, table_type, location, columns, table_input)
        inputs = [_table_input(catalog_path, database, name, *more) for name in names]
        self._ask("add_tables", catalog_path, database, inputs)

    def table(self, catalog_path: str, database: str, name: str) -> dict[str, Any]:
        return dict(self._ask("table", catalog_path, database, name))

    def _ask(self, name: str, *arguments: Any) -> Any:
        return self._running().ask(name, *arguments)

    def _running(self) -> Control:
        if self._control is None:
            raise RuntimeError("fake Glue server: it runs inside its `with` block alone")
        return self._control


def _table_input(
    catalog_path: str,
    database: str,
    name: str,
    parameters: Mapping[str, str] | None,
    table_type: str | None,
    location: str | None,
    columns: Mapping[str, str] | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    if location == "":
        location = "/".join(("s3://bucket", *filter(None, (catalog_path, database)), f"{name}.lance"))
    storage = {
        **({} if columns is None else {"Columns": [{"Name": key, "Type": kind} for key, kind in columns.items()]}),
        **({} if location is None else {"Location": location}),
        **more.get("StorageDescriptor", {}),
    }
    return {
        "Name": name,
        **({} if table_type is None else {"TableType": table_type}),
        **({} if parameters is None else {"Parameters": dict(parameters)}),
        **more,
        **({"StorageDescriptor": storage} if storage else {}),
    }


T = TypeVar("T")
_TOP = Path(__file__).parents[3]


class Control:
    """A server's process, and the pipe to it. Calls from any thread are allowed."""

    def __init__(self, quirks: GlueQuirks, region: str) -> None:
        """Starts the process; `url` is the server's address."""
        self._lock = threading.Lock()
        self._pipe, theirs = multiprocessing.Pipe()
        with theirs:
            socket.send_fds(_orders(), [b"."], [theirs.fileno()])
        self._pipe.send((quirks, region))
        self.url: str = self._answer()

    def ask(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the server; raises ValueError if the server refuses."""
        with self._lock:
            self._pipe.send((name, arguments))
            return self._answer()

    def close(self) -> None:
        try:
            self.ask("stop")
        finally:
            self._pipe.close()

    def _answer(self) -> Any:
        try:
            went_well, value = self._pipe.recv()
        except EOFError:
            raise RuntimeError("fake Glue server: its process has ended; standard error says why") from None
        if not went_well:
            raise ValueError(value)
        return value


@lru_cache(maxsize=1)
def _orders() -> socket.socket:
    """Returns the socket to the process from which servers are forked, which lives as long as this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([sys.executable, "-m", f"{__package__}.server"], stdin=theirs.fileno(), cwd=_TOP)

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class Log(list[T]):
    """The records of the server at the time of the request."""

    def __init__(self, noted: Iterable[T], forget: Callable[[], None]) -> None:
        super().__init__(noted)
        self._forget = forget

    def clear(self) -> None:
        super().clear()
        self._forget()


class Held:
    """Calls that wait until they are released."""

    def __init__(self, control: Control, number: int) -> None:
        self._control = control
        self._number = number

    @property
    def waiting(self) -> int:
        return int(self._control.ask("held_back", self._number))

    def wait_for(self, count: int = 1, within: float = 10.0) -> None:
        """Blocks the calling thread until `count` calls wait; raises TimeoutError after `within` seconds."""
        until = time.monotonic() + within
        while self.waiting < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.waiting} of {count} calls came to wait")
            time.sleep(0.002)

    async def reached(self, count: int = 1) -> None:
        await asyncio.to_thread(self.wait_for, count)

    def release(self) -> None:
        """Lets the waiting calls continue, and later ones pass."""
        self._control.ask("let_go", self._number)
