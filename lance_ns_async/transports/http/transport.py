"""Transport for JSON over HTTP. The backend's functions interpret the responses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar
from urllib.parse import urlencode

import anyio.to_thread
import httpx
import orjson
from lance_namespace.errors import InvalidInputError

from lance_ns_async.calls import request_headers
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.observers import http_status
from lance_ns_async.calls.tagged_results import TaggedResults
from lance_ns_async.errors import AnotherAnswerError, Code, Failure
from lance_ns_async.masked import MaskedBytes, without_frames
from lance_ns_async.model import Id
from lance_ns_async.settings import HttpSettings, is_url
from lance_ns_async.transports import USER_AGENT
from lance_ns_async.transports.http.signatures import REJECTION_CODES, Signer, rejection
from lance_ns_async.transports.http.tls import UNTRUSTED, tls_context
from lance_ns_async.transports.http.token_sources import Tokens
from lance_ns_async.transports.http.wire import (
    WITHDRAW,
    AiohttpWire,
    EncodedRequest,
    FixedHeaders,
    OtherWire,
    ResponseTooLargeError,
    StreamedBody,
    UntrustedError,
    WireClosedError,
    environment_proxy,
)
from lance_ns_async.transports.responses import UNREADABLE, decode_body, decoding_failure, outline, redact, retry_after

T = TypeVar("T")

ReadError = Callable[[Any], tuple[tuple[Code, ...], str]]
"""Returns, for the JSON body of an error, codes more specific than the status, and the server's message."""

_NOT_HERE = (404, 405, 501)  # Statuses of a server that is not a catalog.

_TOKEN_REJECTED = (401, 419)
"""Statuses by which the endpoint rejects a token; a 407 is the proxy's, which does not get the token."""

_SIGN_IN = (  # Properties with credentials.
    *("auth_token", "credential", "auth_token_file", "client_secret_file", "subject_token", "subject_token_file"),
    *("auth_command", "token"),
)

_MIXED_UP = "; is there a proxy before the server that confuses responses, or rewrites paths?"
_MIN_BYTES_FOR_THREAD = 2**18
"""Minimum size in bytes of a response that is decoded in a worker thread, because it would block the event loop."""

_EMPTY = (b"", b"OK", b"200 OK")  # Bodies without JSON; some servers respond to a change with plain text.

_KEPT_HEADERS = 8  # Number of different request headers that are kept.

_EXCERPT = 200  # Maximum number of characters of an unknown response in a message.


