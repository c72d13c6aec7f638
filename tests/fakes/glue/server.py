"""The fake Glue server itself, which runs in a separate process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..faults import Answer, Received, When
from ..http import FakeServer
from .calls import GlueCall, call_of, is_glue, is_lake_formation, operation_of, refusal
from .lake_formation import LakeFormation
from .moto import ACCOUNT, HTML_ERROR, CatalogMoto, StockMoto
from .quirks import GlueQuirks
from .scopes import CatalogScope, root_of
from .sessions import Sessions
from .throttle import Occasion, OperationDelay, OperationFault, OperationHold, Refusal, format_message

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
"""The permanent key of the account's user; Lake Formation accepts no other."""


class GlueServer(FakeServer):
    """AWS Glue, Lake Formation and STS on one port: moto, with faults in front of it.

    One process can have one server.
    """

    def __init__(self, quirks: GlueQuirks, region: str) -> None:
        super().__init__()
        self._moto = StockMoto() if quirks.stock else CatalogMoto(quirks)
        self._region = region
        self._sessions = Sessions(lenient=quirks.stock)
        self._refusals: list[Refusal] = []
        self._held: list[OperationHold] = []
        self._lake = self._new_lake()

    def handle(self, request: Received) -> Answer:
        refused = self._refused(request)
        if refused is not None:
            return refused
        if is_lake_formation(request):
            with self._lock:
                return self._lake.answer(request, {KEY: (SECRET, None), **self._sessions.keys})
        answer = self._moto.answer(request)
        if not is_glue(request):
            self._sessions.note()
        return answer

    def operations(self) -> list[str]:
        """Returns the operations in the order of their calls."""
        return [operation_of(request) for request in self.requests]

    def received(self) -> list[GlueCall]:
        """Returns the calls in their order."""
        return [call_of(request) for request in self.requests]

    def measure(self, what: str) -> float:
        """Returns a figure: `connections`, `most_in_flight` or `cpu_seconds`."""
        return time.process_time() if what == "cpu_seconds" else getattr(self, what)

    def heal(self) -> None:
        super().heal()
        with self._lock:
            self._refusals.clear()

    def reset(self) -> None:
        """Clears content, calls, faults and credentials; quirks stay."""
        self.heal()
        with self._lock:
            self._moto.reset()
            self._sessions.clear()
            self._lake = self._new_lake()
        self.clear()

    def lake(self, method: str, *arguments: Any) -> None:
        """Calls a method of Lake Formation."""
        with self._lock:
            getattr(self._lake, method)(*arguments)

    def _new_lake(self) -> LakeFormation:
        return LakeFormation(self._region, lambda account: root_of(account, self._region))

    def switch(self, changes: Mapping[str, Any]) -> None:
        """Changes quirks."""
        with self._lock:
            moto = self._extended()
            moto.quirks = replace(moto.quirks, **changes)

    def refuse(self, refusal: Refusal) -> None:
        """Answers with an error of AWS instead of performing the operation."""
        with self._lock:
            self._refusals.append(refusal)

    def break_off(self, occasion: Occasion, when: When) -> None:
        """Resets the connection before or after the operation."""
        self._add(OperationFault(occasion, when, None))

    def answer_html(self, occasion: Occasion, status: int) -> None:
        """Answers with an HTML page instead of performing the operation."""
        self._add(OperationFault(occasion, "before", replace(HTML_ERROR, status=status)))

    def slow_down(self, occasion: Occasion, seconds: float) -> None:
        """Delays calls before they are performed."""
        with self._lock:
            self._delays.append(OperationDelay(occasion, seconds))

    def hold_back(self, occasion: Occasion) -> int:
        """Makes calls wait until `let_go`; returns the number of the hold."""
        hold = OperationHold(occasion)
        with self._lock:
            self._holds.append(hold)
            self._held.append(hold)
            return len(self._held) - 1

    def held_back(self, number: int) -> int:
        """Returns the number of calls that wait at a hold."""
        return self._held[number].waiting

    def let_go(self, number: int) -> None:
        """Ends a hold."""
        hold = self._held[number]
        with self._lock:
            if hold in self._holds:
                self._holds.remove(hold)
        hold.release()

    def issued(self) -> Sequence[str]:
        """Returns the access key ids from AssumeRole, oldest first."""
        with self._lock:
            return self._sessions.issued

    def expire(self, access_key_id: str | None) -> None:
        """Makes temporary credentials invalid: these, or all so far."""
        with self._lock:
            self._sessions.expire(access_key_id)

    def add_catalog(self, path: str, catalog_input: Mapping[str, Any]) -> str:
        """Adds a catalog, with its missing parents; returns its id."""
        with self._lock:
            scope, names = self._root(path)
            for name in names[:-1]:
                scope = scope.children.get(name.lower()) or scope.create_child(name, {})
            return scope.create_child(names[-1], catalog_input).catalog_id

    def add_database(self, path: str, name: str, database_input: Mapping[str, Any]) -> None:
        """Adds a database to a catalog."""
        with self._lock:
            self._scope(path).create_database(name, {**database_input, "Name": name})

    def add_tables(self, path: str, database: str, inputs: Sequence[Mapping[str, Any]]) -> None:
        """Adds tables to a database."""
        with self._lock:
            scope = self._scope(path)
            for table_input in inputs:
                scope.create_table(database, table_input["Name"], dict(table_input))

    def table(self, path: str, database: str, name: str) -> Mapping[str, Any]:
        """Returns a table as it is stored."""
        with self._lock:
            return self._scope(path).get_table(database, name).as_dict()

    def _scope(self, path: str) -> CatalogScope:
        scope, names = self._root(path)
        return scope.below(names)

    def _root(self, path: str) -> tuple[CatalogScope, Sequence[str]]:
        """Returns the root catalog of a path, and the names below it; `account:a/b` belongs to another account."""
        self._extended()
        account, colon, names = path.rpartition(":")
        root = root_of(account or ACCOUNT, self._region)
        root.shared = root.shared or bool(colon)
        return root, names.split("/") if names else []

    def _extended(self) -> CatalogMoto:
        if not isinstance(self._moto, CatalogMoto):
            raise ValueError("stock moto knows neither catalogs nor quirks: plant what it holds by its own API")
        return self._moto

    def _refused(self, request: Received) -> Answer | None:
        service = "glue" if is_glue(request) else "lakeformation" if is_lake_formation(request) else "sts"
        action = f"{service}:{operation_of(request)}"
        result = next((each for each in self._refusals if each.occasion.takes(request)), None)
        if result is not None:
            message = result.message or format_message(result.code, action)
            return refusal(request, result.code, message, result.status).with_headers(result.headers)
        code = self._sessions.fault(request)
        return refusal(request, code, format_message(code, action)) if code else None
