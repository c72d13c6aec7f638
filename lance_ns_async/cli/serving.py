"""The command `serve`, a gateway that serves a catalog until a signal ends it, and `token`: who may use a gateway."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from lance_ns_async.cli import output
from lance_ns_async.cli.catalog import Catalog, choose, without_catalog
from lance_ns_async.cli.errors import Code, Misuse, hint, say, tell
from lance_ns_async.cli.options import CommonOptions, OutputFormat, Repeated, exit_after
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.parsing import parse_pair, read_text
from lance_ns_async.cli.secrets import edit, warn_if_exposed
from lance_ns_async.errors import suggest
from lance_ns_async.rendering import counted

if TYPE_CHECKING:
    import ssl
    from contextlib import AbstractAsyncContextManager

    from lance_ns_async.gateway import Gateway
    from lance_ns_async.gateway.request_log import AuditLog


_SWITCH_INTERVAL = 0.001  # Seconds for which a thread may use Python before another one gets its turn.

TOKEN = "LANCE_NS_TOKEN"
"""Environment variable with the token; a command line would be visible to others on this machine."""
_CLOSING = 1.0  # Maximum seconds for the shutdown after the grace period of pending work.


def serve(
    on: CommonOptions,
    host: Annotated[
        str, Option(help="Address to listen on; an address that other machines can reach requires a token.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 selects a free one.")] = 2333,
    mount: Annotated[
        Repeated,
        Option(
            metavar="NAME=PROFILE",
            help="Serve the catalog of this profile as the namespace NAME; may be repeated for several catalogs.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Read the token of the owner; by default LANCE_NS_TOKEN, else, without --tokens, a random one that "
            "is printed.",
        ),
    ] = None,
    tokens: Annotated[
        Path | None, Option(metavar="FILE", help="Further clients and their rights: see lance-ns token --help.")
    ] = None,
    oidc_issuer: Annotated[
        str | None,
        Option(metavar="URL", help="Accept tokens of this OpenID Connect issuer, by the rules [[oidc]] of --tokens."),
    ] = None,
    audience: Annotated[
        str | None, Option(metavar="NAME", help="The audience (aud) that tokens of --oidc-issuer must have.")
    ] = None,
    oidc_client_id: Annotated[
        str | None,
        Option(metavar="ID", help="Sign in browsers at --oidc-issuer by this client, whose redirect is /ui/callback."),
    ] = None,
    oidc_client_secret_file: Annotated[
        Path | None, Option(metavar="FILE", help="The secret of --oidc-client-id, if the client is not public.")
    ] = None,
    oidc_scope: Annotated[
        str | None, Option(metavar="SCOPES", help="Scopes that browsers request at the sign-in, beside openid.")
    ] = None,
    public_url: Annotated[
        str | None,
        Option(metavar="URL", help="Address by which browsers know the gateway, behind a proxy that ends TLS."),
    ] = None,
    identity: Annotated[
        Literal["own", "forward", "exchange"],
        Option(
            help="Who asks the catalog: own: the gateway, by its credentials; forward: each caller, by its token of "
            "--oidc-issuer; exchange: each caller, by a token for which the token endpoint exchanges it (RFC 8693)."
        ),
    ] = "own",
    drop_retention: Annotated[
        str | None,
        Option(metavar="TIME", help="Keep the data of dropped tables for this time, e.g. 7d: see lance-ns dropped."),
    ] = None,
    read_only: Annotated[bool, Option("--read-only", help="Refuse all changes.")] = False,
    access_log: Annotated[bool, Option("--access-log", help="Show a line for each request.")] = False,
    audit_log: Annotated[
        Path | None,
        Option(metavar="FILE", help="Append a line of JSON for each request: who, what, which table, result."),
    ] = None,
    audit_failure: Annotated[
        Literal["refuse", "continue"], Option(help="Refuse changes, or go on, while --audit-log cannot be written.")
    ] = "refuse",
    tls_cert: Annotated[
        Path | None, Option(metavar="FILE", help="Serve HTTPS with this certificate chain, in PEM format.")
    ] = None,
    tls_key: Annotated[
        Path | None, Option(metavar="FILE", help="Private key in PEM format, if it is not in the certificate's file.")
    ] = None,
    name: Annotated[
        Repeated, Option(help="Accept this host name from a proxy on this machine; may be repeated.")
    ] = None,
    delimiter: Annotated[str, Option(help="Delimiter of the names of an id in paths.")] = "$",
    max_bytes: Annotated[int, Option(min=1, help="Maximum bytes of rows in a request.")] = 2**30,
    max_answer_bytes: Annotated[int, Option(min=1, help="Maximum bytes of rows in a response.")] = 2**28,
    max_held_bytes: Annotated[
        int | None,
        Option(
            min=1,
            help="Maximum bytes of all requests and responses together; by default 4 times the largest limit of one.",
        ),
    ] = None,
    function: Annotated[Repeated, Option(help="Allow clients to call this SQL function, too; may be repeated.")] = None,
    allow_location: Annotated[
        Repeated,
        Option(metavar="PREFIX", help="Allow clients to register tables below this folder, too; may be repeated."),
    ] = None,
    max_connections: Annotated[int, Option(min=1, help="Maximum connections from one address.")] = 256,
    max_watches: Annotated[int, Option(min=0, help="Maximum number of concurrent watches; 0 refuses them.")] = 100,
    grace: Annotated[float, Option(min=0, help="Seconds that pending requests get at shutdown.")] = 30,
    otel: Annotated[
        bool,
        Option(
            "--otel", help="Record requests and calls with OpenTelemetry, e.g. as set up by opentelemetry-instrument."
        ),
    ] = False,
    ui: Annotated[bool, Option("--ui", help="Serve web pages of the catalog at /ui.")] = False,
) -> None:
    """Serve the catalog as a Lance REST Namespace for lancedb, pylance, Spark's connector and other clients."""
    import asyncio

    from lance_ns_async.gateway import serving
    from lance_ns_async.gateway.wire import is_loopback

    catalogs = _mounts(on, mount) if mount else {"": on.require()}
    if drop_retention is not None:
        catalogs = {name: it.with_property("drop_retention", drop_retention) for name, it in catalogs.items()}
    if identity != "own" and not oidc_issuer:
        raise Misuse(f"--identity {identity}: requires --oidc-issuer URL, whose tokens the callers have")
    token = _token(token_file)
    if oidc_client_secret_file is not None:
        oidc_client_secret_file = oidc_client_secret_file.expanduser()
        warn_if_exposed(oidc_client_secret_file, "the secret of --oidc-client-id")
    tls = _tls(tls_cert, tls_key)
    if not is_loopback(host):
        if token is None and tokens is None:
            raise Misuse(
                f"--host {host}: reachable from other machines; set a token with --token-file or {TOKEN}, or use "
                "--tokens"
            )
        if tls is None:
            say(f"--host {host} without --tls-cert: token, credentials and rows are not encrypted on the network")
        if oidc_client_id and ui and public_url is None:
            hint(
                "--oidc-client-id without --public-url: browsers come back from the issuer to the address that the "
                "gateway sees; behind a proxy that ends TLS, set --public-url https://NAME"
            )
    tracer = None
    if otel:
        from lance_ns_async.telemetry import RequestTracer

        tracer = RequestTracer()
    server = partial(
        serving,
        host=host,
        port=port,
        token=token,
        tokens=tokens and tokens.expanduser(),
        oidc_issuer=oidc_issuer,
        audience=audience,
        oidc_client_id=oidc_client_id,
        oidc_client_secret_file=oidc_client_secret_file,
        oidc_scope=oidc_scope,
        public_url=public_url,
        read_only=read_only,
        delimiter=delimiter,
        tls=tls,
        hosts=name or (),
        max_bytes=max_bytes,
        max_answer_bytes=max_answer_bytes,
        max_held_bytes=max_held_bytes,
        functions=function or (),
        allow_locations=allow_location or (),
        max_connections=max_connections,
        max_watches=max_watches,
        grace=grace,
        ui=ui,
        tracer=tracer,
    )
    with ExitStack() as stack:
        audit = _log_requests(stack, access_log, audit_log, is_required=audit_failure == "refuse")
        server = partial(server, audit_log=audit)
        exit_after(asyncio.run(_serve(catalogs, identity, server, grace, show_token=token is None, otel=otel)))


