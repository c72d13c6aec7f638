"""Tables whose versions the catalog commits, on real servers: by one or many writers, and during failures."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing.synchronize import Barrier
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DescribeTableRequest, ListTableVersionsRequest

from lance_ns_async import Call, IcebergNamespace
from tests.servers.iceberg_rest import IcebergRest, Nessie, iceberg_rest, nessie
from tests.servers.process import LOOPBACK
from tests.support.budget import rounds, with_usual
from tests.support.processes import context

pytestmark = [pytest.mark.integration, pytest.mark.long]
Properties = Mapping[str, str]
WRITERS = rounds(4, 8)
_names = count()


@dataclass(frozen=True, slots=True)
class Site:
    """A server, its properties, and the number of rows to write."""

    server: IcebergRest | Nessie
    properties: Properties
    writers: int
    appends: int  # The number of appends of each writer
    kills: int  # The number of times that the server is killed during the writes


@pytest.fixture(scope="module", params=with_usual(["iceberg", "nessie"], "iceberg"))
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    tmp = tmp_path_factory.mktemp(request.param)
    # With long time-outs, because the restart of a server takes a while.
    patient = {"managed_by": "impl", "max_retries": "40", "backoff_max": "1s"}
    if request.param == "iceberg":
        with iceberg_rest(tmp) as server:
            properties = {"endpoint": server.endpoint, "root": tmp.as_uri(), **patient}
            yield Site(server, properties, WRITERS, rounds(4, 25), kills=2)
    else:
        with nessie(tmp) as server:
            # It is slower, especially at its start, and so is an S3 in Python.
            yield Site(server, {**server.properties, **patient}, 4, 5, kills=1)


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Provides one process per writer, all of them started."""
    with ProcessPoolExecutor(WRITERS, context, initializer=await_others, initargs=(context.Barrier(WRITERS),)) as pool:
        wait([pool.submit(int) for _ in range(WRITERS)])
        yield pool


def await_others(up: Barrier) -> None:
    up.wait()


def row(writer: int, number: int) -> pa.Table:
    return pa.table({"writer": [writer], "number": [number]})


def append(properties: Properties, id: list[str], writer: int, appends: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()

    def tell(call: Call) -> None:
        outcomes[call.outcome] += 1

    with IcebergNamespace(**properties) as ns, ns.observe(tell):
        for number in range(appends):
            while True:
                try:
                    lance.write_dataset(row(writer, number), mode="append", namespace_client=ns, table_id=id)
                    break
                except OSError as e:
                    # Lance retries for half a minute; with this error, it has committed nothing.
                    if "Too many concurrent writers" not in str(e):
                        raise
    return outcomes


class Proxy:
    """A proxy of a server that forwards its responses, but closes the connection instead of every tenth one."""

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
        ends = [writer]
        try:
            with suppress(OSError):
                answers, there = await asyncio.open_connection(LOOPBACK, self._to.port)
                ends.append(there)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._questions(reader, there))
                    group.create_task(self._answers(answers, writer))
        finally:
            for end in ends:
                end.transport.abort()

    async def _questions(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            writer.close()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                self.answers += data.startswith(b"HTTP/1.1")
                if data.startswith(b"HTTP/1.1") and self.answers % 10 == 0:
                    break
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class Run:
    """A separate table, to which all writers append."""

    def __init__(self, site: Site, properties: Properties, ns: IcebergNamespace) -> None:
        self.id = [f"db{next(_names)}", "t"]
        self.at: dict[str, Any] = {"namespace_client": ns, "table_id": self.id}
        self._site = site
        self._properties = properties
        self._ns = ns
        ns.create_namespace(CreateNamespaceRequest(id=self.id[:1]))
        lance.write_dataset(row(0, -1), mode="create", **self.at)

    @property
    def last(self) -> int:
        return self._site.writers * self._site.appends + 1

    def write(self, processes: ProcessPoolExecutor, *, kills: int = 0) -> Counter[str]:
        """Lets all writers append, while the server is killed and restarted; returns the outcomes of the calls."""
        writing = [
            processes.submit(append, self._properties, self.id, writer, self._site.appends)
            for writer in range(self._site.writers)
        ]
        for kill in range(1, kills + 1):
            self._await_version(self.last * kill // (kills + 1), writing)
            self._site.server.kill()
            self._site.server.start()
        outcomes: Counter[str] = Counter()
        for future in writing:
            outcomes += future.result()
        return outcomes

    def check(self) -> None:
        """Checks that each row and each version exists once, and that all manifests have their final names."""
        site, last = self._site, self.last
        rows = lance.dataset(**self.at).to_table().to_pylist()
        expected = [(0, -1), *((writer, number) for writer in range(site.writers) for number in range(site.appends))]
        assert sorted((row["writer"], row["number"]) for row in rows) == sorted(expected)
        listed = self._ns.list_table_versions(ListTableVersionsRequest(id=self.id)).versions
        assert [version.version for version in listed] == list(range(1, last + 1))
        table = self._ns.describe_table(DescribeTableRequest(id=self.id))
        assert table.location is not None
        files = lance.file.LanceFileSession(table.location, storage_options=table.storage_options).list("_versions")
        names = [path.rpartition("/")[2] for path in files if "manifest" in path]
        assert sorted(names) == sorted(version.manifest_path.rpartition("/")[2] for version in listed)
        # Each version contains the rows of the previous one, and one more.
        for number in (1, 2, last // 2, last - 1):
            assert lance.dataset(version=number, **self.at).count_rows() == number

    def _await_version(self, number: int, writing: list[Future[Counter[str]]]) -> None:
        while (self._ns.describe_table(DescribeTableRequest(id=self.id)).version or 0) < number:
            # A writer that has failed would never get there; it prints the reason.
            for future in wait(writing, timeout=0.05).done:
                future.result()


def test_lance_writes_and_reads_by_the_catalog(site: Site) -> None:
    with IcebergNamespace(**site.properties) as ns:
        run = Run(site, site.properties, ns)
        assert lance.write_dataset(row(1, 1), mode="append", **run.at).version == 2
        assert lance.write_dataset(pa.table({"word": ["x"]}), mode="overwrite", **run.at).version == 3
        assert lance.write_dataset(row(2, 2), mode="overwrite", **run.at).version == 4
        assert [lance.dataset(version=number, **run.at).count_rows() for number in (1, 2, 3, 4)] == [1, 2, 1, 1]
        result = ns.describe_table(DescribeTableRequest(id=run.id, load_detailed_metadata=True))
        assert (result.version, result.managed_versioning) == (4, True)


def test_many_processes_write_at_once(site: Site, processes: ProcessPoolExecutor) -> None:
    with IcebergNamespace(**site.properties) as ns:
        run = Run(site, site.properties, ns)
        outcomes = run.write(processes)
        run.check()
    assert outcomes["CommitFailedException"] + outcomes["409"] > 0


def test_nothing_is_lost_or_doubled_when_the_server_dies_and_answers_get_lost(
    site: Site, processes: ProcessPoolExecutor
) -> None:
    proxy = Proxy(site.server.endpoint)
    with proxy.running():
        properties = {**site.properties, "endpoint": proxy.endpoint}
        with IcebergNamespace(**properties) as ns:
            run = Run(site, properties, ns)
            outcomes = run.write(processes, kills=site.kills)
            run.check()
    assert outcomes["disconnected"] > proxy.answers // 20
