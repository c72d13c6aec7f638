"""The fake Glue server itself, and the process from which servers are forked. moto has one state per process, so each
server has a process. To load moto takes a second, a fork milliseconds: `python -m tests.fakes.glue.server` is the
parent of all; its standard input is a socket, through which it gets the pipes to new servers."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from moto.core.base_backend import BackendDict
from moto.core.exceptions import JsonRESTError
from moto.core.utils import utcnow
from moto.glue.models import glue_backends
from moto.sts.models import AssumedRole, sts_backends

from tests.fakes.glue import calls
from tests.fakes.glue.moto import ACCOUNT, HTML_ERROR, CatalogMoto, StockMoto
from tests.fakes.glue.scopes import CatalogScope, root_of
from tests.fakes.http import FakeServer
from tests.fakes.server import Answer, Received, When
from tests.fakes.sigv4 import Signatures

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
"""The permanent key of the account's user; Lake Formation accepts no other."""


class GlueServer(FakeServer):
    """AWS Glue, Lake Formation and STS on one port: moto, with faults in front of it. One process can have one
    server."""

    def __init__(self, quirks: calls.GlueQuirks, region: str) -> None:
        super().__init__()
        self._moto = StockMoto() if quirks.stock else CatalogMoto(quirks)
        self._region = region
        self._sessions = Sessions(lenient=quirks.stock)
        self._refusals: list[calls.Refusal] = []
        self._held: list[calls.OperationHold] = []
        self._lake = self._new_lake()

    def handle(self, request: Received) -> Answer:
        refused = self._refused(request)
        if refused is not None:
            return refused
        if calls.is_lake_formation(request):
            with self._lock:
                return self._lake.answer(request, {KEY: (SECRET, None), **self._sessions.keys})
        answer = self._moto.answer(request)
        if not calls.is_glue(request):
            self._sessions.note()
        return answer

    def operations(self) -> list[str]:
        return [calls.operation_of(request) for request in self.requests]

    def received(self) -> list[calls.GlueCall]:
        return [calls.call_of(request) for request in self.requests]

    def figure(self, name: str) -> int:
        return int(getattr(self, name))

    def heal(self) -> None:
        super().heal()
        with self._lock:
            self._refusals.clear()

    def reset(self) -> None:
        self.heal()
        with self._lock:
            self._moto.reset()
            self._sessions.clear()
            self._lake = self._new_lake()
        self.clear()

    def lake(self, method: str, *arguments: Any) -> None:
        with self._lock:
            getattr(self._lake, method)(*arguments)

    def _new_lake(self) -> LakeFormation:
        return LakeFormation(self._region, lambda account: root_of(account, self._region))

    def switch(self, changes: Mapping[str, Any]) -> None:
        with self._lock:
            moto = self._extended()
            moto.quirks = replace(moto.quirks, **changes)

    def refuse(self, refusal: calls.Refusal) -> None:
        with self._lock:
            self._refusals.append(refusal)

    def break_off(self, occasion: calls.Occasion, when: When) -> None:
        self._add(calls.OperationFault(occasion, when, None))

    def answer_html(self, occasion: calls.Occasion, status: int) -> None:
        self._add(calls.OperationFault(occasion, "before", replace(HTML_ERROR, status=status)))

    def slow_down(self, occasion: calls.Occasion, seconds: float) -> None:
        with self._lock:
            self._delays.append(calls.OperationDelay(occasion, seconds))

    def hold_back(self, occasion: calls.Occasion) -> int:
        """Makes calls wait until `let_go`; returns the number of the hold."""
        hold = calls.OperationHold(occasion)
        with self._lock:
            self._holds.append(hold)
            self._held.append(hold)
            return len(self._held) - 1

    def held_back(self, number: int) -> int:
        return self._held[number].waiting

    def let_go(self, number: int) -> None:
        hold = self._held[number]
        with self._lock:
            if hold in self._holds:
                self._holds.remove(hold)
        hold.release()

    def issued(self) -> Sequence[str]:
        with self._lock:
            return self._sessions.issued

    def expire(self, access_key_id: str | None) -> None:
        with self._lock:
            self._sessions.expire(access_key_id)

    def add_catalog(self, path: str, catalog_input: Mapping[str, Any]) -> str:
        with self._lock:
            scope, names = self._root(path)
            for name in names[:-1]:
                scope = scope.children.get(name.lower()) or scope.create_child(name, {})
            return scope.create_child(names[-1], catalog_input).catalog_id

    def add_database(self, path: str, name: str, database_input: Mapping[str, Any]) -> None:
        with self._lock:
            self._scope(path).create_database(name, {**database_input, "Name": name})

    def add_tables(self, path: str, database: str, inputs: Sequence[Mapping[str, Any]]) -> None:
        with self._lock:
            scope = self._scope(path)
            for table_input in inputs:
                scope.create_table(database, table_input["Name"], dict(table_input))

    def table(self, path: str, database: str, name: str) -> Mapping[str, Any]:
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
            raise ValueError("stock moto knows neither catalogs nor quirks: create what it holds by its own API")
        return self._moto

    def _refused(self, request: Received) -> Answer | None:
        service = "glue" if calls.is_glue(request) else "lakeformation" if calls.is_lake_formation(request) else "sts"
        action = f"{service}:{calls.operation_of(request)}"
        result = next((each for each in self._refusals if each.occasion.takes(request)), None)
        if result is not None:
            message = result.message or calls.format_message(result.code, action)
            return calls.refusal(request, result.code, message, result.status).with_headers(result.headers)
        code = self._sessions.fault(request)
        return calls.refusal(request, code, calls.format_message(code, action)) if code else None


