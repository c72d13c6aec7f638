"""The sync namespace: as Lance tools call it, from any thread, inside running loops, closed and forgotten."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import GenericAlias
from typing import Any, get_args, get_type_hints

import lance_namespace
import pytest
from lance_namespace import (
    DescribeTableRequest,
    DescribeTableResponse,
    LanceNamespace,
    ListTablesRequest,
)
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from pydantic import BaseModel

from lance_ns_async import AsyncNamespace, Call, DirNamespace, IcebergNamespace, Namespace, NamespaceId, Policy, TableId
from tests.fakes.iceberg import FakeIceberg

SECRET = "hush-hush-4711"
TABLE = DescribeTableRequest(id=["db", "t"])
LOCATION = "s3://bucket/db/t.lance"


class DictWithModelDump(dict[str, Any]):
    """What Lance's Rust side hands over: a dict that answers `model_dump()` and nothing else."""

    def model_dump(self) -> dict[str, Any]:
        return self


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as running:
        running.add_table(["db"], "t")
        running.add_table(["db", "inner"], "u")
        yield running


@pytest.fixture
def ns(server: FakeIceberg) -> Iterator[IcebergNamespace]:
    with IcebergNamespace(endpoint=server.endpoint, root="file:///tmp/none") as opened:
        yield opened


def loops() -> list[threading.Thread]:
    """The threads of background loops."""
    return [thread for thread in threading.enumerate() if thread.name == "lance-ns-async"]


def assert_no_loop() -> None:
    for thread in loops():
        thread.join(10)
    assert not loops()


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("list_namespaces", {"id": []}),
        ("list_namespaces", {}),
        ("describe_namespace", {"id": ["db"]}),
        ("create_namespace", {"id": ["new"], "mode": "ExistOk", "properties": {"a": "b"}}),
        ("drop_namespace", {"id": ["gone"], "mode": "Skip", "behavior": "Restrict"}),
        ("namespace_exists", {"id": ["db"]}),
        ("list_tables", {"id": ["db"], "limit": 1}),
        ("list_all_tables", {"id": []}),
        ("describe_table", {"id": ["db", "t"], "vend_credentials": True}),
        ("describe_table", {"id": ["db", "t"], "version": None}),
        ("table_exists", {"id": ["db", "t"]}),
        ("declare_table", {"id": ["db", "made"], "location": "file:///tmp/none/made"}),
        ("register_table", {"id": ["db", "made"], "location": "file:///tmp/none/made"}),
        ("deregister_table", {"id": ["db", "t"]}),
        ("rename_table", {"id": ["db", "t"], "new_table_name": "v"}),
    ],
)
def test_a_request_may_be_a_dict_as_lance_sends_it(
    ns: IcebergNamespace, operation: str, request_: dict[str, Any]
) -> None:
    answer = getattr(ns, operation)(DictWithModelDump(request_))
    assert isinstance(answer, BaseModel)


def test_a_dict_and_a_model_are_answered_alike(ns: IcebergNamespace) -> None:
    told: Any = DictWithModelDump(id=["db", "t"])
    assert ns.describe_table(told) == ns.describe_table(TABLE)
    described = ns.describe_table(told)
    assert isinstance(described, DescribeTableResponse)
    assert (described.location, described.storage_options, described.managed_versioning) == (LOCATION, None, False)


async def test_it_may_be_called_where_a_loop_runs(ns: IcebergNamespace) -> None:
    assert asyncio.get_running_loop().is_running()
    assert ns.describe_table(TABLE).location == LOCATION
    assert list(ns.iter_tables(recursive=True)) == [TableId(["db", "t"]), TableId(["db", "inner", "u"])]
    assert await asyncio.to_thread(ns.exists, ["db", "t"])


def test_many_threads_may_begin_at_once_and_leave_nothing_behind(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    start = threading.Barrier(24)

    def ask(_: int) -> str | None:
        start.wait()
        return ns.describe_table(TABLE).location

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(ask, range(24))) == [LOCATION] * 24
    assert len(loops()) == 1
    ns.close()
    assert_no_loop()


def test_namespaces_share_one_thread_that_ends_with_the_last(server: FakeIceberg) -> None:
    first, second = IcebergNamespace(endpoint=server.endpoint), IcebergNamespace(endpoint=server.endpoint)
    assert not loops(), "construction costs nothing"
    first.exists(["db", "t"])
    second.exists(["db", "t"])
    (thread,) = loops()
    first.close()
    assert second.exists(["db", "t"]) and thread.is_alive()
    second.close()
    assert_no_loop()
    with IcebergNamespace(endpoint=server.endpoint) as third:
        assert third.exists(["db", "t"]) and thread not in loops()


