"""Short names of backends, and their registration."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import lance_namespace

import lance_ns_async
from lance_ns_async import registry
from lance_ns_async.registry import CLASS_PATHS


def printed(script: str) -> str:
    """Returns the output of a fresh process, because registrations belong to the process."""
    done = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_backend_has_a_class_path_that_connects() -> None:
    for impl, path in CLASS_PATHS.items():
        if impl != "glue":
            ns = lance_namespace.connect(path, dict(registry.BACKENDS[impl].example))
            assert isinstance(ns, getattr(lance_ns_async, path.rpartition(".")[2]))


def test_rest_knows_the_properties_of_each_catalog_as_of_glue() -> None:
    rest = registry.load("rest").capabilities
    for impl in registry.BACKENDS:
        catalog = registry.load(impl).capabilities
        assert {*catalog.own_properties} <= {*rest.own_properties}, impl
        assert {*catalog.own_namespace_properties} <= {*rest.own_namespace_properties}, impl


def test_registered_names_connect_and_leave_the_plain_ones_alone() -> None:
    script = """
        import lance_namespace
        import lance_ns_async
        lance_namespace.register_namespace_impl("polaris", "somebody.Else")
        names = lance_ns_async.register()
        ns = lance_namespace.connect("lance-ns-polaris", {"endpoint": "http://127.0.0.1:1"})
        print(sorted(names)[0], type(ns).__name__)
        try:
            lance_namespace.connect("polaris", {})
        except ValueError as e:
            print(e)
    """
    assert printed(script).splitlines() == [
        "lance-ns-dir PolarisNamespace",
        "Failed to construct namespace impl somebody.Else: No module named 'somebody'",
    ]


def test_plain_names_are_taken_on_request() -> None:
    script = """
        import lance_namespace
        import lance_ns_async
        names = lance_ns_async.register(plain=True)
        print(type(lance_namespace.connect("hive3", {"uri": "thrift://127.0.0.1:1"})).__name__, "dir" in names)
    """
    assert printed(script) == "Hive3Namespace False"
