"""moto without a socket of its own: in its original form, and with Glue's catalogs."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from moto.core.base_backend import BackendDict
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.request import Request
from moto.glue.models import glue_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.exceptions import InternalServerError

from ..faults import Answer, Received
from .calls import is_glue, operation_of
from .handlers import CatalogGlueResponse
from .quirks import GlueQuirks
from .scopes import CatalogScope

ACCOUNT = DEFAULT_ACCOUNT_ID
HTML_ERROR = Answer.of(InternalServerError().get_body(), 500)
"""moto's response to an unknown operation."""


class ServedRequest(Request):
    """A request that came through a server, which itself adds the date to responses."""

    from_wsgi_server = True


class StockMoto:
    """moto in its original form, by its own WSGI application. Its state belongs to the process."""

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)

    def answer(self, request: Received) -> Answer:
        """Performs the request, and returns the response."""
        response: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], _: object = None) -> None:
            response.update(status=int(status.split()[0]), headers=dict(headers))

        try:
            body = b"".join(self._application(_environ(request), start))
        except NotImplementedError:
            return HTML_ERROR
        return Answer(response["status"], body, response["headers"])

    def reset(self) -> None:
        """Empties all catalogs, and forgets assumed roles."""
        BackendDict.reset()


class CatalogMoto(StockMoto):
    """moto whose Glue has catalogs; calls of Glue bypass Flask, which halves their cost."""

    def __init__(self, quirks: GlueQuirks) -> None:
        super().__init__()
        self.quirks = quirks
        glue_backends.clear()
        glue_backends.backend = CatalogScope

    @property
    def quirks(self) -> GlueQuirks:
        """The differences from AWS."""
        return CatalogGlueResponse.quirks

    @quirks.setter
    def quirks(self, quirks: GlueQuirks) -> None:
        CatalogGlueResponse.quirks = quirks

    def answer(self, request: Received) -> Answer:
        if not is_glue(request):
            return super().answer(self._shortened(request))
        try:
            status, headers, body = CatalogGlueResponse.dispatch(ServedRequest(_environ(request)))
        except NotImplementedError:
            return HTML_ERROR
        return Answer(status, body.encode() if isinstance(body, str) else body, headers)

    def _shortened(self, request: Received) -> Received:
        """Returns the same request, with the session length of the quirks."""
        seconds = self.quirks.session_seconds
        if seconds is None or operation_of(request) != "AssumeRole":
            return request
        parameters = dict(parse_qsl(request.body.decode()))
        return replace(request, body=urlencode({**parameters, "DurationSeconds": seconds}).encode())


def _environ(request: Received) -> dict[str, Any]:
    path, _, query = request.path.partition("?")
    headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
    return {
        **headers,
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote(path),
        "QUERY_STRING": query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(request.body),
        "wsgi.errors": sys.stderr,
    }
