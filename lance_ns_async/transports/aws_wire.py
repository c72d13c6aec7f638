"""How botocore's requests are sent: each to the server that it is for, and nowhere else."""

from __future__ import annotations

from typing import Any

from aiobotocore.httpsession import AIOHTTPSession


class DirectSession(AIOHTTPSession):  # type: ignore[misc]  # the package ships no types
    """aiobotocore's own session, which would follow redirects, and hand the session token to wherever they point."""

    async def _get_session(self, proxy_url: str | None) -> _Direct:
        return _Direct(await super()._get_session(proxy_url))


class _Direct:
    """What of a session is used, with redirects for answers."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def request(self, method: str, **how: Any) -> Any:
        return self._session.request(method, allow_redirects=False, **how)
