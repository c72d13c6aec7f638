"""Docstrings of the sync methods, and hints in the TypeErrors of constructors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from lance_ns_async.settings import conceal

P = ParamSpec("P")
C = TypeVar("C", bound=type)
S = TypeVar("S")


def copy_docstrings(source: type) -> Callable[[C], C]:
    """Appends the docstrings of `source` to the methods of a class whose docstrings refer to `AsyncNamespace`."""

    def complete(cls: C) -> C:
        for name, member in vars(cls).items():
            method = getattr(member, "__func__", member)
            docstring = method.__doc__ if inspect.isfunction(method) else None
            if docstring and docstring.startswith(f"See `AsyncNamespace.{name}`"):
                method.__doc__ = f"{docstring}\n\n{inspect.getdoc(getattr(source, name))}"
        return cls

    return complete


def called_with(
    hint: Callable[[S], str],
) -> Callable[[Callable[Concatenate[S, P], None]], Callable[Concatenate[S, P], None]]:
    """Adds a hint on the correct call to the TypeError that a constructor raises for wrong arguments."""

    def wrap(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
        signature = inspect.signature(init)
        named = frozenset(signature.parameters)

        @wraps(init)
        def init_with_hint(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            # Properties are a mapping, or keywords that no parameter names.
            args = tuple(conceal(it) if isinstance(it, Mapping) else it for it in args)  # type: ignore[assignment]
            kwargs = {  # type: ignore[assignment]
                **{
                    name: conceal(it) if isinstance(it, Mapping) else it for name, it in kwargs.items() if name in named
                },
                **conceal({name: it for name, it in kwargs.items() if name not in named}),
            }
            try:
                signature.bind(self, *args, **kwargs)
            except TypeError as e:
                raise TypeError(f"{type(self).__name__}: {e}; {hint(self)}") from None
            init(self, *args, **kwargs)

        return init_with_hint

    return wrap
