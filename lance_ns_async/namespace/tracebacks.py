"""Short tracebacks: an error that a caller causes shows the caller's line, not the calls inside of the package."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, TypeVar

from lance_namespace.errors import InternalError, LanceNamespaceError

from lance_ns_async.errors import Failure

C = TypeVar("C", bound=type)
P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("lance_ns_async")


def without_inner_calls(error: LanceNamespaceError) -> LanceNamespaceError:
    """Removes the traceback of an error, and a cause that its message repeats; returns the error.

    Errors that may be mistakes of the package stay whole, and so do all errors if the logger `lance_ns_async` has the
    level DEBUG. Causes that are not of the package, such as an error of the caller's own iterator, stay, too.
    """
    if not isinstance(error, InternalError) and not _log.isEnabledFor(logging.DEBUG):
        error.__traceback__ = None
        if isinstance(error.__cause__, Failure):
            error.__cause__ = None
    return error


def short_tracebacks(cls: C) -> C:
    """Makes the errors of a class's public coroutines begin at these."""
    for name, method in list(vars(cls).items()):
        if iscoroutinefunction(method) and not name.startswith("_"):
            setattr(cls, name, _short(method))
    return cls


def _short(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except LanceNamespaceError as e:
            raise without_inner_calls(e) from e.__cause__

    return call
