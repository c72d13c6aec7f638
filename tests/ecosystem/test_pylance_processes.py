"""pylance's namespace in other processes: spawned, forked, by a fork server, and in pools."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest
from lance_namespace.errors import TableNotFoundError

from lance_ns_async import Namespace
from tests.ecosystem.catalogs import TRIED, Catalog
from tests.ecosystem.pylance_tables import ids, missing, read_and_write, read_by_class_path, write
from tests.support.budget import with_usual

JOBS = range(10, 14)


# Both methods start processes from pickles, so a fork server, which is faster, is enough for the usual run.
POOLS = [(impl, "spawn") for impl in sorted(TRIED)] + [("dir", "forkserver"), ("iceberg", "forkserver")]


@pytest.mark.parametrize(
    ("catalog", "method"), with_usual(POOLS, ("iceberg", "forkserver"), ("dir", "forkserver")), indirect=["catalog"]
)
def test_a_pool_of_processes(catalog: Catalog, ns: Namespace, home: list[str], method: str) -> None:
    id = [*home, "t"]
    write(ns, id)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        jobs = [pool.submit(read_and_write, ns, id, number) for number in JOBS]
        assert [job.result()[0] for job in jobs] == list(JOBS)
        assert ids(ns, id) == [1, 2, 3, *JOBS]
        assert pool.submit(read_by_class_path, catalog.class_path, dict(catalog.properties), id).result() == ids(ns, id)
        refused = pool.submit(missing, ns, [*home, "nowhere"]).exception()
    assert isinstance(refused, TableNotFoundError) and str(refused).startswith("Table not found: ")


FORK = """
    import json, os, sys, warnings
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # pylance warns of forks, whatever is done with it.
    warnings.simplefilter("ignore")

    import lance_namespace
    from lance_namespace.errors import TableNotFoundError
    from tests.ecosystem.pylance_tables import MORE, ids, write

    class_path, properties, home = json.loads(sys.argv[1])
    used, unused = (lance_namespace.connect(class_path, properties) for _ in range(2))
    id = [*home, "t"]
    write(used, id)

    def in_a_child(work):
        child = os.fork()
        if child == 0:
            try:
                work()
            except BaseException as e:
                print(repr(e))
                os._exit(1)
            os._exit(0)
        return os.waitpid(child, 0)[1]

    def ask(ns):
        assert ns.exists(id) and "/t" in ns.describe_table({"id": id}).location
        assert [str(found.name) for found in ns.iter_tables(home)] == ["t"]
        try:
            ns.describe_table({"id": [*home, "nowhere"]})
        except TableNotFoundError:
            return 0
        raise AssertionError

    def change(ns):
        ns.declare_table({"id": [*home, "declared"]})
        ns.deregister_table({"id": [*home, "declared"]})

    print(in_a_child(lambda: ask(used)), in_a_child(lambda: ask(unused)), in_a_child(lambda: change(used)))
    print(in_a_child(lambda: in_a_child(lambda: ask(used)) and os._exit(2)))
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        print(list(pool.map(ask, [used, unused] * 2)))
    write(used, id, MORE, mode="append")
    print(ids(used, id), ids(unused, id))
    """


# The directory catalog uses pylance, which must not be forked. All others connect anew with a new event loop.
@pytest.mark.parametrize("catalog", with_usual([impl for impl in TRIED if impl != "dir"], "hive3"), indirect=True)
def test_a_fork_and_its_parent_can_call_the_catalog(catalog: Catalog, home: list[str]) -> None:
    arguments = json.dumps([catalog.class_path, dict(catalog.properties), home])
    command = [sys.executable, "-u", "-c", inspect.cleandoc(FORK), arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    rows = "[1, 2, 3, 4, 5]"
    assert (done.stdout.splitlines(), done.stderr) == (["0 0 0", "0", "[0, 0, 0, 0]", f"{rows} {rows}"], "")