async def _serve(
    catalogs: Mapping[str, Catalog],
    identity: Literal["own", "forward", "exchange"],
    server: Callable[[object], AbstractAsyncContextManager[Gateway]],
    grace: float,
    *,
    show_token: bool,
    otel: bool,
) -> int:
    """Serves until a signal arrives; returns the number of requests that were cut off.

    The keys of `catalogs` are the mounts; a single one at the mount "" is the whole namespace.
    """
    import anyio

    from lance_ns_async.gateway import CallerNamespaces, MountedNamespace
    from lance_ns_async.storage import threads

    def under_way() -> str:
        load = threads.load()
        count = load.running + load.given_up
        return f"{count} operations on data" if count else "work on a storage"

    async with AsyncExitStack() as stack:
        namespace: object
        recorders = []
        if otel:
            from lance_ns_async.telemetry import instrument

            recorders.append(instrument)
        if identity == "own":
            mounts = {name: await stack.enter_async_context(it.open_async()) for name, it in catalogs.items()}
            for it in mounts.values():
                for recorder in recorders:
                    stack.enter_context(recorder(it))
            namespace = mounts.get("") or MountedNamespace(mounts)
        else:
            properties = {name: (it.impl, it.properties) for name, it in catalogs.items()}
            namespace = await stack.enter_async_context(CallerNamespaces(properties, identity, recorders=recorders))
        gateway = await stack.enter_async_context(server(namespace))
        # Objects from imports live as long as the process; a full collection that scans them blocks the event loop.
        gc.freeze()
        # Threads that work in Python delay the event loop by this time at each of its calls of the system.
        sys.setswitchinterval(_SWITCH_INTERVAL)
        # The receiver ends before the shutdown, so that a second signal ends the requests in progress.
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            print(gateway.url, flush=True)
            if show_token:
                for name, value in gateway.headers.items():
                    print(f"{name}: {value}", flush=True)
            if sys.stderr.isatty():
                kinds = ", ".join(it.impl for it in catalogs.values())
                hint(f"serving {kinds}; stop with Ctrl-C; a client, with the token in a file:")
                hint(f"lance-ns ls -i rest -p uri={gateway.url} -p auth_token=@FILE")
                if gateway.sign_in_link:
                    hint(f"web pages, signed in by this link once within ten minutes: {gateway.sign_in_link}")
            async for _ in signals:
                deadline = Deadline(grace, under_way)
                break
    if cut_off := gateway.cut_off:
        deadline.report(counted(cut_off, "requests"))
    return cut_off


