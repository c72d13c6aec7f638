"""Deferred packages: loaded at the first use of a name, once, also by several threads."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from lance_ns_async.deferred import defer


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Returns the folder of a package `deferred_example`, with a package and a module in it."""
    folder = tmp_path / "deferred_example"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text(
        textwrap.dedent(
            """
            from deferred_example import errors
            __all__ = ["Value", "errors"]
            class Value: ...
            """
        )
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


def test_all_names_are_there_for_a_star_import(package: Path) -> None:
    names: dict[str, Any] = {}
    exec("from deferred_example import *", names)
    assert {"Value", "errors"} <= names.keys()


def test_dir_tells_all_names(package: Path) -> None:
    assert {"Value", "errors"} <= set(dir(import_module("deferred_example")))


def test_an_unknown_name_is_an_attribute_error(package: Path) -> None:
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
