"""HTTP session for botocore without redirects and cookies, and with a limit on the size of responses."""

from __future__ import annotations

from typing import Any

from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import HTTPClientError

from lance_ns_async.transports.http.reuse import Trust
from lance_ns_async.transports.http.wire import ResponseTooLargeError


class DirectSession(AIOHTTPSession):  # type: ignore[misc]  # the package ships no types
    """aiobotocore's session without cookies and redirects; a redirect would send the session token to its target."""

    def __init__(self, *, max_bytes: int, trust: Trust, **how: Any) -> None:
        super().__init__(**how)
        self._max_bytes = max_bytes
        self._trust = trust

    async def send(self, request: Any) -> Any:
        """Sends a request and returns the response, which is read to its end."""
        try:
            return await super().send(request)
        except HTTPClientError as e:
            if isinstance(cause := e.kwargs["error"], ResponseTooLargeError):
                raise cause from None
            raise

    async def _get_session(self, proxy_url: str | None) -> _Direct:
        session = await super()._get_session(proxy_url)
        self._trust.watch(session.connector)
        return _Direct(session, self._max_bytes)


class _Direct:
    """The part of a session that is used; a redirect is returned as a response, and not followed."""

    def __init__(self, session: Any, max_bytes: int) -> None:
        self._session = session
        self._max_bytes = max_bytes

    async def request(self, method: str, **how: Any) -> _DirectResponse:
        self._session.cookie_jar.clear()
        return _DirectResponse(await self._session.request(method, allow_redirects=False, **how), self._max_bytes)


class _DirectResponse:
    """The part of a response that is used, with a size limit."""

    def __init__(self, answer: Any, max_bytes: int) -> None:
        self.url, self.status, self.raw_headers = answer.url, answer.status, answer.raw_headers
        self._answer = answer
        self._max_bytes = max_bytes

    async def read(self) -> bytes:
        """Returns the whole body."""
        body = bytearray()
        size = self._answer.content_length or 0
        # The context closes the connection if the response is not read to its end.
        async with self._answer:
            if size <= self._max_bytes:
                async for chunk in self._answer.content.iter_any():
                    body += chunk
                    if (size := len(body)) > self._max_bytes:
                        break
        if size > self._max_bytes:
            raise ResponseTooLargeError(f"the answer is longer than {self._max_bytes} bytes (max_response_bytes)")
        return bytes(body)
