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
    level DEBUG. A cause that the caller's code has raised, such as its iterator of rows, stays, too.
    """
    if not isinstance(error, InternalError) and not _log.isEnabledFor(logging.DEBUG):
        error.__traceback__ = None
        if isinstance(error.__cause__, Failure) or _is_inner(error.__cause__):
            error.__cause__ = None
    return error


def _is_inner(cause: BaseException | None) -> bool:
    """Returns whether this package or pylance has raised an error."""
    tb = None if cause is None else cause.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    package = "" if tb is None else str(tb.tb_frame.f_globals.get("__name__")).partition(".")[0]
    return package in ("lance", "lance_ns_async")


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
