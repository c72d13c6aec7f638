"""The public names: complete, documented, and loaded on demand."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from textwrap import dedent
from threading import Barrier
from typing import Any

import pytest

import lance_ns_async
from lance_ns_async import registry
from lance_ns_async.deferred import defer

pytestmark = [pytest.mark.bare, pytest.mark.environment]
HEAVY = ["pyspark", "aiobotocore", "botocore", "thriftpy2", "lance", "pyarrow", "httpx", "aiohttp", "pydantic", "typer"]


def names() -> list[str]:
    return list(lance_ns_async.__all__)


def loaded_after(statement: str) -> set[str]:
    """Returns the packages of which a fresh interpreter has loaded something after a statement."""
    return {module.partition(".")[0] for module in modules_after(statement)}


def modules_after(statement: str) -> set[str]:
    """Returns the modules that a fresh interpreter has loaded after a statement, without deferred ones."""
    names = "print(*(name for name, it in sys.modules.items() if type(it) is type(sys)))"
    return set(printed(f"import sys\n{statement}\n{names}").split())


def printed(script: str) -> str:
    """Returns the output of a script in a fresh interpreter."""
    command = [sys.executable, "-W", "error", "-c", dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_imports_load_little() -> None:
    loaded = loaded_after("import lance_ns_async; dir(lance_ns_async); lance_ns_async.__all__")
    assert "lance_ns_async" in loaded and not loaded & {*HEAVY, "lance_namespace", "tenacity", "anyio"}
    pytest.importorskip("typer")
    # The models load pydantic.
    assert not loaded_after("import lance_ns_async.cli.app") & {*HEAVY, "pandas"} - {"typer"}
    statement = "from lance_ns_async import IcebergNamespace; IcebergNamespace(endpoint='http://127.0.0.1:1')"
    extras = {"pyspark", "aiobotocore", "botocore", "thriftpy2", "typer"}
    assert not loaded_after(statement) & {"lance", "pandas", "pyarrow.dataset", *extras}
    modules = modules_after("from lance_ns_async import AsyncNamespace")
    assert "lance_namespace" not in modules and 0 < len([it for it in modules if ".models." in it]) < 60


def test_only_the_parts_with_an_extra_need_it() -> None:
    parts = {
        ("lance_ns_async.backends.glue.", "lance_ns_async.transports.aws."): ["aiobotocore", "botocore"],
        ("lance_ns_async.cli.",): ["rich", "typer"],
        ("lance_ns_async.spark.",): ["pyspark"],
        ("lance_ns_async.telemetry",): ["opentelemetry"],
        ("nothing needs it when it is imported",): ["gssapi"],
    }
    all_extras = [extra for extras in parts.values() for extra in extras]
    script = f"""
import importlib, pkgutil, sys
import lance_ns_async
sys.modules.update(dict.fromkeys({all_extras}))
for module in pkgutil.walk_packages(lance_ns_async.__path__, "lance_ns_async."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(module.name, error.name)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines
    for module, missing in map(str.split, lines):
        extras = {extra for prefixes, extras in parts.items() if module.startswith(prefixes) for extra in extras}
        assert missing.partition(".")[0] in extras, module


def test_all_names_are_sorted_and_told_by_dir() -> None:
    assert names() == sorted(set(names())) == dir(lance_ns_async)


@pytest.mark.parametrize("name", names())
def test_a_public_name_is_there_and_explained(name: str) -> None:
    result: Any = getattr(lance_ns_async, name)
    assert result.__name__ == name and result.__module__.startswith("lance_ns_async.")
    own = (vars(result).get("__doc__") if inspect.isclass(result) else result.__doc__) or ""
    assert own and not own.startswith(f"{name}("), "a dataclass writes its signature where nobody wrote a docstring"


def test_public_methods_are_explained() -> None:
    unexplained = []
    for name in names():
        result = getattr(lance_ns_async, name)
        bases = inspect.getmro(result) if inspect.isclass(result) else ()
        own = {member for base in bases if base.__module__.startswith("lance_ns_async") for member in vars(base)}
        unexplained += [f"{name}.{member}" for member in sorted(own) if _is_unexplained(result, member)]
    assert unexplained == []


def _is_unexplained(cls: type, name: str) -> bool:
    """Returns whether a name is that of a public method or property without a docstring."""
    member = inspect.getattr_static(cls, name)
    is_documented = isinstance(member, property | classmethod) or inspect.isfunction(member)
    return is_documented and not name.startswith("_") and not inspect.getdoc(getattr(cls, name))


def test_the_version_and_the_mark_of_types() -> None:
    assert lance_ns_async.__version__ == version("lance-ns-async")
    assert files("lance_ns_async").joinpath("py.typed").is_file()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Returns the folder of a package `deferred_example`, with a package and a module in it."""
    folder = tmp_path / "deferred_example"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text(
        'from deferred_example import errors\n__all__ = ["Value", "errors"]\nclass Value: ...\n'
    )
    (folder / "errors.py").write_text("class Error(Exception): ...")
    (folder / "inner" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    defer("deferred_example", "deferred_example.inner")
    yield folder
    for name in [name for name in sys.modules if name.startswith("deferred_example")]:
        del sys.modules[name]


def is_loaded() -> bool:
    return "Value" in vars(sys.modules["deferred_example"])


def test_a_module_is_imported_without_its_package(package: Path) -> None:
    errors = import_module("deferred_example.errors")
    assert issubclass(errors.Error, Exception) and not is_loaded()
    assert import_module("deferred_example").Value.__module__ == "deferred_example" and is_loaded()
    assert import_module("deferred_example").errors is errors


def test_names_are_those_of_the_package(package: Path) -> None:
    names: dict[str, Any] = {}
    exec("from deferred_example import *", names)
    assert {"Value", "errors"} <= names.keys()
    assert {"Value", "errors"} <= set(dir(import_module("deferred_example")))
    with pytest.raises(AttributeError, match="module 'deferred_example' has no attribute 'other'"):
        _ = import_module("deferred_example").other
    with pytest.raises(ImportError, match="cannot import name 'other'"):
        exec("from deferred_example import other")


def test_threads_that_come_first_together_all_get_the_name(package: Path) -> None:
    together = Barrier(8)

    def use() -> Any:
        together.wait()
        return import_module("deferred_example").Value

    with ThreadPoolExecutor(8) as threads:
        values = [future.result() for future in [threads.submit(use) for _ in range(8)]]
    assert len(set(values)) == 1


def test_a_package_that_failed_is_loaded_again(package: Path) -> None:
    code = (package / "__init__.py").read_text()
    (package / "__init__.py").write_text("raise OSError('disk')")
    with pytest.raises(OSError, match="disk"):
        _ = import_module("deferred_example").Value
    (package / "__init__.py").write_text(code)
    assert import_module("deferred_example").Value


def test_a_package_that_is_loaded_already_stays_as_it_is() -> None:
    before = import_module("json")
    defer("json")
    assert sys.modules["json"] is before and type(before) is type(sys)


@pytest.mark.glue
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
