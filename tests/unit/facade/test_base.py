"""The sync namespace: its methods, its use by Lance, its representations, and several processes."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from types import GenericAlias
from typing import Any, get_args, get_type_hints

import lance
import lance_namespace
import pytest
from lance_namespace import DescribeTableRequest, LanceNamespace
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, ServiceUnavailableError

import lance_ns_async
from lance_ns_async import AsyncNamespace, Call, IcebergNamespace, Namespace, Policy
from lance_ns_async.facade.base import Facade
from lance_ns_async.many.scanning import RowReader
from lance_ns_async.registry import BACKENDS, CLASS_PATHS
from tests.fakes.iceberg import FakeIceberg

pytestmark = [pytest.mark.bare, pytest.mark.environment]
SECRET = "hush-hush-4711"
TABLE = DescribeTableRequest(id=["db", "t"])


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


PAIRS = sorted(public(AsyncNamespace) - {"aclose"})


def test_there_are_no_other_methods() -> None:
    own = {name for cls in (Namespace, Facade) for name in vars(cls) if not name.startswith("_")}
    assert own - {"arun", "close", "run"} == set(PAIRS)


@pytest.mark.parametrize("name", PAIRS)
def test_a_method_has_the_signature_and_the_docstring_of_the_async_one(name: str) -> None:
    ours, theirs = getattr(Namespace, name), getattr(AsyncNamespace, name)
    signature, expected = inspect.signature(ours), inspect.signature(theirs)
    assert [p.replace(annotation=None) for p in signature.parameters.values()] == [
        p.replace(annotation=None) for p in expected.parameters.values()
    ]
    # Lance is not imported before it is used.
    hints, expected_hints = (get_type_hints(it, localns={"LanceDataset": lance.LanceDataset}) for it in (ours, theirs))
    if name == "scan_many":
        expected_hints["return"] = RowReader
    elif name.startswith(("iter_", "stream_", "scan")) or name == "watch":
        item, _ = get_args(expected_hints["return"])
        expected_hints["return"] = GenericAlias(Iterator, (item,))
    elif name == "connect":
        expected_hints["return"] = Namespace
    assert hints == expected_hints
    assert not inspect.iscoroutinefunction(ours) and not inspect.isasyncgenfunction(ours)
    docstring = inspect.getdoc(theirs)
    assert docstring
    assert inspect.getdoc(ours) == docstring.replace("runs in the event loop", "runs in the background thread")


def test_every_operation_of_the_spec_is_served() -> None:
    # The spec has replaced this operation by `declare_table`.
    assert public(LanceNamespace) - public(AsyncNamespace) <= {"create_empty_table"}


@pytest.mark.parametrize("name", sorted(public(LanceNamespace) & public(AsyncNamespace)))
def test_what_is_served_is_called_as_the_spec_has_it(name: str) -> None:
    ours = inspect.signature(getattr(Namespace, name)).parameters
    spec = list(inspect.signature(getattr(LanceNamespace, name)).parameters)
    assert list(ours)[: len(spec)] == spec
    # Additional types of arguments are not part of the spec.
    for beyond in list(ours.values())[len(spec) :]:
        if beyond.kind is not beyond.VAR_KEYWORD:
            assert beyond.kind is beyond.KEYWORD_ONLY and beyond.default is None


@pytest.mark.parametrize("path", ["lance_ns_async.IcebergNamespace", "lance_ns_async.sync.IcebergNamespace"])
def test_lance_connects_by_path(server: FakeIceberg, path: str) -> None:
    ns = lance_namespace.connect(path, {"endpoint": server.endpoint, "iceberg.max-retries": "1"})
    assert isinstance(ns, IcebergNamespace)
    with ns:
        assert ns.describe_table(TABLE).location == "s3://bucket/db/t.lance"


def test_lance_names_what_is_wrong_with_properties() -> None:
    properties = {"rot": "/data", "endpoint": "nowhere", "max_retries": SECRET}
    with pytest.raises(ValueError, match="Failed to construct namespace impl") as raised:
        lance_namespace.connect("lance_ns_async.IcebergNamespace", properties)
    for part in ("iceberg properties: rot: unknown", "endpoint: not a URL", "max_retries: Input should"):
        assert part in str(raised.value)
    assert SECRET not in str(raised.value)


def test_an_unknown_backend_is_named_with_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match=r"impl 'icebreg': unknown; did you mean 'iceberg'\?"):
        Namespace.connect("icebreg", {})
    with pytest.raises(InvalidInputError, match="impl 'x': unknown; known are dir, iceberg"):
        Namespace.connect("x", {})


@pytest.mark.parametrize(
    ("alias", "meant"),
    [
        *(("lance_ns_async.DirNamespace", "dir"), ("lance_ns_async.sync.Hive3Namespace", "hive3")),
        *(("lance-ns-dir", "dir"), ("lance-ns-unity", "unity"), ("lance_ns_glue", "glue")),
        *(("directory", "dir"), ("hive", "hive3"), ("Polaris", "polaris"), ("unity_catalog", "unity")),
    ],
)
def test_what_goes_by_another_name_elsewhere_is_named_as_here(alias: str, meant: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"^impl '{alias}': unknown; did you mean '{meant}'\?$"):
        Namespace.connect(alias, {})


@pytest.mark.parametrize("connect", [Namespace.connect, AsyncNamespace.connect])
@pytest.mark.parametrize("properties", [SECRET, None, [("root", SECRET)]])
def test_properties_are_a_dict(connect: Any, properties: Any) -> None:
    message = r"^properties: they are a dict, for example \{'root': 'lake'\}"
    with pytest.raises(InvalidInputError, match=message) as raised:
        connect("dir", properties)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=pytest.mark.glue if impl == "glue" else []) for impl, path in CLASS_PATHS.items()]
)
def test_a_class_of_one_catalog_says_that_it_takes_properties_by_name(path: str) -> None:
    cls = getattr(lance_ns_async, path.rpartition(".")[2])
    for wrong in ("lake", {"root": "lake"}):
        with pytest.raises(TypeError, match=rf"^{cls.__name__}: .* takes properties by name, for example ") as raised:
            cls(wrong)
    example = str(raised.value).rpartition("for example ")[2]
    assert isinstance(eval(f"cls({example})"), cls)
    # What shells and notebooks complete.
    assert {"max_retries", *BACKENDS[cls.impl].example} <= inspect.signature(cls).parameters.keys()


def test_the_class_of_no_catalog_says_how_to_connect() -> None:
    wrong: Any = Namespace
    for properties in ({"root": "lake"}, {}):
        with pytest.raises(TypeError, match=r'^Namespace: .* use Namespace\.connect\("dir", \{"root": "lake"\}\)'):
            wrong(**properties)
    with pytest.raises(ValueError, match=r"of a class path one of lance_ns_async\.DirNamespace, "):
        lance_namespace.connect("lance_ns_async.Namespace", {"root": "lake"})


def test_an_async_namespace_says_what_can_be_pickled() -> None:
    with pytest.raises(TypeError, match=r"^AsyncNamespace: .*; pickle a Namespace$"):
        pickle.dumps(AsyncNamespace.connect("dir", {"root": "lake"}))


def test_namespace_ids_depend_on_secrets_without_containing_them() -> None:
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


def run(script: str, *arguments: str, stdin: bytes = b"") -> tuple[str, str]:
    """Returns the output of a separate process, and its warnings."""
    # Unbuffered; otherwise a forked child would print the buffered output of its parent.
    command = [sys.executable, "-u", "-W", "error", "-c", inspect.cleandoc(script), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
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
    assert run(script, stdin=pickle.dumps((named, plain))) == ("IcebergNamespace True Namespace False", "")
    assert server.requests[-1].headers.get("authorization") is None
    again = pickle.loads(pickle.dumps(named))
    assert again.namespace_id() == named.namespace_id() and again.exists(["db", "t"])
    again.close()
    named.close()
    assert pickle.loads(pickle.dumps(named)).exists(["db", "t"])
    server.fail(503, times=1)
    with pickle.loads(pickle.dumps(plain)) as without_retries, pytest.raises(ServiceUnavailableError):
        without_retries.exists(["db", "t"])


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
            with warnings.catch_warnings(record=True, action="always") as told: process = os.fork()
            assert all("is multi-threaded" in str(it.message) for it in told)
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
    output, complaints = run(FORKS, server.endpoint)
    ways = ["use", "close", "use close", "forget", "use forget", "go_on use", "end", "use end"]
    assert output.splitlines() == [f"{way} 0 ok 1" for way in ways] and not complaints
