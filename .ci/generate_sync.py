"""Generates `sync.py` from `client.py` and the registry, and the names of catalogs in `__init__.py`.

`--check` fails if they are not up to date.

A method of one line becomes a method of one line:

    return await tables.drop_table(self.session, request)              # of AsyncNamespace
    return self._call(tables.drop_table, request)                      # of Namespace

    return bulk.flatten(bulk.table_groups(self.session, namespace))
    return self._flatten(lambda session: bulk.table_groups(session, namespace))
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from textwrap import wrap

from lance_ns_async.facade.base import keywords
from lance_ns_async.registry import BACKENDS, CLASS_PATHS

FOLDER = Path(__file__).parents[1] / "lance_ns_async"

HEAD = '''"""The sync namespace. `.ci/generate_sync.py` generates this file from `client.py`: change it there."""

from __future__ import annotations

from lance_ns_async.facade.callbacks import open_with_callbacks
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.facade.base import ByProperties, Facade, Property, documented_by
from lance_ns_async.many.patterns import in_memory
from lance_ns_async.many.scanning import RowReader
from lance_ns_async.operations.requests import several
from lance_ns_async.errors import without_inner_calls
from collections.abc import Callable, Coroutine, Iterator
from typing import TypeVar

{imports}

T = TypeVar("T")


@name_iterators
@documented_by(AsyncNamespace)
class Namespace(Facade, spec.LanceNamespace):
    """A Lance namespace over one catalog, for use from any thread, also within a running event loop.

    The methods have the arguments, results, errors and costs of those of `AsyncNamespace`, and `help` shows them.

    An instance may be shared by threads, used after a fork, and pickled. A pickle contains the properties, including
    secrets: store it accordingly. With a callable as `token`, a namespace can be pickled only if the callable can: a
    function of a module, not a lambda.

    {errors}
    """

    @classmethod
    def connect(
        cls,
        impl: str,
        properties: Mapping[str, str | PathLike[str]],
        *,
        policy: Policy | None = None,
        token: TokenFunction | None = None,
        transport: Transports | None = None,
    ) -> Namespace:
        {connect}
        properties = conceal(properties)
        return Namespace(impl, properties, policy, token=token, transport=transport)

    def _open_session(self) -> Session:
        return open_with_callbacks(self._impl, self._properties, self._policy)

    def run(self, work: Callable[[AsyncNamespace], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine of the async namespace on the background loop and returns its result.

        Args:
            work: Receives the async namespace, and returns the coroutine.

        Raises:
            InvalidInputError: The namespace is closed.
            InternalError: The calling thread is the thread of the background loop.
        """
        lease = self._lease()
        try:
            return lease.loop.run(work(AsyncNamespace(lease.session)))
        except LanceNamespaceError as e:
            raise without_inner_calls(e) from e.__cause__

    async def arun(self, work: Callable[[AsyncNamespace], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine like `run`, but awaits its result: in any event loop, also in the background loop itself.

        A cancellation cancels the coroutine. Outside the background loop, it does not wait for the rollback.

        Args:
            work: Receives the async namespace, and returns the coroutine.

        Raises:
            InvalidInputError: The namespace is closed.
        """
        lease = self._lease()
        try:
            return await lease.loop.arun(work(AsyncNamespace(lease.session)))
        except LanceNamespaceError as e:
            raise without_inner_calls(e) from e.__cause__

'''

NAMED = '''
class {name}(ByProperties, Namespace):
    """{summary}"""

    impl = "{impl}"

    if TYPE_CHECKING:
        # fmt: off
        def __init__(
{parameters}
        ) -> None: ...
        # fmt: on

'''


def generate() -> str:
    """Returns the source of the sync namespace."""
    source = (FOLDER / "client.py").read_text()
    module = ast.parse(source)
    lines = source.splitlines()

    def text(start: ast.stmt, end: ast.stmt) -> str:
        return "\n".join(lines[start.lineno - 1 : end.end_lineno])

    imports = [text(node, node) for node in module.body if isinstance(node, ast.Import | ast.ImportFrom | ast.If)]
    (cls,) = (node for node in module.body if isinstance(node, ast.ClassDef))
    methods: list[str] = []
    connect = ""
    for method in cls.body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring, body = method.body[0], method.body[-1]
        if method.name == "connect":
            connect = text(docstring, docstring).strip()
        call = sync_call(" ".join(text(body, body).split()))
        if call is None:
            continue
        head = lines[method.lineno - 1 : docstring.lineno - 1]
        signature = re.sub(
            r"AsyncGenerator\[(.*), None\]", r"Iterator[\1]", "\n".join(head).replace("async def", "def")
        )
        if "-> RowStream:" in signature:
            signature, call = signature.replace("RowStream", "RowReader"), call.replace("._call(", "._read(")
        summary = f'        """{(ast.get_docstring(method) or "").splitlines()[0]}"""'
        methods.append("\n".join([signature, summary, f"        {call}", ""]))
    class_docstring = ast.get_docstring(cls) or ""
    errors = (
        class_docstring[class_docstring.index("Each operation") :].replace("\n", "\n    ").replace("\n    \n", "\n\n")
    )
    head_text = HEAD.format(
        imports="\n".join(line for line in imports if "__future__" not in line), errors=errors, connect=connect
    )
    classes = [
        NAMED.format(
            name=path.rpartition(".")[2], summary=BACKENDS[impl].summary, impl=impl, parameters=parameters(impl)
        )
        for impl, path in CLASS_PATHS.items()
    ]
    return head_text + "\n".join(methods + classes)


def parameters(impl: str) -> str:
    """Returns the parameters of a class with the catalog's name, in few lines."""
    own = [f"{name}: Property = ..." for name in keywords(impl)]
    objects = ("token: TokenFunction | str | None = None", "transport: Transports | str | None = None")
    # A blank within a parameter is no place for a line end.
    items = (f"{it},".replace(" ", "\xa0") for it in ("self", "/", "*", *own, *objects, "**properties: Property"))
    lines = wrap(" ".join(items), 120, initial_indent=" " * 12, subsequent_indent=" " * 12)
    return "\n".join(lines).replace("\xa0", " ")


def sync_call(statement: str) -> str | None:
    """Returns the sync form of the only statement of an async method; None if the method is not an operation."""
    for pattern, replacement in (
        (r"return await (\w+\.\w+)\( ?self\.session(?:, )?(.*)\)", r"return self._call(\1, \2)"),
        (
            r"return bulk\.flatten\( ?(\w+\.\w+)\( ?self\.session, (.*?),? ?\) ?\)",
            r"return self._flatten(lambda session: \1(session, \2))",
        ),
        (r"return bulk\.(stream_tables)\(self\.session, (.*)\)", r"return self._\1(\2)"),
    ):
        if match := re.fullmatch(pattern, statement):
            # An iterable is read in the calling thread, because an iterator of this namespace would wait for the loop
            # on the loop. `stream_tables` reads the ids in groups.
            call = match.expand(replacement)
            if "_call" not in replacement:
                return call
            call = re.sub(r"\bnamespaces,", "list(several(namespaces)),", call).replace(" tables,", " list(tables),")
            return call.replace(" what,", " in_memory(what),")
    return None


def formatted(source: str, rules: str) -> str:
    """Returns the source after the repairs of these rules of ruff, and formatted."""
    for command in (["check", "--fix", "--quiet", "--select", rules], ["format", "--quiet"]):
        ruff = ["ruff", *command, "--stdin-filename", str(FOLDER / "sync.py"), "-"]
        source = subprocess.run(ruff, input=source, capture_output=True, text=True, check=True).stdout
    return source


def with_classes(source: str) -> str:
    """Returns the source of the package's `__init__.py` with the classes of all catalogs."""
    classes = [path.rpartition(".")[2] for path in CLASS_PATHS.values()]
    imports = f"lance_ns_async.sync import {', '.join(sorted(['Namespace', *classes]))}"
    source = re.sub(r"lance_ns_async\.sync import (\([^)]*\)|.*)", imports, source)
    names = re.findall(r'^    "(\w+)",$', source, re.M)
    others = [name for name in names if name in ("AsyncNamespace", "Namespace") or not name.endswith("Namespace")]
    listed = "".join(f'    "{name}",\n' for name in sorted([*others, *classes]))
    return re.sub(r"__all__ = \[\n[^]]*\]", f"__all__ = [\n{listed}]", source)


def main() -> None:
    """Writes the files, or compares them with `--check`."""
    package = FOLDER / "__init__.py"
    sources = {
        FOLDER / "sync.py": formatted(generate(), "F401,I"),
        package: formatted(with_classes(package.read_text()), "I"),
    }
    for path, source in sources.items():
        if "--check" not in sys.argv[1:]:
            path.write_text(source)
        elif path.read_text() != source:
            sys.exit(f"{path} is not up to date; run: python .ci/generate_sync.py")


if __name__ == "__main__":
    main()
