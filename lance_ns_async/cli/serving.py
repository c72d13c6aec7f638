"""The command `serve`: a gateway that serves a catalog until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import ssl
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lance_ns_async.cli.errors import Code, Misuse, say
from lance_ns_async.cli.exposure import warn_if_exposed

if TYPE_CHECKING:
    from lance_ns_async import AsyncNamespace
    from lance_ns_async.cli.catalog import Catalog
    from lance_ns_async.gateway import Gateway

TOKEN = "LANCE_NS_TOKEN"
"""Environment variable with the token; a command line would be visible to others on this machine."""


def serve(
    catalog: Catalog,
    *,
    host: str,
    port: int,
    hosts: Sequence[str],
    delimiter: str,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    max_bytes: int,
    max_answer_bytes: int,
    max_held_bytes: int | None,
    functions: Sequence[str],
    allow_locations: Sequence[str],
    max_connections: int,
    grace: float,
) -> None:
    """Serves a catalog until SIGINT or SIGTERM; requests in progress then have `grace` seconds to finish.

    Raises:
        typer.Exit: A request was still in progress after the grace period.
        Misuse: The token or the certificate cannot be read, or an address of another machine needs a token.
    """
    import typer

    from lance_ns_async.gateway import serving
    from lance_ns_async.gateway.access import is_loopback

    token = _token(token_file)
    tls = _tls(tls_cert, tls_key)
    if not is_loopback(host):
        if token is None:
            raise Misuse(f"--host {host}: reachable from other machines; set a token with --token-file or {TOKEN}")
        if tls is None:
            say(f"--host {host} without --tls-cert: token, credentials and rows are not encrypted on the network")
    server = partial(
        serving,
        host=host,
        port=port,
        token=token,
        delimiter=delimiter,
        tls=tls,
        hosts=hosts,
        max_bytes=max_bytes,
        max_answer_bytes=max_answer_bytes,
        max_held_bytes=max_held_bytes,
        functions=functions,
        allow_locations=allow_locations,
        max_connections=max_connections,
        grace=grace,
    )
    if asyncio.run(_serve(catalog, server, grace, show_token=token is None)):
        raise typer.Exit(Code.FAILURE)


async def _serve(
    catalog: Catalog,
    server: Callable[[AsyncNamespace], AbstractAsyncContextManager[Gateway]],
    grace: float,
    *,
    show_token: bool,
) -> int:
    """Serves until a signal arrives; returns the number of requests that were cut off."""
    import anyio

    from lance_ns_async.cli.shutdown import Deadline
    from lance_ns_async.storage import threads

    def under_way() -> str:
        load = threads.load()
        count = load.running + load.given_up
        return f"{count} operations on data" if count else "work on a storage"

    async with catalog.open_async() as namespace, server(namespace) as gateway:
        # Objects from imports live as long as the process; a full collection that scans them blocks the event loop.
        gc.freeze()
        # The receiver ends before the shutdown, so that a second signal ends the requests in progress.
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            print(gateway.url, flush=True)
            if show_token:
                for name, value in gateway.headers.items():
                    print(f"{name}: {value}", flush=True)
            async for _ in signals:
                deadline = Deadline(grace, under_way)
                break
    if cut_off := gateway.cut_off:
        deadline.report(f"{cut_off} request{'s' if cut_off > 1 else ''}")
    return cut_off


def _token(file: Path | None) -> str | None:
    if file is None:
        if (token := os.environ.get(TOKEN)) == "":
            raise Misuse(f"{TOKEN}: must not be empty; unset it to use a random token")
        return token
    try:
        token = file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Misuse(f"--token-file {file}: {reason}") from error
    if not token:
        raise Misuse(f"--token-file {file}: the file is empty")
    warn_if_exposed(file.expanduser(), "the gateway's token")
    return token


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None:
        if key is not None:
            raise Misuse("--tls-key: requires --tls-cert")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert.expanduser(), key and key.expanduser())
    except OSError as error:
        raise Misuse(f"--tls-cert {cert}: {error.strerror or error}") from error
    if key is not None:
        # Certificates are public, but the file of the certificate may also contain the key.
        warn_if_exposed(key.expanduser(), "the private key of --tls-cert")
    return context
