"""Code that opens a table through the gateway."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from lance_ns_async.gateway.access import TOKEN_HEADER
from lance_ns_async.gateway.explorer.layout import link, visible
from lance_ns_async.model import TableId, is_pattern, split_names


def snippets(id: Sequence[str], address: str) -> Mapping[str, str]:
    """Returns code by the name of the library; the token comes from the environment variable LANCE_NS_TOKEN."""
    url, names, parent, own = _python(address), _python(id), _python(id[:-1]), _python(id[-1])
    token = f'"header.{TOKEN_HEADER}": os.environ["LANCE_NS_TOKEN"]'
    catalog = f'"rest", {{"uri": {url}, "auth_token": os.environ["LANCE_NS_TOKEN"]}}'
    connected = f"import os\n\nfrom lance_ns_async import Namespace\n\nwith Namespace.connect({catalog}) as ns:\n"
    return {
        "lance_ns_async": f"{connected}    dataset = ns.open({names})\n    print(dataset.count_rows())",
        "SQL, by DuckDB": f"{connected}    result = ns.sql({_python(_select(id))})\n    print(result)",
        "Polars": f"{connected}    rows = ns.open_many([{names}]).polars().head(20).collect()\n    print(rows)",
        "pylance": (
            "import os\n\nimport lance\nimport lance_namespace\n\n"
            f'client = lance_namespace.connect("rest", {{"uri": {url}, {token}}})\n'
            f"dataset = lance.dataset(namespace_client=client, table_id={names})"
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
        **_shell(id, address),
    }


def select_link(id: TableId) -> str:
    """Returns the address of the page with the first rows of a table."""
    return link("sql", q=_select(id))


def _select(id: Sequence[str]) -> str:
    names = ".".join('"' + part.replace('"', '""') + '"' for part in id)
    return f"SELECT * FROM {names} LIMIT 20"  # noqa: S608 - a person sees it, and it is checked


def _python(value: str | Sequence[str]) -> str:
    """Returns a text or a list of texts as a Python literal without unprintable characters."""
    return visible(json.dumps(value, ensure_ascii=False))


def _shell(id: Sequence[str], address: str) -> Mapping[str, str]:
    """Returns commands; none for an id that they cannot contain, or would read differently."""
    text = str(TableId(id))
    if split_names(text) != list(id) or is_pattern(text) or not text.isprintable() or text.startswith("-"):
        return {}
    table = shlex.quote(text)
    return {
        "Shell": (
            "# pip install 'lance-ns-async[cli]'\n"
            f"export LANCE_NS_IMPL=rest LANCE_NS_PROPERTY_URI={shlex.quote(address)}\n"
            'export LANCE_NS_PROPERTY_AUTH_TOKEN="$LANCE_NS_TOKEN"\n'
            f"lance-ns head {table}\n"
            f"lance-ns query {table} --limit 3 --json"
        )
    }
