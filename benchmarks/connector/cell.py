"""One way to read a union of many tables with Spark, once, in this process; prints the seconds as JSON.

`python -m benchmarks.connector.cell WAY ENDPOINT TABLES LATENCY`. Each run begins with a union of other tables without
latency, so that one-time work of the JVM, such as loading and compiling, is not measured.
"""

import gc
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

from lance_ns_async.spark import LocationResolver, Locations
from lance_ns_async.spark.local import local_spark

ROWS = 10
"""Rows of each table."""
NAMES = "t{}"
WARM = 200
"""Number of tables in the warm-up union, which are not among the measured tables."""
CONNECTOR = "org.lance.spark.LanceNamespaceSparkCatalog"


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run, in seconds."""

    way: str
    spark: str
    tables: int
    latency: float
    resolve: float
    """Time to find the tables, and for a DataFrame to open them; 0 if Spark itself calls the catalog."""
    analysis: float
    planning: float
    execution: float
    describes: int
    """Number of describes that the catalog received."""
    load: float
    """The load average at the beginning."""
    driver_mib: int
    """Peak memory of this process, in MiB."""
    jvm_mib: int
    """Peak memory of Spark's JVM, which is both driver and executor here, in MiB."""
    worker_mib: int
    """Peak memory of the largest Python worker, in MiB; 0 if there is none."""

    @property
    def planned(self) -> float:
        """Time from the beginning to a physical plan."""
        return self.resolve + self.analysis + self.planning


class Cell:
    """Spark and the catalog for one way of reading."""

    def __init__(self, endpoint: str, spark: SparkSession) -> None:
        self.endpoint = endpoint
        self.spark = spark

    def straight(self, names: list[str]) -> tuple[float, float, float, float]:
        """The connector calls the catalog for each table in turn."""
        catalog = self.catalog(names)
        for key, value in {"": CONNECTOR, ".impl": "rest", ".uri": self.endpoint, ".single_level_ns": "false"}.items():
            self.spark.conf.set(f"spark.sql.catalog.{catalog}{key}", value)
        return 0.0, *self.timed(lambda: self.spark.sql(union([f"{catalog}.db.{name}" for name in names])), len(names))

    def endpoint_of_the_driver(self, names: list[str]) -> tuple[float, float, float, float]:
        """The connector calls the driver, which has described all tables in bulk."""
        catalog = self.catalog(names)
        start = time.perf_counter()
        locations = self.prefetch(names, pin_versions=False)
        with locations.serve(self.spark, catalog) as served:
            resolve = time.perf_counter() - start
            statement = union([f"{catalog}.db.{name}" for name in names])
            found = self.timed(lambda: self.spark.sql(statement), len(names))
        assert served.misses == 0
        return resolve, *found

    def dataframe(self, names: list[str]) -> tuple[float, float, float, float]:
        """Neither connector nor SQL: one DataFrame of all tables, read in Python."""
        start = time.perf_counter()
        locations = self.prefetch(names, pin_versions=True)
        resolve = time.perf_counter() - start
        return resolve, *self.timed(lambda: locations.dataframe(self.spark), len(names))

    def prefetch(self, names: list[str], *, pin_versions: bool) -> Locations:
        """Finds all tables over a new connection."""
        with LocationResolver.connect("iceberg", {"endpoint": self.endpoint}) as resolver:
            return resolver.prefetch(
                [["db", name] for name in names], pin_versions=pin_versions, on_error="raise", progress=False
            )

    def timed(self, build: Callable[[], DataFrame], tables: int) -> tuple[float, float, float]:
        """Returns the seconds of analysis, planning and execution."""
        gc.collect()
        moments = [time.perf_counter()]
        execution = build()._jdf.queryExecution()
        moments.append(time.perf_counter())
        execution.executedPlan()
        moments.append(time.perf_counter())
        # Not the DataFrame's `count`, which would be planned again.
        rows = execution.toRdd().count()
        moments.append(time.perf_counter())
        assert rows == tables * ROWS, f"{rows} rows of {tables} tables"
        return moments[1] - moments[0], moments[2] - moments[1], moments[3] - moments[2]

    def catalog(self, names: list[str]) -> str:
        """Returns a new catalog name for each union."""
        return f"lance_{names[0]}"


WAYS = {"straight": Cell.straight, "endpoint": Cell.endpoint_of_the_driver, "dataframe": Cell.dataframe}


def union(tables: list[str]) -> str:
    """Returns the union of all tables, with balanced brackets, because Spark takes quadratic time otherwise."""
    if len(tables) == 1:
        return f"SELECT * FROM {tables[0]}"
    middle = len(tables) // 2
    return f"({union(tables[:middle])}) UNION ALL ({union(tables[middle:])})"


def peaks() -> tuple[int, int, int]:
    """Returns the peak memory of this process, of its JVM and of the largest Python worker, in MiB."""
    processes = [_status(path) for path in Path("/proc").glob("[0-9]*/status")]
    workers = [it for it in processes if it["Name"].startswith("python") and int(it["Pid"]) != os.getpid()]
    jvm = [it for it in processes if it["Name"] == "java" and int(it["PPid"]) == os.getpid()]
    below = {it["Pid"] for it in jvm}
    daemons = {it["Pid"] for it in workers if it["PPid"] in below}
    own = [it for it in workers if it["PPid"] in daemons]
    return _peak([_status(Path("/proc/self/status"))]), _peak(jvm), _peak(own)


def _status(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:  # the process has ended meanwhile
        lines = []
    found = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {"Name": "", "Pid": "0", "PPid": "0", **found}


def _peak(processes: list[dict[str, str]]) -> int:
    return max((int(it.get("VmHWM", "0 kB").split()[0]) // 1024 for it in processes), default=0)


def describes(endpoint: str) -> int:
    """Returns the number of describes that the catalog has answered with its latency."""
    with urllib.request.urlopen(f"{endpoint}/stub") as answer:
        count: int = json.load(answer)
        return count


def set_latency(endpoint: str, latency: float) -> None:
    """Makes the catalog delay its responses by a number of seconds."""
    urllib.request.urlopen(f"{endpoint}/stub?latency={latency}", data=b"").close()


@contextmanager
def session(way: str) -> Iterator[SparkSession]:
    """Returns a session with two cores, with the connector if the way needs it."""
    if way == "dataframe":
        spark = local_spark("bench", cores=2)
    else:
        # A union of 5,000 tables needs more than the default of 1 GB.
        spark = local_spark("bench", cores=2, config={"spark.driver.memory": "6g"}, connector=True)
    try:
        yield spark
    finally:
        spark.stop()


def measure(way: str, endpoint: str, tables: int, latency: float) -> Run:
    """Measures one run, after a warm-up run with other tables."""
    names = [NAMES.format(n) for n in range(WARM + tables)]
    with session(way) as spark:
        cell = Cell(endpoint, spark)
        WAYS[way](cell, names[:WARM])
        set_latency(endpoint, latency)
        load = os.getloadavg()[0]
        seconds = WAYS[way](cell, names[WARM:])
        return Run(way, pyspark.__version__, tables, latency, *seconds, describes(endpoint), load, *peaks())


if __name__ == "__main__":
    _, way, endpoint, tables, latency = sys.argv
    print(json.dumps(asdict(measure(way, endpoint, int(tables), float(latency)))))
