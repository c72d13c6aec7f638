"""The public names: complete, documented, and loaded on demand."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import pytest

import lance_ns_async

pytestmark = [pytest.mark.bare, pytest.mark.environment]


HEAVY = ["pyspark", "aiobotocore", "botocore", "thriftpy2", "lance", "pyarrow", "httpx", "aiohttp", "pydantic", "typer"]


def names() -> list[str]:
    return list(lance_ns_async.__all__)


def loaded_after(statement: str) -> set[str]:
    """Returns the packages of which a fresh interpreter has loaded something after a statement."""
    return {module.partition(".")[0] for module in modules_after(statement)}


def modules_after(statement: str) -> set[str]:
    """Returns the modules that a fresh interpreter has loaded after a statement, without deferred ones."""
    script = f"import sys\n{statement}\nprint(*(name for name, it in sys.modules.items() if type(it) is type(sys)))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert not done.stderr
    return set(done.stdout.split())


def test_importing_the_package_loads_none_of_what_it_needs() -> None:
    loaded = loaded_after("import lance_ns_async; dir(lance_ns_async); lance_ns_async.__all__")
    assert "lance_ns_async" in loaded and not loaded & {*HEAVY, "lance_namespace", "tenacity", "anyio"}


def test_the_command_line_loads_no_model_of_the_spec() -> None:
    pytest.importorskip("typer")
    # The models load pydantic.
    assert not loaded_after("import lance_ns_async.cli.app") & {*HEAVY, "pandas"} - {"typer"}


def test_connecting_loads_neither_pylance_nor_any_extra() -> None:
    statement = "from lance_ns_async import IcebergNamespace; IcebergNamespace(endpoint='http://127.0.0.1:1')"
    extras = {"pyspark", "aiobotocore", "botocore", "thriftpy2", "typer"}
    assert not loaded_after(statement) & {"lance", "pandas", "pyarrow.dataset", *extras}


def test_the_async_interface_loads_few_models_of_the_spec() -> None:
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


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="module 'lance_ns_async' has no attribute 'Nothing'"):
        _ = lance_ns_async.Nothing
    with pytest.raises(ImportError):
        import_module("lance_ns_async.nothing")


def test_the_version_is_that_of_the_distribution() -> None:
    assert lance_ns_async.__version__ == version("lance-ns-async")


def test_the_package_tells_type_checkers_that_it_is_typed() -> None:
    assert files("lance_ns_async").joinpath("py.typed").is_file()
