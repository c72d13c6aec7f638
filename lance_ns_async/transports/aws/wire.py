"""How botocore's requests are sent: each to the server that it is for, and nowhere else; and how answers are read."""

from __future__ import annotations

from typing import Any

from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import HTTPClientError

from lance_ns_async.transports.http.reuse import Trust
from lance_ns_async.transports.http.wire import ResponseTooLargeError


class DirectSession(AIOHTTPSession):  # type: ignore[misc]  # the package ships no types
    """aiobotocore's own session, which would follow redirects, and hand the session token to wherever they point.

    Raises ResponseTooLargeError for an answer of over `max_bytes`. Keeps no cookie.
    """

    def __init__(self, *, max_bytes: int, trust: Trust, **how: Any) -> None:
        super().__init__(**how)
        self._max_bytes = max_bytes
        self._trust = trust

    async def send(self, request: Any) -> Any:
        """The answer, read to its end."""
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
    """What of a session is used, with redirects for answers."""

    def __init__(self, session: Any, max_bytes: int) -> None:
        self._session = session
        self._max_bytes = max_bytes

    async def request(self, method: str, **how: Any) -> _Answer:
        self._session.cookie_jar.clear()
        return _Answer(await self._session.request(method, allow_redirects=False, **how), self._max_bytes)


class _Answer:
    """What of an answer is used, with a bound."""

    def __init__(self, answer: Any, max_bytes: int) -> None:
        self.url, self.status, self.raw_headers = answer.url, answer.status, answer.raw_headers
        self._answer = answer
        self._max_bytes = max_bytes

    async def read(self) -> bytes:
        """The whole body."""
        body = bytearray()
        size = self._answer.content_length or 0
        # However that ends: a connection with an answer that was not read to its end is not kept.
        async with self._answer:
            if size <= self._max_bytes:
                async for chunk in self._answer.content.iter_any():
                    body += chunk
                    if (size := len(body)) > self._max_bytes:
                        break
        if size > self._max_bytes:
            raise ResponseTooLargeError(f"the answer is longer than {self._max_bytes} bytes (max_response_bytes)")
        return bytes(body)
