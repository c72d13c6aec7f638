"""The HTTP wire: unchanged URLs, limits of responses, TLS, proxies."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import tracemalloc
import zlib
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InternalError, InvalidInputError, ServiceUnavailableError, UnauthenticatedError

from lance_ns_async.calls.policy import Policy
from lance_ns_async.transports.http.wire import AiohttpWire, TooLongError, UnpackError, environment_proxy, unpack
from tests.fakes.certificates import Certificates
from tests.fakes.plain import plain
from tests.fakes.sockets import Forwarder, Reply, Script, Server, http
from tests.support.errors import catch

pytestmark = [pytest.mark.bare, pytest.mark.floors]
ONCE = Policy(max_retries=0)
BIG = '"' + "x" * 2048 + '"'


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.made(tmp_path_factory.mktemp("certificates"))


PATHS = [
    *("/", "/a%2Fb", "/a%2fb", "/%2E", "/%2E%2E/x", "/a/%2e%2e/b", "/a%1Fb", "/a%00b", "/100%25", "/%252F"),
    *("/%C3%A9%F0%9F%98%80", "/%FF", "//double//slash/", "/a;b=c,d", "/a+b%2B", "/~a%7E", "/a:b@c", "/!$&'()*"),
    *("/a%20b%3Fc%23d", "/x?a=1&b=%26&c=a%1Fb&d=%2B+&e=", "/x?a=b?c=d/e"),
    *("/" + quote(chr(first) + chr(first + 1), safe="") for first in range(0, 256, 2)),
]


async def test_a_url_is_sent_as_it_is_written() -> None:
    async with Script() as server, plain(server.url) as client:
        for path in PATHS:
            await client.ask("GET", path)
        assert server.lines == [f"GET {path} HTTP/1.1" for path in PATHS] and server.connections == 1


async def test_a_request_of_httpx_is_sent_too() -> None:
    async with Script() as server:
        wire = AiohttpWire(connect_timeout=5, tls=None, proxy=None, max_bytes=1024)
        request = httpx.Request("POST", f"{server.url}/a%2Fb%2E?x=%1F", json={"a": 1}, headers={"x-a": "b"})
        response = await wire.handle_async_request(request)
        await wire.aclose()
        assert (response.status_code, response.json()) == (200, {})
        assert server.lines == ["POST /a%2Fb%2E?x=%1F HTTP/1.1"] and server.body() == b'{"a":1}'
        host = f"127.0.0.1:{server.port}"
        sent = {"x-a": "b", "content-type": "application/json", "host": host, "content-length": "7"}
        assert {name: server.header(name) for name in sent} == {name: [value] for name, value in sent.items()}


async def test_closed_twice_is_closed_for_good() -> None:
    async with Script() as server, plain(server.url) as client:
        await client.ask()
        await client.http.aclose()
        await client.http.aclose()
        await catch(InvalidInputError, client.ask(), "the namespace was closed during the call")
        assert server.connections == 1


async def test_what_is_under_way_when_it_is_closed_opens_no_new_connection() -> None:
    async with Script(Reply(then="hang")) as server, plain(server.url) as client:
        task = asyncio.create_task(client.ask())
        await asyncio.wait_for(server.requested.wait(), 10)
        await client.http.aclose()
        await catch(InvalidInputError, task, "the namespace was closed during the call")
        assert server.connections == 1


async def test_a_host_is_an_address_or_has_a_name() -> None:
    async with plain("http://[::1]:1", policy=ONCE) as client:
        await catch(ServiceUnavailableError, client.ask(), r"\(http://\[::1\]:1\)")
    async with plain("http://..", policy=ONCE) as client:
        await catch(InvalidInputError, client.ask(), "endpoint: not a URL")


class Greeter(Server):
    """Sends bytes before the first request."""

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"220 mail.example.com ready\r\n")
        await reader.read()


def chunked(body: str) -> Reply:
    raw = body.encode()
    chunks = [raw[i : i + 100] for i in range(0, len(raw), 100)]
    encoded = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return http(body=encoded + b"0\r\n\r\n", headers={"Transfer-Encoding": "chunked"})


@pytest.mark.parametrize("answer", [http(body=BIG), chunked(BIG), http(body=BIG, then="close")])
async def test_an_answer_of_the_limit_is_read(answer: Reply) -> None:
    async with Script(answer) as server, plain(server.url, {"max_response_bytes": "2050"}) as client:
        assert len(await client.ask()) == 2048


async def test_an_answer_without_its_body_has_no_length() -> None:
    head = http(body=b"", headers={"Content-Length": "99999999"})
    async with Script(head, head) as server:
        async with plain(server.url, {"max_response_bytes": "1024"}) as client:
            assert await client.ask("HEAD") is None and await client.ask("HEAD") is None
        assert server.connections == 1


async def test_a_server_may_want_a_certificate_of_the_client(certificates: Certificates) -> None:
    trusting = {"ca_bundle": certificates.ca_bundle}
    both = {"client_cert": certificates.client_cert, "client_key": certificates.client_key}
    async with Script(tls=certificates.strict_server) as server:
        for shown in ({"client_cert": certificates.client}, both):
            async with plain(server.url, {**trusting, **shown}) as client:
                assert await client.ask() == {}
        async with plain(server.url, trusting, policy=ONCE) as client:
            message = r"(?i)certificate.required|cannot connect|connection was lost"
            await catch(ServiceUnavailableError, client.ask(), message)
        assert len(server.requests) == 2


@pytest.mark.parametrize("name", ["ca_bundle", "client_cert"])
async def test_a_file_that_is_missing_or_no_certificate_is_named_at_once(name: str, tmp_path: Path) -> None:
    for file, text in (("none.pem", None), ("empty.pem", ""), ("bad.pem", "not a certificate")):
        path = tmp_path / file
        if text is not None:
            path.write_text(text)
        with pytest.raises(InvalidInputError, match=f"plain properties: cannot load .*{file}"):
            async with plain("https://127.0.0.1", {name: str(path)}):
                pass


async def test_tls_spoken_to_a_server_that_has_none_is_no_connection() -> None:
    async with Greeter() as server, plain(server.url.replace("http:", "https:"), policy=ONCE) as client:
        await catch(ServiceUnavailableError, client.ask(), "the server does not speak TLS on this port; use http://")


async def test_a_proxy_tunnels_what_is_encrypted(certificates: Certificates) -> None:
    async with Script(tls=certificates.server) as server, Forwarder() as proxy:
        properties = {"proxy": proxy.url, "ca_bundle": certificates.ca_bundle, "auth_token": "tok"}
        async with plain(server.url, properties) as client:
            assert await client.ask("GET", "/a%2Fb") == {}
        assert proxy.requests[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n".encode())
        assert b"tok" not in proxy.requests[0] and server.lines == ["GET /a%2Fb HTTP/1.1"]


async def test_a_proxy_receives_the_whole_url_and_a_password() -> None:
    async with Script() as server, Forwarder() as proxy:
        url = proxy.url.replace("//", "//user:hush@")
        async with plain(server.url, {"proxy": url}) as client:
            assert await client.ask("GET", "/a%2Fb%2E?x=%1F") == {}
        assert proxy.requests[0].startswith(f"GET {server.url}/a%2Fb%2E?x=%1F HTTP/1.1\r\n".encode())
        assert b"\r\nProxy-Authorization: Basic dXNlcjpodXNo\r\n" in proxy.requests[0]
    async with plain("http://127.0.0.1:1", {"proxy": url}, policy=ONCE) as client:
        raised = await catch(ServiceUnavailableError, client.ask(), "cannot connect to the proxy: ")
    assert "hush" not in str(raised.value)


async def test_a_proxy_that_refuses_is_named_and_nothing_was_sent(certificates: Certificates) -> None:
    async with Script(http(502, b""), http(403, b"")) as proxy, Script(tls=certificates.server) as server:
        async with plain(server.url, {"proxy": proxy.url}, policy=Policy(max_retries=1, backoff_initial=0.0)) as client:
            await catch(ServiceUnavailableError, client.ask("DELETE"), "the proxy opens no tunnel: HTTP 403 Reason 403")
        assert client.outcomes == ["refused", "refused"] and not server.requests


async def test_a_proxy_that_wants_credentials_is_called_once(certificates: Certificates) -> None:
    async with Script(http(407, b"")) as proxy, Script(tls=certificates.server) as server:
        async with plain(server.url, {"proxy": proxy.url}) as client:
            await catch(UnauthenticatedError, client.ask(), r"HTTP 407 .*; give the proxy's credentials in")
        assert client.outcomes == ["407"] and not server.requests


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch, name: str, scheme: str) -> None:
    async with Script() as server, Forwarder() as proxy:
        monkeypatch.setenv(name, f"{scheme}127.0.0.1:{proxy.port}")
        async with plain(server.url, by_environment=True) as client:
            assert await client.ask() == {}
        assert len(proxy.requests) == 1
        async with plain(server.url, {"proxy": "none"}) as client:
            assert await client.ask() == {}
        monkeypatch.setenv("NO_PROXY", f"example.com,127.0.0.1:{server.port}")
        async with plain(server.url, by_environment=True) as client:
            assert await client.ask() == {}
        assert len(proxy.requests) == 1 and len(server.requests) == 3


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("http://h/x", {}, None),
        ("http://h/x", {"http_proxy": "http://p:1"}, "http://p:1"),
        ("https://h/x", {"http_proxy": "http://p:1"}, None),
        ("https://h/x", {"https_proxy": "http://p:1", "all_proxy": "http://q:1"}, "http://p:1"),
        ("https://h/x", {"all_proxy": "q:1"}, "http://q:1"),
        ("http://h:80/x", {"http_proxy": "http://p:1", "no_proxy": "h"}, None),
        ("http://h:80/x", {"http_proxy": "http://p:1", "no_proxy": "h:81"}, "http://p:1"),
        ("http://a.b.c/x", {"http_proxy": "http://p:1", "no_proxy": ".b.c"}, None),
        ("http://h/x", {"http_proxy": "http://p:1", "no_proxy": "*"}, None),
        ("http://h/x", {"http_proxy": ""}, None),
        *(
            (f"http://{host}/x", {"http_proxy": "http://p:1", variable: no_proxy}, proxy)
            for variable in ("no_proxy", "NO_PROXY")
            for proxy, host, no_proxy in [
                (None, "10.1.2.3:8181", "a.b, 10.0.0.0/8"),
                ("http://p:1", "11.1.2.3", "10.0.0.0/8"),
                (None, "10.1.2.3:8181", "10.0.0.0/8:8181"),
                ("http://p:1", "10.1.2.3:8182", "10.0.0.0/8:8181"),
                (None, "10.1.2.3", "10.1.2.3:80"),
                (None, "[fd00::1]:8181", "fd00::/8"),
                (None, "[fd00::1]:8181", "[fd00:0::1]:8181"),
                ("http://p:1", "[fd00::1]:8181", "[fd00::1]:80"),
                ("http://p:1", "[fe00::1]", "fd00::/8 10.0.0.0/8"),
                (None, "A.b.c:8181", "x, *.B.c:8181"),
                (None, "b.c", ".b.c:80"),
                ("http://p:1", "ab.c", "b.c,c/8,:80,,"),
                (None, "h", "x, *"),
            ]
        ),
    ],
)
def test_proxies(monkeypatch: pytest.MonkeyPatch, url: str, environment: dict[str, str], proxy: str | None) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert environment_proxy(url) == proxy


async def test_a_proxy_of_another_kind_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://user:hush@127.0.0.1:1080")
    with pytest.raises(InvalidInputError, match=r"the environment's proxy for .* is not an HTTP proxy") as raised:
        async with plain("http://127.0.0.1", by_environment=True):
            pass
    assert "hush" not in str(raised.value)
    async with plain("http://127.0.0.1", {"proxy": "none"}):
        pass


@pytest.mark.parametrize(
    "use",
    [
        pytest.param("asyncio.run(in_a_loop(connect()))", id="in its loop"),
        pytest.param("ns = connect(); asyncio.run(ns.list_namespaces())", id="at the end of the process"),
    ],
)
def test_a_namespace_that_was_not_closed_warns_in_our_words(use: str) -> None:
    program = f"""
        import asyncio, gc, warnings
        from lance_ns_async import AsyncNamespace
        from tests.fakes.iceberg import FakeIceberg

        warnings.simplefilter("always")

        def connect():
            return AsyncNamespace.connect("iceberg", {{"endpoint": server.endpoint}})

        async def in_a_loop(ns):
            await ns.list_namespaces()
            del ns
            gc.collect()

        with FakeIceberg() as server:
            {use}
    """
    done = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=True)
    assert "ResourceWarning: an AsyncNamespace was not closed: use `async with AsyncNamespace.connect" in done.stderr
    assert "Unclosed" not in done.stderr


def test_a_sync_namespace_that_is_open_at_the_end_of_the_process_warns_of_nothing() -> None:
    program = """
        from lance_ns_async import Namespace
        from tests.fakes.iceberg import FakeIceberg

        with FakeIceberg() as server:
            ns = Namespace.connect("iceberg", {"endpoint": server.endpoint})
            ns.list_namespaces()
    """
    run = (sys.executable, "-W", "always::ResourceWarning", "-c", dedent(program))
    assert subprocess.run(run, capture_output=True, text=True, check=True).stderr == ""


MB = 2**20


def raw_deflate(data: bytes) -> bytes:
    """Returns deflate data without the header and trailer of zlib, as some servers send it."""
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush()


PACKINGS = [("gzip", gzip.compress), ("X-GZIP ", gzip.compress), ("deflate", zlib.compress), ("Deflate", raw_deflate)]


@pytest.mark.parametrize(("encoding", "pack"), PACKINGS)
@pytest.mark.parametrize("size", [0, 1, 100, 256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 3 * MB])
async def test_one_layer_is_unpacked_up_to_the_limit(encoding: str, pack: Callable[[bytes], bytes], size: int) -> None:
    body = bytes(index % 251 for index in range(size % 1000)) + bytes(size - size % 1000)
    assert await unpack(pack(body), encoding, max(size, 1)) == body
    if size > 1:
        await catch(TooLongError, unpack(pack(body), encoding, size - 1))


@pytest.mark.parametrize("encoding", ["", "identity", " Identity "])
async def test_what_is_not_packed_stays_as_it_is(encoding: str) -> None:
    assert await unpack(b"{}", encoding, 1) == b"{}"


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,identity", "br", "zstd", "compress", "gzip;q=1", "nonsense"])
async def test_several_layers_and_other_methods_are_refused_unread(encoding: str) -> None:
    await catch(UnpackError, unpack(b"whatever", encoding, MB), "only gzip or deflate are read, once")


@given(st.binary(max_size=300), st.integers(min_value=0, max_value=320))
def test_a_body_that_breaks_off_is_none(body: bytes, cut: int) -> None:
    packed = gzip.compress(body)
    if not 0 < cut < len(packed):
        return
    with pytest.raises(UnpackError):
        _now(packed[:cut])


def _now(packed: bytes) -> bytes:
    work = unpack(packed, "gzip", MB)
    try:
        work.send(None)
    except StopIteration as done:
        result: bytes = done.value
        return result
    raise AssertionError("a small body was waited for")


@pytest.mark.parametrize("rest", [b"x", gzip.compress(b"more")], ids=["noise", "member"])
async def test_what_follows_a_packed_body_is_refused(rest: bytes) -> None:
    await catch(UnpackError, unpack(gzip.compress(b"{}") + rest, "gzip", MB), "bytes follow its end")


@pytest.mark.parametrize("layers", [1, 2, 3])
async def test_a_bomb_takes_no_more_than_the_limit(layers: int) -> None:
    """Two layers of 1,719 bytes took 1.9 GB and 7 seconds."""
    packed = gzip.compress(bytes(40 * MB))
    for _ in range(layers - 1):
        packed = gzip.compress(packed)
    async with Script(http(200, packed, {"Content-Encoding": ", ".join(["gzip"] * layers)})) as server:
        async with plain(server.url, {"max_response_bytes": str(MB)}, policy=Policy(max_retries=0)) as client:
            tracemalloc.start()
            try:
                await catch(InternalError, client.ask())
                assert tracemalloc.get_traced_memory()[1] < 8 * MB
            finally:
                tracemalloc.stop()


async def test_layers_in_several_headers_count_together() -> None:
    packed = gzip.compress(gzip.compress(b"{}"))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    async with Script(Reply(head % len(packed) + packed)) as server:
        async with plain(server.url, policy=Policy(max_retries=0)) as client:
            await catch(InternalError, client.ask(), "cannot be decompressed: its Content-Encoding is 'gzip, gzip'")