def _mounts(on: CommonOptions, texts: Sequence[str]) -> Mapping[str, Catalog]:
    """Returns the catalogs of the options `--mount` by their names."""
    if on.impl or on.profile or on.properties:
        raise Misuse("--mount: names profiles; omit --impl, --profile and -p")
    catalogs: dict[str, Catalog] = {}
    for text in texts:
        name, profile = parse_pair("--mount", text, "NAME=PROFILE")
        if name in catalogs:
            raise Misuse(f"--mount {text}: there is a mount {name!r} already")
        catalog = choose(None, (), profile, on.config, without_catalog(os.environ))
        assert catalog is not None
        catalogs[name] = catalog
    return catalogs


def _log_requests(stack: ExitStack, access_log: bool, audit_log: Path | None, *, is_required: bool) -> AuditLog | None:
    """Writes each request to standard error and to a file, until the stack is closed; returns the log in the file."""
    from lance_ns_async.gateway.request_log import AuditLog, log

    handlers: list[logging.Handler] = []
    audit = None
    if access_log:
        handlers.append(logging.StreamHandler())
    if audit_log is not None:
        try:
            audit = AuditLog(audit_log.expanduser(), is_required=is_required)
        except OSError as error:
            raise Misuse(f"--audit-log {audit_log}: {error.strerror}") from error
        handlers.append(audit)
    for handler in handlers:
        log.setLevel(logging.INFO)
        # The lines are for these handlers alone.
        log.propagate = False
        log.addHandler(handler)
        stack.callback(handler.close)
        stack.callback(log.removeHandler, handler)
    return audit


def _token(file: Path | None) -> str | None:
    if file is None:
        if (token := os.environ.get(TOKEN)) == "":
            raise Misuse(f"{TOKEN}: must not be empty; unset it to use a random token")
        return token
    token = read_text(file.expanduser(), f"--token-file {file}").strip()
    if not token:
        raise Misuse(f"--token-file {file}: the file is empty")
    warn_if_exposed(file.expanduser(), "the gateway's token")
    return token


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None:
        if key is not None:
            raise Misuse("--tls-key: requires --tls-cert")
        return None
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert.expanduser(), key and key.expanduser())
    except OSError as error:
        raise Misuse(f"--tls-cert {cert}: {error.strerror or error}") from error
    if key is not None:
        # Certificates are public, but the file of the certificate may also contain the key.
        warn_if_exposed(key.expanduser(), "the private key of --tls-cert")
    return context


class Deadline:
    """Ends the process one second after the grace period, if it has not ended by itself.

    Threads that compute in Lance or wait for a storage cannot be stopped, and the interpreter would wait for them
    without a limit. Their work had its grace period by then, and was not reported as done to any client.
    """

    def __init__(self, seconds: float, describe: Callable[[], str]) -> None:
        """Starts the timer; `describe` returns a description of the pending work."""
        self._seconds = seconds
        self._describe = describe
        self._unsaid = threading.Lock()
        timer = threading.Timer(seconds + _CLOSING, self._end)
        timer.daemon = True
        timer.start()

    def report(self, under_way: str) -> None:
        """Reports the work that was pending at the end of the grace period; only the first report is written."""
        if self._unsaid.acquire(blocking=False):
            say(
                f"ended after the grace period of {self._seconds:g} s with {under_way} in progress; "
                "their effect is unknown"
            )

    def _end(self) -> None:
        try:
            self.report(self._describe())
            for stream in (sys.stdout, sys.stderr):
                # The process that read the stream may have ended.
                with suppress(OSError, ValueError):
                    stream.flush()
            logging.shutdown()
        finally:
            os._exit(Code.FAILURE)


