"""Code that opens a table through the gateway."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from lance_ns_async.gateway.access import TOKEN_HEADER
from lance_ns_async.gateway.explorer.layout import link, visible
from lance_ns_async.gateway.explorer.rows import View
from lance_ns_async.model import TableId, is_pattern, split_names

_OF_VERSIONS = ("lance_ns_async", "SQL, by DuckDB", "pylance", "Shell")
_OF_BRANCHES = ("lance_ns_async", "pylance")


def snippets(
    id: Sequence[str], address: str, version: int | None = None, branch: str | None = None
) -> Mapping[str, str]:
    """Returns code by the name of the library; the token comes from the environment variable LANCE_NS_TOKEN.

    For a version or a branch, there is only the code of those that can open it.
    """
    state = {"version": version, "branch": branch and _python(branch)}
    options = "".join(f", {name}={value}" for name, value in state.items() if value)
    url, names, parent, own = _python(address), _python(id), _python(id[:-1]), _python(id[-1])
    token = f'"header.{TOKEN_HEADER}": os.environ["LANCE_NS_TOKEN"]'
    catalog = f'"rest", {{"uri": {url}, "auth_token": os.environ["LANCE_NS_TOKEN"]}}'
    connected = f"import os\n\nfrom lance_ns_async import Namespace\n\nwith Namespace.connect({catalog}) as ns:\n"
    codes = {
        "lance_ns_async": f"{connected}    dataset = ns.open({names}{options})\n    print(dataset.count_rows())",
        "SQL, by DuckDB": f"{connected}    result = ns.sql({_python(_select(id, version))})\n    print(result)",
        "Polars": f"{connected}    rows = ns.open_many([{names}]).polars().head(20).collect()\n    print(rows)",
        "pylance": (
            "import os\n\nimport lance\nimport lance_namespace\n\n"
            f'client = lance_namespace.connect("rest", {{"uri": {url}, {token}}})\n'
            f"dataset = lance.dataset(namespace_client=client, table_id={names})\n"
            + (f"dataset = dataset.checkout_version(({state['branch']}, {version}))\n" if options else "")
            + "print(dataset.count_rows())"
        ),
        "lancedb": (
            "import os\n\nimport lancedb\n\n"
            f'db = lancedb.connect_namespace("rest", {{"uri": {url}, {token}}})\n'
            f"table = db.open_table({own}, namespace_path={parent})"
        ),
        "Spark": (
            "# pip install 'lance-ns-async[spark]'\n"
            "import os\n\n"
            "from lance_ns_async.spark import LocationResolver\n"
            "from lance_ns_async.spark.local import local_spark\n\n"
            f"resolver = LocationResolver.connect({catalog})\n"
            f'table = resolver.prefetch([{names}], on_error="raise")\n'
            "rows = table.dataframe(local_spark())\n"
            "rows.show()"
        ),
        **_shell(id, address, version),
    }
    kept = codes if not options else _OF_BRANCHES if branch else _OF_VERSIONS
    return {library: code for library, code in codes.items() if library in kept}


def select_link(view: View) -> str | None:
    """Returns the address of the page with the rows of a view by SQL; None for a branch, which SQL cannot read."""
    order = f" ORDER BY {_quoted(view.sort)}{' DESC' if view.down else ''}" if view.sort else ""
    rest = (f" WHERE {view.filter}" if view.filter else "") + order
    return None if view.branch else link("sql", q=_select(view.id, view.version, rest))


def _select(id: Sequence[str], version: int | None, rest: str = "") -> str:
    at = f" AT (VERSION => {version})" if version else ""
    return f"SELECT * FROM {'.'.join(map(_quoted, id))}{at}{rest} LIMIT 20"  # noqa: S608 - a person sees it


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _python(value: str | Sequence[str]) -> str:
    """Returns a text or a list of texts as a Python literal without unprintable characters."""
    return visible(json.dumps(value, ensure_ascii=False))


def _shell(id: Sequence[str], address: str, version: int | None) -> Mapping[str, str]:
    """Returns commands; none for an id that they cannot contain, or would read differently."""
    text = str(TableId(id))
    if split_names(text) != list(id) or is_pattern(text) or not text.isprintable() or text.startswith("-"):
        return {}
    table = shlex.quote(text) + (f" --version {version}" if version else "")
    return {
        "Shell": (
            "# pip install 'lance-ns-async[cli]'\n"
            f"export LANCE_NS_IMPL=rest LANCE_NS_PROPERTY_URI={shlex.quote(address)}\n"
            'export LANCE_NS_PROPERTY_AUTH_TOKEN="$LANCE_NS_TOKEN"\n'
            f"lance-ns head {table}\n"
            f"lance-ns query {table} --limit 3 --json"
        )
    }
