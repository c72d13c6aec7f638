"""Runs the code of a documentation page like its reader: in order, in one folder."""

from __future__ import annotations

import ast
import inspect
import io
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from pprint import pformat
from tempfile import TemporaryDirectory
from types import CodeType
from typing import Any, Protocol

import anyio.to_thread
import pytest

from lance_ns_async import registry
from tests.documentation.pages import Block
from tests.fakes.glue import FakeGlue
from tests.fakes.hive3 import FakeHive
from tests.fakes.http import FakeServer
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.fakes.rest import FakeRest
from tests.fakes.unity import FakeUnity
from tests.servers.process import s3
from tests.support.commands import folder

# The embedded catalog adds a random part to the location of a table.
_RANDOM = re.compile(r"/[0-9a-f]{8}_")
_SUFFIX = re.compile(r"-[0-9a-f]{12}\b")  # The random part of a location in other catalogs


class Named(Protocol):
    """A page or a notebook."""

    @property
    def name(self) -> str:
        """Its name in a traceback."""


class Reader:
    """Runs blocks in the working directory, with replacements for some texts of the page."""

    def __init__(self, page: Named, stands_for: Mapping[str, str]) -> None:
        self._page = page
        self._stands_for = stands_for
        self._session: dict[str, Any] = {"__name__": "__main__"}
        self._exports: list[str] = []
        self.status: object = 0  # The exit status of the last program

    @property
    def named(self) -> Mapping[str, Any]:
        return self._session

    async def printed(self, block: Block) -> str:
        """Returns the output of a block: one with a title is a program, the others of a page are one session."""
        source = self._as_run(block)
        match block.language:
            case "console" if block.is_run:
                return self._as_written(await anyio.to_thread.run_sync(self._commands, source))
            case "python":
                return self._as_written(await self._python(block, source))
            case _:
                return ""

    async def displayed(self, block: Block) -> tuple[str, dict[str, str]]:
        """Returns what a notebook displays below a cell: its output, and the last value in each of its formats."""
        tree = ast.parse(self._as_run(block))
        last = tree.body[-1]
        value = None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        with redirect_stdout(io.StringIO()) as out:
            await self._evaluate(self._compiled(tree, "exec"))
            if isinstance(last, ast.Expr):
                value = await self._evaluate(self._compiled(ast.Expression(last.value), "eval"))
        # Jupyter breaks the lines of these.
        plain = pformat(value, width=79, sort_dicts=False) if isinstance(value, dict | list) else repr(value)
        formats = {} if value is None else {"text/plain": plain}
        if html := getattr(value, "_repr_html_", None):
            formats["text/html"] = html()
        return self._restored(out.getvalue()), {kind: self._restored(text) for kind, text in formats.items()}

    def _as_run(self, block: Block) -> str:
        source = block.source
        for written, here in self._stands_for.items():
            source = source.replace(written, here)
        return source

    def _compiled(self, source: str | ast.Module | ast.Expression, mode: str) -> CodeType:
        code: CodeType = compile(source, self._page.name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        return code

    async def _evaluate(self, code: CodeType) -> Any:
        value = eval(code, self._session)
        return await value if code.co_flags & inspect.CO_COROUTINE else value

    def _commands(self, source: str) -> str:
        commands = [line.removeprefix("$ ") for line in source.splitlines() if line.startswith("$ ")]
        path = os.pathsep.join([str(folder()), str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["sh", "-c", "\n".join([*self._exports, *commands])],
            env={**os.environ, "PATH": path, "COLUMNS": "120", "XDG_CONFIG_HOME": f"{os.getcwd()}/.config"},
            capture_output=True,
            text=True,
        )
        self._exports += [command for command in commands if command.startswith("export ")]
        # Standard error is shown if a test fails, and is not compared, because it contains durations.
        sys.stderr.write(done.stderr)
        return done.stdout

    async def _python(self, block: Block, source: str) -> str:
        # Blank lines before the code make the line numbers of a traceback those of the page.
        code = self._compiled("\n" * (block.line - 1) + source, "exec")
        if not block.is_run:
            return ""
        with redirect_stdout(io.StringIO()) as out:
            if block.title is not None:
                # In a separate thread, because a program may start an event loop.
                self.status = await anyio.to_thread.run_sync(_run_program, Path(block.title), source)
            else:
                await self._evaluate(code)
        return out.getvalue()

    def _as_written(self, printed: str) -> str:
        return comparable(self._restored(printed))

    def _restored(self, printed: str) -> str:
        for written, here in self._stands_for.items():
            printed = printed.replace(here, written)
        return printed


def comparable(printed: str) -> str:
    """Returns the part of an output that is the same each time."""
    printed = _SUFFIX.sub("-000000000000", _RANDOM.sub("/00000000_", printed))
    return "\n".join(line.rstrip() for line in printed.splitlines())


def _run_program(path: Path, source: str) -> object:
    path.write_text(source, encoding="utf-8")
    if path.name.startswith("test_"):
        command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", str(path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        sys.stderr.write(done.stdout)
        return done.returncode
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        return end.code or 0
    return 0


_S3_KEYS = {
    "s3.access-key-id": "id",
    "s3.secret-access-key": "secret",
    "s3.session-token": "token",
    "s3.session-token-expires-at-ms": "1795224088134",
    "client.region": "eu-central-1",
}
_VENDS = [{"prefix": "s3://bucket", "config": _S3_KEYS}]
_UNITY_KEYS = {"access_key_id": "id", "secret_access_key": "secret", "session_token": "token"}


@contextmanager
def stand_ins(blocks: Iterable[Block]) -> Iterator[Mapping[str, str]]:
    """Starts the servers of the code; returns for each placeholder the text that replaces it."""
    code = "\n".join(block.source for block in blocks if block.is_code and block.is_run)
    with ExitStack() as stack:
        yield {written: stack.enter_context(start()) for written, start in _SERVERS.items() if written in code}


@contextmanager
def _glue() -> Iterator[str]:
    """AWS has fixed addresses, so environment variables redirect the client."""
    with FakeGlue(region="eu-central-1") as server, pytest.MonkeyPatch.context() as environment:
        server.add_nested_catalog("analytics/eu")
        for service in ("GLUE", "LAKEFORMATION", "STS"):
            environment.setenv(f"AWS_ENDPOINT_URL_{service}", server.endpoint)
        environment.setenv("AWS_ACCESS_KEY_ID", server.properties["access_key_id"])
        environment.setenv("AWS_SECRET_ACCESS_KEY", server.properties["secret_access_key"])
        yield _GLUE


@contextmanager
def _moto() -> Iterator[str]:
    with TemporaryDirectory() as logs, s3(Path(logs), "bucket") as server:
        yield server.endpoint


@contextmanager
def _polaris() -> Iterator[str]:
    with FakePolaris(credential=("my-client", "my-secret"), base="s3://bucket", vends=_VENDS) as server:
        server.add_catalog("lake")
        yield server.endpoint


def _of(make: Callable[[], Any], address: str = "endpoint") -> Callable[[], AbstractContextManager[str]]:
    """Returns a function that starts a fake, and provides one of its addresses."""

    @contextmanager
    def start() -> Iterator[str]:
        with make() as server:
            yield getattr(server, address)

    return start


def _fake(impl: str) -> Callable[[], AbstractContextManager[str]]:
    """Returns a function that starts the HTTP fake of a backend without arguments."""

    module = import_module(f"tests.fakes.{impl}")
    fakes = [it for it in vars(module).values() if isinstance(it, type) and it.__module__ == module.__name__]
    return _of(next(it for it in fakes if issubclass(it, FakeServer)), "url")


_LANCE_KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "hush", "expires_at_millis": "1795224088134"}
_GLUE = '"glue"'
_SERVERS: Mapping[str, Callable[[], AbstractContextManager[str]]] = {
    # The address in the example of a backend is replaced by that of its fake. The fakes below need arguments.
    **{it.example["endpoint"]: _fake(impl) for impl, it in registry.BACKENDS.items() if "endpoint" in it.example},
    _GLUE: _glue,
    "thrift://metastore.example.com:9083": _of(lambda: FakeHive(schemes={"s3"}), "uri"),
    "http://127.0.0.1:5055": _moto,
    "https://catalog.example.com": _of(lambda: FakeIceberg(vends=_VENDS)),
    "https://secured.example.com": _of(lambda: FakeIceberg(token="a-token")),
    "https://lakekeeper.example.com": _of(lambda: FakeLakekeeper(vends=_VENDS)),
    "https://polaris.example.com": _polaris,
    "https://unity.example.com": _of(
        lambda: FakeUnity(credentials={"aws_temp_credentials": _UNITY_KEYS, "expiration_time": 1795224088134})
    ),
    "https://lance.example.com": _of(lambda: FakeRest(credentials=_LANCE_KEYS), "url"),
}