def test_closed_twice_is_closed_and_says_so(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    assert ns.exists(["db", "t"])
    ns.close()
    ns.close()
    for operation in (
        lambda: ns.describe_table(TABLE),
        lambda: ns.describe_tables([["db", "t"]]),
        lambda: next(ns.iter_tables(["db"])),
    ):
        with pytest.raises(InvalidInputError, match="it is closed; connect anew"):
            operation()
    assert_no_loop()


def test_what_was_never_used_can_be_closed(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    ns.close()
    with pytest.raises(InvalidInputError, match="it is closed"):
        ns.describe_table(TABLE)
    assert not loops()


def test_closing_ends_the_calls_of_other_threads(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    with server.hold("tables/t") as hold, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ns.describe_table, TABLE)
        hold.wait_for()
        ns.close()
        with pytest.raises(LanceNamespaceError):
            asking.result(10)
    assert_no_loop()


def test_an_iterator_outlives_its_namespace_without_complaint(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    forgotten, asked = ns.iter_tables(recursive=True), ns.iter_tables(recursive=True)
    next(forgotten)
    next(asked)
    ns.close()
    assert_no_loop()
    del forgotten
    with pytest.raises(InvalidInputError, match="closed"):
        list(asked)


def test_an_iterator_that_is_left_early_asks_no_more(ns: IcebergNamespace, server: FakeIceberg) -> None:
    for _ in ns.iter_tables(recursive=True):
        break
    asked = len(server.requests)
    assert ns.exists(["db", "t"]) and len(server.requests) == asked + 1


def test_a_call_from_its_own_loop_is_refused_instead_of_hanging(ns: IcebergNamespace) -> None:
    def call(_: int) -> None:
        ns.describe_table(TABLE)

    with pytest.raises(InternalError, match=r"called from its own event loop.*use AsyncNamespace there"):
        ns.describe_tables([["db", "t"]], progress=call)

    async def iterate(client: AsyncNamespace) -> list[TableId]:
        return list(ns.iter_tables())

    with pytest.raises(InternalError, match="called from its own event loop"):
        ns.run(iterate)
    assert ns.describe_table(TABLE).location == LOCATION


def test_an_interrupt_cancels_the_call(ns: IcebergNamespace, server: FakeIceberg) -> None:
    outcomes: queue.SimpleQueue[str] = queue.SimpleQueue()

    def interrupt() -> None:
        hold.wait_for()
        os.kill(os.getpid(), signal.SIGINT)

    assert ns.exists(["db", "t"])
    with ns.observe(lambda call: outcomes.put(call.outcome)), server.hold("tables/t") as hold:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            ns.describe_table(TABLE)
        assert outcomes.get(timeout=10) == "cancelled"
    assert ns.describe_table(TABLE).location == LOCATION


def test_a_forgotten_namespace_is_closed(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    assert ns.exists(["db", "t"])
    gone = weakref.ref(ns)
    del ns
    gc.collect()
    assert gone() is None
    assert_no_loop()
    gc.collect()


def test_observers_see_the_calls_of_a_sync_namespace(ns: IcebergNamespace) -> None:
    calls = list[Call]()
    with ns.observe(calls.append):
        ns.describe_table(TABLE)
    ns.describe_table(TABLE)
    assert [(c.operation, c.outcome) for c in calls] == [("get_config", "ok"), ("describe_table", "ok")]


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


PAIRS = sorted(public(AsyncNamespace) - {"aclose", "table_groups", "namespace_groups"})


def test_there_are_no_other_methods() -> None:
    own = {name for name in vars(Namespace) if not name.startswith("_")}
    assert own - {"close", "run"} == set(PAIRS)


@pytest.mark.parametrize("name", PAIRS)
def test_a_method_has_the_signature_of_the_async_one_and_refers_to_it(name: str) -> None:
    ours, theirs = getattr(Namespace, name), getattr(AsyncNamespace, name)
    signature, told = inspect.signature(ours), inspect.signature(theirs)
    assert [p.replace(annotation=None) for p in signature.parameters.values()] == [
        p.replace(annotation=None) for p in told.parameters.values()
    ]
    hints, wanted = get_type_hints(ours), get_type_hints(theirs)
    if name.startswith("iter_"):
        item, _ = get_args(wanted["return"])
        wanted["return"] = GenericAlias(Iterator, (item,))
    elif name == "connect":
        wanted["return"] = Namespace
    assert hints == wanted
    assert not inspect.iscoroutinefunction(ours) and not inspect.isasyncgenfunction(ours)
    assert (inspect.getdoc(ours) or "").startswith(f"See `AsyncNamespace.{name}`") and inspect.getdoc(theirs)


@pytest.mark.parametrize("name", sorted(public(LanceNamespace) - public(AsyncNamespace) - {"create_empty_table"}))
def test_what_is_not_served_is_unsupported(ns: IcebergNamespace, name: str) -> None:
    operation = getattr(ns, name)
    needed = [p for p in inspect.signature(operation).parameters.values() if p.default is p.empty]
    with pytest.raises(UnsupportedOperationError, match=name):
        operation(*[None] * len(needed))


@pytest.mark.parametrize("name", sorted(public(LanceNamespace) & public(AsyncNamespace)))
def test_what_is_served_is_called_as_the_spec_has_it(name: str) -> None:
    ours = list(inspect.signature(getattr(Namespace, name)).parameters)
    assert ours == list(inspect.signature(getattr(LanceNamespace, name)).parameters)


@pytest.mark.parametrize("path", ["lance_ns_async.IcebergNamespace", "lance_ns_async.sync.IcebergNamespace"])
def test_lance_connects_by_path(server: FakeIceberg, path: str) -> None:
    ns = lance_namespace.connect(path, {"endpoint": server.endpoint, "iceberg.max-retries": "1"})
    assert isinstance(ns, IcebergNamespace)
    with ns:
        assert ns.describe_table(TABLE).location == LOCATION


def test_lance_connects_to_a_directory(tmp_path: os.PathLike[str]) -> None:
    ns = lance_namespace.connect("lance_ns_async.DirNamespace", {"root": str(tmp_path)})
    assert isinstance(ns, DirNamespace)
    with ns:
        assert ns.list_tables(ListTablesRequest(id=[])).tables == []


@pytest.mark.parametrize(
    ("path", "properties", "told"),
    [
        (
            "lance_ns_async.DirNamespace",
            {"rot": "/data"},
            "dir properties: rot: unknown, did you mean root?; root: Field",
        ),
        ("lance_ns_async.IcebergNamespace", {"endpoint": "nowhere"}, "iceberg properties: endpoint: not a URL"),
        (
            "lance_ns_async.IcebergNamespace",
            {"endpoint": "http://h", "max_retries": SECRET},
            "max_retries: Input should",
        ),
    ],
)
def test_lance_tells_what_is_wrong_with_properties(path: str, properties: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match="Failed to construct namespace impl") as raised:
        lance_namespace.connect(path, properties)
    assert told in str(raised.value) and SECRET not in str(raised.value)


def test_an_unknown_backend_is_named_with_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match=r"backend 'icebreg': unknown; did you mean 'iceberg'\?"):
        Namespace.connect("icebreg", {})
    with pytest.raises(InvalidInputError, match="backend 'x': unknown; known are dir, iceberg"):
        Namespace.connect("x", {})


def test_equal_properties_make_equal_ids_and_secrets_tell_apart_without_being_told() -> None:
    def connected(**more: str) -> IcebergNamespace:
        return IcebergNamespace(endpoint="http://127.0.0.1:1", **more)

    one, same = connected(auth_token=SECRET, warehouse="w"), connected(warehouse="w", auth_token=SECRET)
    others = [
        connected(auth_token="other", warehouse="w"),
        connected(credential=f"id:{SECRET}", warehouse="w"),
        connected(auth_token=SECRET),
        connected(auth_token=SECRET, warehouse="w", **{"storage.region": "eu"}),
    ]
    assert one.namespace_id() == same.namespace_id()
    ids = {other.namespace_id() for other in (one, *others)}
    assert len(ids) == 1 + len(others)
    assert all(id.startswith("lance_ns_async:iceberg:http://127.0.0.1:1") for id in ids)
    for shown in (*ids, *map(repr, others), *map(str, others)):
        assert SECRET not in shown
    assert repr(one) == f"IcebergNamespace({one.namespace_id()})"


def test_a_policy_takes_the_place_of_the_properties(server: FakeIceberg) -> None:
    server.fail(503, times=None, match="config")
    properties = {"endpoint": server.endpoint, "max_retries": "7"}
    calls = list[Call]()
    with Namespace.connect("iceberg", properties, policy=Policy(max_retries=1, backoff_initial=0.0)) as ns:
        with ns.observe(calls.append), pytest.raises(LanceNamespaceError):
            ns.describe_table(TABLE)
    assert len(calls) == 2


@pytest.mark.parametrize("operation", ["describe_table", "table_exists"])
def test_errors_are_those_of_the_spec_with_the_words_lance_looks_for(ns: IcebergNamespace, operation: str) -> None:
    with pytest.raises(TableNotFoundError, match=r"^Table not found: db\$gone "):
        getattr(ns, operation)({"id": ["db", "gone"]})
    assert not ns.exists(["db", "gone"]) and not ns.exists(NamespaceId(["gone"]))


def run(script: str, *arguments: str, told: bytes = b"") -> tuple[str, str]:
    """What a process of its own prints, and what it complains of."""
    command = [sys.executable, "-W", "error", "-c", inspect.cleandoc(script), *arguments]
    done = subprocess.run(command, input=told, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip(), done.stderr.decode()


def test_a_pickle_is_as_good_in_another_process(server: FakeIceberg) -> None:
    named = IcebergNamespace(endpoint=server.endpoint, auth_token=SECRET)
    plain = Namespace.connect("iceberg", {"endpoint": server.endpoint}, policy=Policy(max_retries=0))
    assert named.exists(["db", "t"])
    script = """
        import pickle, sys
        named, plain = pickle.load(sys.stdin.buffer)
        print(type(named).__name__, named.exists(["db", "t"]), type(plain).__name__, plain.exists(["db", "x"]))
        """
    said = run(script, told=pickle.dumps((named, plain)))
    assert said == ("IcebergNamespace True Namespace False", "")
    assert server.requests[-1].headers.get("authorization") is None
    again = pickle.loads(pickle.dumps(named))
    assert again.namespace_id() == named.namespace_id() and again.exists(["db", "t"])
    again.close()
    named.close()
    assert pickle.loads(pickle.dumps(named)).exists(["db", "t"])


def test_a_process_may_end_in_the_middle_of_things(server: FakeIceberg) -> None:
    script = """
        import sys
        from lance_ns_async import IcebergNamespace
        ns = IcebergNamespace(endpoint=sys.argv[1])
        tables = ns.iter_tables(recursive=True)
        print(next(tables), ns.exists(["db", "t"]))
        """
    assert run(script, server.endpoint) == ("db$t True", "")


FORKS = """
        import gc, os, sys, warnings
        from lance_namespace.errors import InvalidInputError
        from lance_ns_async import IcebergNamespace

        # Of what it inherited, and may not close.
        warnings.simplefilter("ignore", ResourceWarning)

        def use(ns, tables):
            assert ns.exists(["db", "t"])

        def close(ns, tables):
            ns.close()

        def forget(ns, tables):
            namespaces.clear()
            del ns, tables
            gc.collect()

        def go_on(ns, tables):
            try:
                next(tables)
            except InvalidInputError as e:
                assert "forked" in str(e)
            else:
                raise AssertionError

        def end(ns, tables):
            sys.exit()

        for does in [use], [close], [use, close], [forget], [use, forget], [go_on, use], [end], [use, end]:
            calls = []
            namespaces = [IcebergNamespace(endpoint=sys.argv[1], attempt_timeout="20s")]
            iterators = [namespaces[0].iter_tables(recursive=True)]
            next(iterators[0])
            process = os.fork()
            if not process:
                for do in does:
                    do(namespaces[0], iterators.pop() if do in (forget, go_on) else None)
                os._exit(0)
            (ns,), (tables,) = namespaces, iterators
            ended = os.waitpid(process, 0)[1]
            with ns.observe(calls.append):
                assert ns.exists(["db", "t"])
            print(*[do.__name__ for do in does], ended, *[call.outcome for call in calls], len(list(tables)))
            ns.close()
        """


def test_a_forked_child_may_do_as_it_likes_and_the_parent_goes_on(server: FakeIceberg) -> None:
    said, complaints = run(FORKS, server.endpoint)
    ways = ["use", "close", "use close", "forget", "use forget", "go_on use", "end", "use end"]
    assert said.splitlines() == [f"{way} 0 ok 1" for way in ways]
    assert not complaints
