"""The properties of a kind of catalog, from its settings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any


def property_rows(impl: str) -> Iterator[Mapping[str, Any]]:
    """Yields a row for each property: those that a catalog requires first, and then its own."""
    from lance_ns_async import registry
    from lance_ns_async.calls.policy import Policy

    settings = registry.load(impl).settings
    meanings = dict(_attribute_docstrings(Policy))
    for cls in reversed(settings.__mro__):
        if hasattr(cls, "model_fields"):
            meanings.update(_attribute_docstrings(cls))
    for name in settings.names(aliases=False):
        field = settings.model_fields[name.removesuffix(".*")]
        default = "required" if field.is_required() else _text(field.default)
        yield {"property": name, "default": default, "meaning": meanings.get(name.removesuffix(".*"), "")}


def _attribute_docstrings(cls: type[Any]) -> Iterator[tuple[str, str]]:
    """Yields the names of attributes with the first paragraphs of the docstrings below them."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    for attribute, following in pairwise(body):
        match attribute, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(inspect.cleandoc(text).split("\n\n")[0].split())


def _text(default: Any) -> str:
    return "" if default in (None, {}, (), "") else str(default)