_Client = Annotated[str, Argument(help="Name of the client.")]
_Tokens = Annotated[Path, Option("--tokens", metavar="FILE", help="File of the tokens' hashes, as for serve.")]


def add_token(
    on: CommonOptions,
    name: _Client,
    tokens: _Tokens,
    rights: Annotated[
        Literal["read", "write", "admin"],
        Option(
            help="read; write: also create, add, overwrite and delete rows; admin: also drop, deregister and rename."
        ),
    ] = "read",
    only: Annotated[
        Repeated,
        Option(
            metavar="PATTERN",
            help="Only these tables, e.g. 'sales.**', or with serve --mount 'MOUNT.sales.**'. May be repeated.",
        ),
    ] = None,
    credentials: Annotated[
        bool,
        Option(
            "--credentials", help="Also hand out the catalog's storage credentials, which may allow more than --rights."
        ),
    ] = False,
) -> None:
    """Add a client and print its token, which is shown only once; the file has its hash.

    A running server notices the change within a second. To change the rights, edit the file.
    """
    from lance_ns_async.gateway.access import HASHES, create_token, hash_of
    from lance_ns_async.gateway.rights import Principal

    principal = Principal.parse(name, rights, only or (), credentials=credentials)
    secret = create_token()
    with edit(tokens, _check_tokens) as content:
        if name in content:
            raise Misuse(f"{name} exists in {tokens}; use token rotate for a new token, or remove it first")
        content[name] = {**principal.to_dict(), HASHES: [hash_of(secret)]}
    print(secret)
    hint(f"added {name} to {tokens}; in a file, the token is used as: lance-ns -i rest -p uri=URL -p auth_token=@FILE")


def list_tokens(on: CommonOptions, tokens: _Tokens, format: OutputFormat = Format.TABLE) -> None:
    """List the clients and their rights; `oidc` is a rule for tokens of an issuer."""
    from lance_ns_async.gateway.access import HASHES

    rows = [
        {
            "name": name,
            "rights": fields["rights"],
            "only": ", ".join(fields.get("only", ())),
            "credentials": fields.get("credentials", False),
            "tokens": len(fields.get(HASHES, ())),
        }
        for name, entry in _check_tokens(tokens).items()
        for fields in (entry if isinstance(entry, list) else [entry])
    ]
    output.write(rows, ("name", "rights", "only", "credentials", "tokens"), format)


def rotate_token(
    on: CommonOptions,
    name: _Client,
    tokens: _Tokens,
    at_once: Annotated[bool, Option("--at-once", help="Refuse all earlier tokens of the client from now on.")] = False,
    finish: Annotated[
        bool, Option("--finish", help="Make no token; refuse all but the newest one from now on.")
    ] = False,
) -> None:
    """Print a new token for a client; the last one stays valid until the next rotation.

    To replace a token without an outage: rotate, give the new token to the client, and rotate --finish.
    """
    from lance_ns_async.gateway.access import HASHES, create_token, hash_of

    if at_once and finish:
        raise Misuse("--at-once and --finish: use one of them")
    secret = None if finish else create_token()
    with edit(tokens, _check_tokens) as content:
        fields = _find_client(content, name, tokens)
        before = list(fields.get(HASHES, ()))
        new = [] if secret is None else [hash_of(secret)]
        fields[HASHES] = [*new, *([] if at_once else before[:1])]
    refused = counted(len(before) - len(fields[HASHES]) + len(new), "tokens")
    if secret is not None:
        print(secret)
    state = "one token" if secret is None else "a new token"
    hint(f"{name} has {state}; {refused} from before will be refused within a second")


def remove_token(on: CommonOptions, name: _Client, tokens: _Tokens) -> None:
    """Remove a client; its tokens are refused within a second."""
    with edit(tokens, _check_tokens) as content:
        _find_client(content, name, tokens)
        del content[name]
    tell(f"removed {name} from {tokens}")


def _find_client(content: Any, name: str, file: Path) -> Any:
    """Returns the fields of a client; raises `Misuse` if there is none with this name."""
    if name not in content:
        raise Misuse(f"{name}: not in {file}; {suggest(name, content)}")
    if isinstance(content[name], list):
        raise Misuse(f"{name}: the rules for tokens of an issuer; to change them, edit {file}")
    return content[name]


def _check_tokens(file: Path) -> dict[str, Any]:
    """Returns the content of a file whose entries are valid."""
    from lance_ns_async.gateway.access import parse

    try:
        content = file.read_bytes()
    except OSError as error:
        raise Misuse(f"--tokens {file}: {error.strerror}") from error
    parse(content, str(file))
    return tomllib.loads(content.decode())
