"""aiobotocore's clients of the fake Glue server, for tests."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.exceptions import ClientError

from . import FakeGlue

_SESSION = AioSession()
# The server must get invalid parameters, and each call once.
_CONFIG = AioConfig(retries={"total_max_attempts": 1}, parameter_validation=False)


class Clients:
    """Creates clients, which are closed with the exit stack."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __call__(self, server: FakeGlue, service: str = "glue", **credentials: str) -> Any:
        """Returns a client of `glue` or `sts`, with the server's own credentials or others."""
        own = {
            "aws_access_key_id": server.properties["access_key_id"],
            "aws_secret_access_key": server.properties["secret_access_key"],
        }
        client = _SESSION.create_client(
            service, endpoint_url=server.endpoint, region_name=server.region, config=_CONFIG, **{**own, **credentials}
        )
        return await self._stack.enter_async_context(client)


async def code(call: Awaitable[Any]) -> str:
    """Returns the error code of a failing call; the status if the response has no code."""
    with pytest.raises(ClientError) as failed:
        await call
    return str(failed.value.response["Error"]["Code"])
