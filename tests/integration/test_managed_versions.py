"""Tables whose versions the catalog commits, on a real server: by one, by many at once, and while all goes wrong."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any
from urllib.parse import urlsplit

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DescribeTableRequest, ListTableVersionsRequest

from lance_ns_async import Call, IcebergNamespace
from tests.servers.iceberg_rest import IcebergRest, iceberg_rest
from tests.servers.nessie import Nessie, nessie
from tests.servers.process import LOOPBACK

pytestmark = pytest.mark.integration

WRITERS = 8
ID = ["db", "t"]


Server = IcebergRest | Nessie


@pytest.fixture(params=["iceberg", "nessie"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with iceberg_rest(tmp_path) if request.param == "iceberg" else nessie(tmp_path) as running:
        yield running


def properties(server: Server, tmp: Path) -> dict[str, str]:
    """How to reach it, with patience: a server that is started anew takes a while."""
    given = server.properties if isinstance(server, Nessie) else {"endpoint": server.endpoint, "root": tmp.as_uri()}
    return {**given, "managed_by": "impl", "max_retries": "40", "backoff_max": "1s"}


def row(writer: int, number: int) -> pa.Table:
    return pa.table({"writer": [writer], "number": [number]})


def appends(server: Server) -> int:
    """How many appends of each writer; Nessie, with an S3 written in Python, is slower."""
    return 10 if isinstance(server, Nessie) else 25


def append(properties: Mapping[str, str], writer: int, count: int) -> Counter[str]:
    """Appends rows one by one; gives what became of the calls."""
    outcomes: Counter[str] = Counter()

    def tell(call: Call) -> None:
        outcomes[call.outcome] += 1

    with IcebergNamespace(**properties) as ns, ns.observe(tell):
        for number in range(count):
            while True:
                try:
                    lance.write_dataset(row(writer, number), mode="append", namespace_client=ns, table_id=ID)
                    break
                except OSError as e:
                    # Lance tries for half a minute; when it says this, it committed nothing.
                    if "Too many concurrent writers" not in str(e):
                        raise
    return outcomes


class Proxy:
    """Stands before a server and passes on what it says, but for every tenth answer: there it hangs up."""

    def __init__(self, endpoint: str) -> None:
        self.answers = 0
        self._to = urlsplit(endpoint)
        self._port = 0
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self._port}{self._to.path}"

    @contextmanager
    def running(self) -> Iterator[None]:
        started = Event()
        thread = Thread(target=asyncio.run, args=(self._serve(started),))
        thread.start()
        started.wait()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join()

    async def _serve(self, started: Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._pass_on, LOOPBACK)
        self._port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stopping.wait()
        server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = None
        with suppress(OSError):
            answers, there = await asyncio.open_connection(LOOPBACK, self._to.port)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._questions(reader, there))
                group.create_task(self._answers(answers, writer))
        for end in filter(None, (writer, there)):
            end.transport.abort()

    async def _questions(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while told := await reader.read(1 << 16):
                writer.write(told)
                await writer.drain()
            writer.close()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while told := await reader.read(1 << 16):
                self.answers += told.startswith(b"HTTP/1.1")
                if told.startswith(b"HTTP/1.1") and self.answers % 10 == 0:
                    break
                writer.write(told)
                await writer.drain()
        writer.transport.abort()


def write_all(properties: Mapping[str, str], disturb: Sequence[float], server: Server) -> Counter[str]:
    """Lets all writers append while the server is killed after each of those seconds and started again."""
    spawning = multiprocessing.get_context("spawn")
    outcomes: Counter[str] = Counter()
    with ProcessPoolExecutor(WRITERS, mp_context=spawning) as processes:
        writing = [processes.submit(append, properties, writer, appends(server)) for writer in range(WRITERS)]
        for seconds in disturb:
            sleep(seconds)
            server.kill()
            server.start()
        for future in writing:
            outcomes += future.result()
    return outcomes


def check(ns: IcebergNamespace, count: int) -> None:
    """Every row is there once, every version too, and all manifests have their final names."""
    rows = lance.dataset(namespace_client=ns, table_id=ID).to_table().to_pylist()
    wanted = [(0, -1), *((writer, number) for writer in range(WRITERS) for number in range(count))]
    assert sorted((row["writer"], row["number"]) for row in rows) == sorted(wanted)
    listed = ns.list_table_versions(ListTableVersionsRequest(id=ID)).versions
    assert [version.version for version in listed] == list(range(1, WRITERS * count + 2))
    table = ns.describe_table(DescribeTableRequest(id=ID))
    assert table.location is not None
    files = lance.file.LanceFileSession(table.location, storage_options=table.storage_options).list("_versions")
    names = [path.rpartition("/")[2] for path in files if "manifest" in path]
    assert sorted(names) == sorted(version.manifest_path.rpartition("/")[2] for version in listed)
    # Each version holds the rows of those before it, and one more.
    for number in (1, 2, WRITERS * count // 2, WRITERS * count):
        dataset = lance.dataset(namespace_client=ns, table_id=ID, version=number)
        assert dataset.count_rows() == number


@contextmanager
def table(properties: Mapping[str, str]) -> Iterator[IcebergNamespace]:
    with IcebergNamespace(**properties) as ns:
        ns.create_namespace(CreateNamespaceRequest(id=ID[:1]))
        lance.write_dataset(row(0, -1), mode="create", namespace_client=ns, table_id=ID)
        yield ns


def test_lance_writes_and_reads_by_the_catalog(server: Server, tmp_path: Path) -> None:
    with table(properties(server, tmp_path)) as ns:
        at: dict[str, Any] = {"namespace_client": ns, "table_id": ID}
        assert lance.write_dataset(row(1, 1), mode="append", **at).version == 2
        assert lance.write_dataset(pa.table({"word": ["x"]}), mode="overwrite", **at).version == 3
        assert lance.write_dataset(row(2, 2), mode="overwrite", **at).version == 4
        assert [lance.dataset(version=number, **at).count_rows() for number in (1, 2, 3, 4)] == [1, 2, 1, 1]
        found = ns.describe_table(DescribeTableRequest(id=ID, load_detailed_metadata=True))
        assert (found.version, found.managed_versioning) == (4, True)


def test_many_processes_write_at_once(server: Server, tmp_path: Path) -> None:
    given = properties(server, tmp_path)
    with table(given) as ns:
        outcomes = write_all(given, [], server)
        check(ns, appends(server))
    assert outcomes["CommitFailedException"] + outcomes["409"] > 0


def test_nothing_is_lost_or_doubled_when_the_server_dies_and_answers_get_lost(server: Server, tmp_path: Path) -> None:
    proxy = Proxy(server.endpoint)
    with proxy.running():
        given = properties(server, tmp_path) | {"endpoint": proxy.endpoint}
        with table(given) as ns:
            outcomes = write_all(given, [10.0, 5.0], server)
            check(ns, appends(server))
    assert outcomes["disconnected"] > proxy.answers // 20
