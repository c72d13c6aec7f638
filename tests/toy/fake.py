"""The fake of a Shelf."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.faults import Answer, Received
from tests.fakes.http import FakeServer

Id = tuple[str, ...]


class FakeShelf(FakeServer):
    """A Shelf in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._namespaces: dict[Id, Any] = {(): {}}
        self._tables: dict[Id, Any] = {}

    def handle(self, request: Received) -> Answer:
        parts = urlsplit(request.path)
        id: Id = tuple(json.loads(parse_qs(parts.query)["id"][0]))
        code = self._problem(request.method, parts.path, id)
        return Answer.of({"code": code}, 418) if code else Answer.of(self._carry_out(request, parts.path, id))

    def _problem(self, method: str, path: str, id: Id) -> str | None:
        objects = self._tables if path == "/table" else self._namespaces
        if method == "POST":
            return "EXISTS" if id in objects else None if id[:-1] in self._namespaces else "NO_NAMESPACE"
        if id not in objects:
            return "NO_TABLE" if path == "/table" else "NO_NAMESPACE"
        is_used = any(id == other[:-1] for other in (*self._namespaces, *self._tables) if other)
        return "NOT_EMPTY" if method == "DELETE" and path == "/namespace" and is_used else None

    def _carry_out(self, request: Received, path: str, id: Id) -> Any:
        if path in ("/namespaces", "/tables"):
            objects = self._tables if path == "/tables" else self._namespaces
            return sorted(other[-1] for other in objects if other and other[:-1] == id)
        objects = self._tables if path == "/table" else self._namespaces
        if request.method == "DELETE":
            return objects.pop(id)
        return objects.setdefault(id, request.json)