_ARN = re.compile(r"arn:aws:glue:([a-z0-9-]+):([0-9]{12}):table/((?:[^/]+/)*)([^/]+)/([^/]+)")
_PERMISSIONS = {"ALL", "SELECT", "ALTER", "DROP", "DELETE", "INSERT", "DESCRIBE"}
_TYPES = {"COLUMN_PERMISSION", "CELL_FILTER_PERMISSION", "NESTED_PERMISSION", "NESTED_CELL_PERMISSION"}
_DENIED = "Insufficient Lake Formation permission(s) on {}"


class LakeFormation:
    """Grants of tables, and vended credentials."""

    def __init__(self, region: str, root: Callable[[str], CatalogScope]) -> None:
        """Creates it without restrictions. `root` returns the root catalog of an account."""
        self._root = root
        self._region = region
        self._grants: dict[str, frozenset[str]] = {}
        self._filtered: set[str] = set()
        self._lifetime: float | None = None
        self._count = 0

    def grant(self, table: str, permissions: frozenset[str]) -> None:
        self._grants[table] = permissions

    def filter_cells(self, table: str) -> None:
        self._filtered.add(table)

    def limit(self, seconds: float | None) -> None:
        self._lifetime = seconds

    def answer(self, request: Received, keys: Mapping[str, tuple[str, str | None]]) -> Answer:
        """Returns the response to a call. `keys` has the secret and the session token of each key that may sign."""
        signatures = Signatures("lakeformation", self._region, dict(keys), must_sign=frozenset({"host", "x-amz-date"}))
        if (refused := signatures.refusal(request)) is not None:
            return refused
        parameters = request.json
        if (problem := _problem(parameters)) is not None:
            return calls.refusal(request, "InvalidInputException", problem)
        match = _ARN.fullmatch(parameters["TableArn"])
        if match is None or match[1] != self._region:
            return calls.refusal(request, "InvalidInputException", f"Invalid table ARN: {parameters['TableArn']}")
        _, account, catalogs, database, name = match.groups()
        try:
            table = self._root(account).below(catalogs.split("/")[:-1]).get_table(database, name).as_dict()
        except JsonRESTError:
            return calls.refusal(request, "EntityNotFoundException", "Table not found.")
        return self._decide(request, parameters, f"{catalogs}{database}/{name}", table["StorageDescriptor"]["Location"])

    def _decide(self, request: Received, parameters: Mapping[str, Any], table: str, location: str) -> Answer:
        granted = self._grants.get(table, frozenset({"ALL"}))
        if "ALL" not in granted and not set(parameters.get("Permissions", ())) <= granted:
            return calls.refusal(request, "AccessDeniedException", _DENIED.format(table))
        if table in self._filtered and "CELL_FILTER_PERMISSION" not in parameters.get("SupportedPermissionTypes", ()):
            message = "Cell level permissions exist on the table, which the caller does not support."
            return calls.refusal(request, "PermissionTypeMismatchException", message)
        self._count += 1
        lifetime = parameters.get("DurationSeconds", 3600) if self._lifetime is None else self._lifetime
        body = {
            "AccessKeyId": f"ASIALAKE{self._count:04}",
            "SecretAccessKey": "lake-secret",
            "SessionToken": f"lake-token-{table}",
            "Expiration": time.time() + lifetime,
            "VendedS3Path": [location],
        }
        headers = {"Content-Type": "application/json", "x-amzn-RequestId": calls.REQUEST_ID}
        return Answer(200, json.dumps(body).encode(), headers)


