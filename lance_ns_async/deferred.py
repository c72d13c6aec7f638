"""Packages that are loaded at the first use of one of their names, not at their import.

The package of the spec loads all of its models and a whole HTTP client when it is imported: four fifths of the time
that a process of this package needs to start. But most modules need its errors alone, and an operation needs a few of
the models, which have a module each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any

MODELS = "lance_namespace_urllib3_client.models"
"""The package with a module for each model of the spec."""

_loading = RLock()


class _Deferred(ModuleType):
    """A package whose own code has not run yet; its modules can be imported without it."""

    def __getattr__(self, name: str) -> Any:
        if (model := _find_model(name)) is not None:
            # The package has the same class under this name.
            self.__dict__[name] = model
            return model
        # By the class, because another thread may have made this an ordinary module by now.
        _Deferred._load(self)
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> Iterable[str]:
        _Deferred._load(self)
        return self.__dict__.keys()

    def _load(self) -> None:
        with _loading:
            # The code of the package itself may ask for names that it has not defined yet.
            if type(self) is _Deferred and not self.__dict__.get("_is_loading"):
                self.__dict__["_is_loading"] = True
                try:
                    assert self.__spec__ is not None and self.__spec__.loader is not None
                    self.__spec__.loader.exec_module(self)
                finally:
                    del self.__dict__["_is_loading"]
                self.__class__ = ModuleType  # type: ignore[assignment]  # mypy takes it for a fixed attribute.


def _find_model(name: str) -> Any:
    """Returns the model of the spec with this name, from its own module; None if there is no such module."""
    module = f"{MODELS}.{re.sub('(?!^)(?=[A-Z])', '_', name).lower()}"
    if name[:1].isupper() and find_spec(module) is not None:
        return getattr(import_module(module), name, None)
    return None


def defer(*packages: str) -> None:
    """Defers the loading of packages that are not loaded yet.

    Args:
        packages: The names of packages; a package comes before those that are in it.
    """
    for name in packages:
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            module = module_from_spec(spec)
            module.__class__ = _Deferred
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)
