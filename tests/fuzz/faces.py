"""A namespace with either interface, called in the same way."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Literal

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace, Namespace
from tests.contract.site import Site

Face = Literal["async", "sync"]


class Asked:
    """One interface of a namespace; each operation returns its response or its error."""

    def __init__(self, site: Site, face: Face) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._face: Any
        if face == "sync":
            self._face = Namespace.connect(site.impl, site.properties)
        else:
            connected = AsyncNamespace.connect(site.impl, site.properties)
            self._face = self._runner.run(self._stack.enter_async_context(connected))

    def __call__(self, operation: str, *arguments: Any) -> Any:
        try:
            method = getattr(self._face, operation)
            return method(*arguments) if isinstance(self._face, Namespace) else self._runner.run(method(*arguments))
        except LanceNamespaceError as e:
            return e

    def close(self) -> None:
        if isinstance(self._face, Namespace):
            self._face.close()
        self._runner.run(self._stack.aclose())
        self._runner.close()