class HttpTransport:
    """Makes calls on one HTTP API, with JSON bodies, and decodes the responses."""

    def __init__(
        self,
        wire: httpx.AsyncBaseTransport,
        caller: Caller,
        *,
        base: str,
        headers: Mapping[str, str],
        read_error: ReadError,
        tokens: Tokens | None = None,
        signer: Signer | None = None,
        confidential: bool = False,
        secrets: Sequence[str] = (),
        address: str = "the endpoint",
        advice: str | None = None,
        sign_in_advice: str = "is the secret right?",
    ) -> None:
        """Creates a transport on `wire`.

        Args:
            base: The URL to which paths are appended.
            headers: Headers of every request.
            read_error: Reads the codes and the message of an error.
            tokens: Source of bearer tokens; None if the headers suffice.
            signer: Signs each attempt; None for requests without a signature.
            confidential: Whether the API issues secrets, so that its responses must not be quoted in messages.
            secrets: Values that are redacted in messages; the owner may change them.
            address: The property that `base` comes from, for messages.
            advice: The end of messages of a server without this API; None means the question whether `address` is
                right.
            sign_in_advice: The end of messages of a server that rejects the token or the client.
        """
        self._wire = wire
        self._caller = caller
        self._base = base
        self._headers = lru_cache(_KEPT_HEADERS)(partial(_merge, httpx.Headers(headers)))
        """Returns the headers of a request; most requests have equal ones."""
        self._read_error = read_error
        self._tokens = tokens
        self._signer = signer
        self._confidential = confidential
        self._secrets = secrets
        self._address = address
        self._advice = advice or f"is {address} right?"
        self._sign_in_advice = sign_in_advice

    async def request(
        self,
        method: str,
        path: str,
        *,
        subject: Id,
        operation: str,
        decode: Callable[[Any], T],
        query: str = "",
        body: Any = None,
        content: tuple[bytes | StreamedBody, str] | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool | None = None,
        raw: bool = False,
        key: str | None = None,
        cache: TaggedResults[T] | None = None,
    ) -> T:
        """Makes a call and returns its decoded response.

        Args:
            path: The path below the base URL, percent-encoded.
            subject: The object of the call, for messages.
            operation: The name of the operation, for messages and the error table.
            decode: Converts the JSON of the response, or None if the response is empty.
            query: The query, percent-encoded.
            body: Sent as JSON; None for no body.
            content: Bytes to send instead of `body`, with their media type. A streamed body is sent once, so that the
                call is not repeated after its first part.
            headers: Additional headers of this call.
            safe: Whether the call may be sent again after any transient failure; None means only for GET and HEAD.
            raw: Whether `decode` gets the bytes of the response instead of its JSON.
            key: Sent as `Idempotency-Key`, the same with each attempt. The server recognizes the call by it, so that
                also a change may be sent again after any transient failure. None if the server does not support this.
            cache: Decoded responses by path. A kept one is requested by its ETag, and used if the server returns 304.

        Cost: one remote call; one more to fetch a token or keys, and one more to repeat a call after their rejection.
        """
        url = f"{self._base}{path}?{query}" if query else f"{self._base}{path}"
        encoded, content_type = content or ((None, None) if body is None else (orjson.dumps(body), "application/json"))
        streamed = encoded if isinstance(encoded, StreamedBody) else None
        if streamed is not None and self._signer is not None:
            raise InvalidInputError("request_data: signed requests need all rows at once; pass bytes, not a reader")
        if key is not None:
            headers = {**(headers or {}), "idempotency-key": key}
        is_safe = method in ("GET", "HEAD") if safe is None else safe
        entry = None if cache is None else cache.find(path)

        # A call with a token of its own never gets that of the namespace.
        tokens = None if headers and "authorization" in headers else self._tokens
        signer = self._signer
        token = None if tokens is None else await tokens.current()
        keys = None if signer is None else await signer.current()

        async def send() -> T:
            own = tuple(headers.items()) if headers else ()
            # All headers are no variable, because an error collector would record it.
            request = EncodedRequest(method, url, self._headers(own, content_type, token), encoded)
            if entry is not None:
                # Not among the headers above, because it differs for each path.
                request.headers = request.headers.copy()
                request.headers["if-none-match"] = entry[0]
            if signer is not None:
                assert not isinstance(encoded, StreamedBody)
                request.headers = signer.sign(keys, method, url, request.headers, encoded)
            observers = self._caller.observers
            if observers.all and (trace_headers := observers.trace_headers()):
                # Not signed, because proxies may replace them.
                request.headers = request.headers.copy()
                request.headers.update(trace_headers)
            try:
                response = await self._answer(request, may_confirm=entry is not None)
            except Failure as failure:
                if streamed is not None:
                    failure.is_final = streamed.is_started
                    if streamed.error is not None:
                        message = f"request_data: the rows cannot be read ({streamed.error})"
                        raise InvalidInputError(message) from streamed.error
                raise
            if raw:
                return decode_body(decode, response.content)
            if cache is not None and entry is not None and response.status_code == httpx.codes.NOT_MODIFIED:
                return cache.confirm(path, entry)
            if len(response.content) < _MIN_BYTES_FOR_THREAD:
                result = self._decode(response, request, decode)
            else:
                result = await anyio.to_thread.run_sync(self._decode, response, request, decode, abandon_on_cancel=True)
            if cache is not None:
                cache.store(path, response.headers.get("etag"), result)
            return result

        async def renew(failure: Failure) -> bool:
            nonlocal token, keys
            # A call with rejected keys had no effect either.
            if signer is not None and not REJECTION_CODES.isdisjoint(failure.codes):
                others = await signer.replace(keys)
                keys = others or keys
                return others is not None
            if tokens is None or token is None or failure.codes[-1] not in _TOKEN_REJECTED:
                return False
            # A call with a rejected token had no effect, so even a write may be sent again with a new token.
            old, token = token, await tokens.replace(token)
            return token != old

        recover = None if tokens is None and signer is None else renew
        return await self._caller.call(
            send, subject=subject, operation=operation, safe=is_safe, repeatable=key is not None, recover=recover
        )

    async def aclose(self) -> None:
        """Closes the connections; may be called twice."""
        try:
            await self._wire.aclose()
        finally:
            if self._signer is not None:
                await self._signer.aclose()

    async def _answer(self, request: EncodedRequest, *, may_confirm: bool) -> httpx.Response:
        try:
            response = await self._wire.handle_async_request(request)
        except WireClosedError as e:
            raise InvalidInputError(str(e)) from e
        except httpx.UnsupportedProtocol as e:
            raise InvalidInputError(f"{self._address.removeprefix('the ')}: {e}") from e
        except UntrustedError as e:
            raise Failure("untrusted", message=f"{e} ({_where(request)}); {UNTRUSTED}", delivered=False) from e
        except (httpx.ConnectError, httpx.ConnectTimeout) as e:
            message = f"{e} ({_where(request)}); is {self._address} right and the server up?"
            raise Failure("refused", message=message, delivered=False) from e
        except httpx.ProxyError as e:
            raise Failure(407, message=f"{e}; give the proxy's credentials in its URL", delivered=False) from e
        except ResponseTooLargeError as e:
            raise Failure("unreadable", message=str(e)) from e
        except httpx.TransportError as e:
            raise Failure("disconnected", message=str(e)) from e
        except httpx.DecodingError as e:
            raise Failure("unreadable", message=f"the answer cannot be decompressed: {e}", transient=True) from e
        if self._caller.observers.all:
            http_status.set(response.status_code)
        if response.is_success or (may_confirm and response.status_code == httpx.codes.NOT_MODIFIED):
            return response
        raise self._failure(response, request)

    def _decode(self, response: httpx.Response, request: EncodedRequest, decode: Callable[[Any], T]) -> T:
        try:
            # Neither the body nor its JSON is a variable, because both may contain credentials.
            return decode(None if response.content in _EMPTY else orjson.loads(response.content))
        except orjson.JSONDecodeError as e:
            # An HTML page shows which server responded. Invalid JSON does not, and may contain credentials.
            may_quote = not self._confidential and response.content.lstrip()[:1] not in (b"{", b"[")
            excerpt = f" {_excerpt(response, self._request_secrets(request))}" if may_quote else ""
            message = f"an answer that is no JSON, so {self._advice}{excerpt}"
            # A proxy that restarts answers with a page, or with a part of the body.
            raise Failure("unreadable", message=message, transient=True) from e
        except (AnotherAnswerError, *UNREADABLE) as e:
            if isinstance(e, AnotherAnswerError) and (withdraw := response.extensions.get(WITHDRAW)) is not None:
                withdraw()
            failure = decoding_failure(e, outline(_json(response.content)), advice=_MIXED_UP)
            failure.transient = response.content in _EMPTY
            del decode
            raise failure from without_frames(e)

    def _request_secrets(self, request: EncodedRequest) -> Sequence[str]:
        """Returns the secrets in a request."""
        own = () if self._signer is None else self._signer.secrets(request.headers)
        own_headers = request_headers.current().values()
        return *self._secrets, *own, *own_headers, request.headers.get("authorization", "").rpartition(" ")[2]

    def _failure(self, response: httpx.Response, request: EncodedRequest) -> Failure:
        status = response.status_code
        codes, message = self._explain_response(response, request)
        if self._signer is not None:
            codes, message = rejection(response.headers, _json(response.content), codes, message)
        if status == httpx.codes.NOT_MODIFIED:
            message = f"unchanged, but the request named no known response{_MIXED_UP}"
        elif response.is_redirect:
            message = f"redirects are not followed; it points to {response.headers.get('location', 'nowhere')}"
            if self._confidential:
                message = f"{message} ({_location(request)}); {self._advice}"
        if status in _TOKEN_REJECTED and self._signer is None:
            message = f"{message}; {self._sign_in_advice}"
        if (request_id := response.headers.get("x-request-id")) is not None:
            message = f"{message} (X-Request-ID {request_id[:_EXCERPT]})"
        return Failure(
            *codes,
            status,
            message=f"HTTP {status}: {redact(message, self._request_secrets(request))}",
            retry_after=retry_after(response.headers),
            delivered=False if _was_turned_away(status) else None,
        )

    def _explain_response(self, response: httpx.Response, request: EncodedRequest) -> tuple[tuple[Code, ...], str]:
        try:
            codes, message = self._read_error(orjson.loads(response.content))
            if not all(isinstance(code, str | int) for code in codes):
                raise TypeError("a code is a text or a number")
            # Codes are redacted because they are logged, too.
            codes = tuple(redact(c, self._request_secrets(request)) if isinstance(c, str) else c for c in codes)
        except UNREADABLE:
            excerpt = _excerpt(response, self._request_secrets(request)) or response.reason_phrase
            if response.status_code in _NOT_HERE and request.method != "HEAD":
                # A catalog would respond in its own format, so the address may be wrong. A HEAD response has no body.
                excerpt = f"{excerpt} ({_location(request)}); {self._advice}"
            return (), excerpt
        if self._confidential and response.status_code in _NOT_HERE and not message.endswith("?"):
            # A token endpoint has no objects that could be missing.
            message = f"{message} ({_location(request)}); {self._advice}"
        return codes, message