def _problem(parameters: Any) -> str | None:
    """Returns what AWS would reject in the arguments; None if they are valid."""
    if not isinstance(parameters, dict) or not isinstance(parameters.get("TableArn"), str):
        return "TableArn is required."
    if not set(parameters.get("Permissions", ())) <= _PERMISSIONS:
        return "Permissions failed to satisfy constraint."
    types = parameters.get("SupportedPermissionTypes", ["COLUMN_PERMISSION"])
    if not types or not set(types) <= _TYPES:
        return "SupportedPermissionTypes failed to satisfy constraint."
    if not 900 <= parameters.get("DurationSeconds", 3600) <= 21600:
        return "DurationSeconds must be between 900 and 21600."
    return None


class Sessions:
    """The known temporary credentials. Permanent ones are not recorded: all are accepted, until they are expired."""

    def __init__(self, *, lenient: bool) -> None:
        """Creates it as lenient as moto: only expired credentials are refused."""
        self._lenient = lenient
        self._roles: dict[str, AssumedRole] = {}
        self._expired: set[str] = set()

    @property
    def issued(self) -> Sequence[str]:
        """The access key ids of all credentials, oldest first."""
        return list(self._roles)

    @property
    def keys(self) -> Mapping[str, tuple[str, str | None]]:
        return {key: (role.secret_access_key, role.session_token) for key, role in self._roles.items()}

    def note(self) -> None:
        """Records the credentials that moto has issued since the last call."""
        for account in sts_backends.values():
            for backend in account.values():
                for role in backend.assumed_roles:
                    self._roles.setdefault(role.access_key_id, role)

    def expire(self, access_key_id: str | None) -> None:
        self._expired.update(self._roles if access_key_id is None else [access_key_id])

    def clear(self) -> None:
        self._roles.clear()
        self._expired.clear()

    def fault(self, request: Received) -> str | None:
        """Returns the error code for the credentials of a request; None if they are valid."""
        key, _ = calls.signer_of(request)
        if key in self._expired:
            return "ExpiredTokenException"
        role = self._roles.get(key)
        if role is None or self._lenient:
            return None
        if request.headers.get("X-Amz-Security-Token") != role.session_token:
            return "UnrecognizedClientException"
        return "ExpiredTokenException" if role.expiration <= utcnow() else None


def main() -> None:
    """Forks a server for each pipe, until standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in [name for name in os.environ if name.startswith(("AWS_", "MOTO_"))]:
        del os.environ[name]
    # The names of regions are read from a large file of botocore: once here, and not by each server.
    _ = glue_backends[ACCOUNT]["us-east-1"]
    BackendDict.reset()
    # Memory that the servers share stays shared during their garbage collections.
    gc.freeze()
    pipe = _forked()
    if pipe is not None:
        with pipe:
            serve(pipe)


def serve(pipe: Connection) -> None:
    """Runs a server until the other end of the pipe is closed. It receives its quirks and region, and sends its URL.
    Then it receives names of methods with arguments, and sends whether the call succeeded, and the result."""
    with GlueServer(*pipe.recv()) as server:
        pipe.send((True, server.url))
        while True:
            try:
                name, arguments = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send((True, getattr(server, name)(*arguments)))
            except (JsonRESTError, ValueError) as e:
                pipe.send((False, getattr(e, "message", str(e))))


def _forked() -> Connection | None:
    """Returns once in each new process, with its pipe, and finally in the parent with None."""
    with socket.socket(fileno=os.dup(0)) as orders:
        while True:
            _, descriptors, _, _ = socket.recv_fds(orders, 1, 1)
            if not descriptors:
                return None
            if os.fork() == 0:
                return Connection(descriptors[0])
            os.close(descriptors[0])


if __name__ == "__main__":
    main()
