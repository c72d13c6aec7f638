"""A client that notes its calls, so that a report shows the requests that lead to a wrong result."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.conformance.report import Call

LIMIT = 60.0
"""Seconds that a call may take, so that an implementation that hangs does not stop the run."""

_LONGEST = 300
"""Characters of a response in a report."""


class Recorder:
    """Passes calls on to a client, and notes each."""

    def __init__(self, client: LanceNamespace, calls: list[Call]) -> None:
        """Creates a recorder.

        Args:
            client: The client.
            calls: Receives the calls.
        """
        self._client = client
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(request: Any, *data: bytes) -> Any:
            fields = dict(request) if isinstance(request, dict) else request.model_dump(exclude_none=True)
            try:
                answer = _within(LIMIT, name, lambda: method(request, *data))
            except BaseException as e:  # an interrupted call, too, may have created something that must be removed
                code = f" (code {int(e.code)})" if isinstance(e, LanceNamespaceError) else ""
                self._calls.append(Call(name, fields, f"{type(e).__name__}{code}: {e}"[:_LONGEST]))
                raise
            self._calls.append(Call(name, fields, _shown(answer)))
            return answer

        return call


def _within(seconds: float, operation: str, call: Callable[[], Any]) -> Any:
    """Returns the result of a call in another thread; raises its error, or `TimeoutError` if it takes too long."""
    outcome: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put((call(), None))
        except BaseException as e:  # raised again by the thread that waits
            outcome.put((None, e))

    Thread(target=run, daemon=True).start()
    try:
        answer, error = outcome.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"{operation} did not end within {seconds:g} s") from None
    if error is not None:
        raise error
    return answer


def _shown(answer: Any) -> str:
    if not hasattr(answer, "model_dump"):
        return repr(answer)[:_LONGEST]
    # Storage options may contain credentials.
    fields = answer.model_dump(exclude_none=True, exclude={"storage_options", "data"})
    return f"{type(answer).__name__} {fields}"[:_LONGEST]