def open_http(
    settings: HttpSettings,
    caller: Caller,
    *,
    path: str,
    read_error: ReadError,
    tokens: Callable[[httpx.AsyncBaseTransport], Tokens | None] = lambda wire: None,
    signer: Signer | None = None,
    headers: Mapping[str, str] | None = None,
) -> HttpTransport:
    """Returns a transport to the API at `path` below the endpoint of `settings`; opens no connection yet.

    Args:
        path: The path of the API, percent-encoded.
        read_error: Reads the codes and the message of an error.
        tokens: Returns the source of bearer tokens for the connections; None if the settings contain all headers.
        signer: Signs each attempt; None for requests without a signature.
        headers: Headers of every call; the `header.*` properties override them.
    """
    endpoint = settings.endpoint.rstrip("/")
    wire = _wire(settings)
    usual = httpx.Headers(
        {
            "accept": "application/json",
            # Descriptions are short: compressing them costs more time than it saves.
            "accept-encoding": "identity",
            "user-agent": USER_AGENT,
        }
    )
    usual.update(headers)
    own = {name: value.get_secret_value() for name, value in settings.header.items()}
    usual.update(own)
    if settings.auth_token is not None:
        usual["authorization"] = f"Bearer {settings.auth_token.get_secret_value()}"
    return HttpTransport(
        wire,
        caller,
        base=endpoint + path,
        headers=usual,
        read_error=read_error,
        tokens=tokens(wire),
        signer=signer,
        secrets=list(own.values()),
        sign_in_advice=_sign_in_advice(settings, usual),
    )


