"""The reference: each method is in one group of its page, and each argument is described."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import lance_namespace as spec
import pytest

from lance_ns_async import AsyncNamespace, Namespace
from tests.documentation.pages import Page

PAGES = ("client", "sync", "fleet", "spark", "policy", "errors", "model")
ONCE = {"self", "cls", "fields"}
"""The arguments that the class describes once."""

COMMON = {"id", "identity", "context"}
"""The fields of requests that the class describes once."""

_DIRECTIVE = re.compile(r"^(?:#+ )?::: (\S+)$", re.MULTILINE)
_ARGUMENTS = re.compile(r"^Args:\n((?:    .*\n?|\n)+)", re.MULTILINE)
_ARGUMENT = re.compile(r"^    \*{0,2}(\w+): \S", re.MULTILINE)


def documented(page: str) -> list[str]:
    """Returns the paths of the objects on a page of the reference, in order."""
    return _DIRECTIVE.findall(Page(f"reference/{page}.md").text)


def functions(owner: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """All public functions of a documented object: itself, or those of a module or a class."""
    if inspect.isfunction(owner):
        yield owner.__qualname__, owner
    elif isinstance(owner, ModuleType):
        for name, value in vars(owner).items():
            if not name.startswith("_") and getattr(value, "__module__", None) == owner.__name__:
                yield from functions(value)
    elif inspect.isclass(owner):
        for name in dir(owner):
            member = inspect.getattr_static(owner, name)
            member = inspect.unwrap(getattr(member, "__func__", member))
            is_ours = inspect.isfunction(member) and member.__module__.startswith("lance_ns_async")
            if is_ours and not name.startswith("_"):
                yield f"{owner.__name__}.{name}", member


def needs_only_id(function: Callable[..., Any]) -> bool:
    """Returns whether the request of an operation has no field but the id, and those that no operation needs."""
    model = re.match(r"spec\.(\w+)", inspect.signature(function).parameters["request"].annotation)
    return model is not None and set(getattr(spec, model[1]).model_fields) <= COMMON


def undescribed(function: Callable[..., Any]) -> list[str]:
    """Returns the arguments that the docstring does not describe."""
    arguments = _ARGUMENTS.search(inspect.getdoc(function) or "")
    described = set(_ARGUMENT.findall(arguments[1])) if arguments else set()
    missing = [name for name in inspect.signature(function).parameters if name not in ONCE | described]
    return [name for name in missing if name != "request" or not needs_only_id(function)]


@pytest.mark.parametrize(
    ("page", "namespace"), [("client", AsyncNamespace), ("sync", Namespace)], ids=["client", "sync"]
)
def test_each_method_is_in_one_group(page: str, namespace: type) -> None:
    prefix = f"lance_ns_async.{namespace.__name__}."
    listed = [path.removeprefix(prefix) for path in documented(page) if path.startswith(prefix)]
    assert sorted(listed) == [name for name in dir(namespace) if not name.startswith("_")]


@pytest.mark.parametrize("page", PAGES)
def test_each_argument_is_described(page: str) -> None:
    documents = [it for path in documented(page) for it in functions(pkgutil.resolve_name(path))]
    assert documents
    assert [(name, undescribed(it)) for name, it in documents if undescribed(it)] == []
