"""The sync namespace in several processes: pickled, forked, and not closed at the end."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

from lance_ns_async import IcebergNamespace, Namespace, Policy
from tests.fakes.iceberg import FakeIceberg

SECRET = "hush-hush-4711"


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
    output = run(script, stdin=pickle.dumps((named, plain)))
    assert output == ("IcebergNamespace True Namespace False", "")
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
    output, complaints = run(FORKS, server.endpoint)
    ways = ["use", "close", "use close", "forget", "use forget", "go_on use", "end", "use end"]
    assert output.splitlines() == [f"{way} 0 ok 1" for way in ways]
    assert not complaints