def _sign_in_advice(settings: HttpSettings, headers: Mapping[str, str]) -> str:
    """Returns which property to set, or the question whether that which is set is right."""
    names = [name for name in _SIGN_IN if name in type(settings).model_fields]
    used = [name for name in names if getattr(settings, name)]
    if not used and "authorization" in headers:
        used = ["header.Authorization"]
    return f"is {used[0]} right?" if used else f"no credentials are set; set {' or '.join(names[:2])}"


def _wire(settings: HttpSettings) -> httpx.AsyncBaseTransport:
    if (other := settings.transport) is not None:
        wire = other if isinstance(other, httpx.AsyncBaseTransport) else other()
        return OtherWire(wire, connect_timeout=settings.connect_timeout, max_bytes=settings.max_response_bytes)
    _proxy(settings, settings.endpoint)
    try:
        # The default context is shared; creating another one takes a while.
        checks_hostname = settings.checks_hostname()
        special = settings.ca_bundle is not None or settings.client_cert is not None or not checks_hostname
        tls = (
            tls_context(settings.ca_bundle, settings.client_cert, settings.client_key, check_hostname=checks_hostname)
            if special
            else None
        )
    except OSError as e:
        files = ", ".join(filter(None, (settings.ca_bundle, settings.client_cert, settings.client_key)))
        raise InvalidInputError(f"{settings.backend} properties: cannot load {files}: {e}") from e
    return AiohttpWire(
        connect_timeout=settings.connect_timeout,
        tls=tls,
        proxy=partial(_proxy, settings),
        max_bytes=settings.max_response_bytes,
        keep_alive=settings.keep_alive,
    )


def _proxy(settings: HttpSettings, url: str) -> str | None:
    """Returns the proxy for a URL: that of the property, or else that of the environment; None for no proxy."""
    if settings.proxy is not None:
        value = settings.proxy.get_secret_value()
        return None if value == "none" else value
    proxy = environment_proxy(url)
    if proxy is not None and not is_url(proxy):
        # The value is neither quoted nor kept as a variable, because it may contain a password.
        del proxy
        raise InvalidInputError(
            f"{settings.backend} properties: proxy: the environment's proxy for {url} is not an HTTP proxy; "
            "set the property to one, or to none"
        )
    return proxy


def _merge(
    usual: httpx.Headers, own: tuple[tuple[str, str], ...], content_type: str | None, token: str | None
) -> FixedHeaders:
    """Returns the usual headers with those of one call."""
    headers = FixedHeaders(usual)
    headers.update(dict(own))
    if content_type:
        headers["content-type"] = content_type
    if token:
        headers["authorization"] = f"Bearer {token}"
    return headers


def _json(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except ValueError:
        return None


def _where(request: EncodedRequest) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode()}"


def _location(request: EncodedRequest) -> str:
    return request.text.partition("?")[0]


def _was_turned_away(status: int) -> bool:
    """Returns whether the status means that the server did not act; after its own failure it may have acted."""
    if status == httpx.codes.REQUEST_TIMEOUT:
        return False
    return 400 <= status < 500 or status == httpx.codes.NOT_IMPLEMENTED


def encode_form(form: Mapping[str, str]) -> tuple[MaskedBytes, str]:
    """Returns a form with secrets as the content of a request."""
    return MaskedBytes(urlencode(form).encode()), "application/x-www-form-urlencoded"


def _excerpt(response: httpx.Response, secrets: Sequence[str]) -> str:
    text = response.content[: 16 * _EXCERPT].decode("utf-8", "replace")
    if "<html" in text[: 4 * _EXCERPT].lower():
        text = re.sub(r"(?s)<(style|script)\b.*?</\1>|<[^>]*>", " ", text)
    # Secrets are redacted before the text is cut, because a part of a secret would not be recognized.
    return redact(" ".join(text.split()), secrets)[:_EXCERPT]
