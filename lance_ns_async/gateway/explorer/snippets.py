"""Code that opens a table through the gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from lance_ns_async.gateway.access import TOKEN_HEADER
from lance_ns_async.gateway.explorer.layout import link, visible
from lance_ns_async.model import TableId


def snippets(id: Sequence[str], address: str) -> Mapping[str, str]:
    """Returns code by the name of the library; the token comes from the environment variable LANCE_NS_TOKEN."""
    url, names, parent, own = _python(address), _python(id), _python(id[:-1]), _python(id[-1])
    token = f'"header.{TOKEN_HEADER}": os.environ["LANCE_NS_TOKEN"]'
    sql = ".".join(map(_quote, ("lake", *id)))
    connected = (
        "import os\n\n"
        "from lance_ns_async import Namespace\n\n"
        f'with Namespace.connect("rest", {{"uri": {url}, "auth_token": os.environ["LANCE_NS_TOKEN"]}}) as ns:\n'
    )
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
            "# spark.sql.catalog.lake                        org.lance.spark.LanceNamespaceSparkCatalog\n"
            "# spark.sql.catalog.lake.impl                   rest\n"
            f"# spark.sql.catalog.lake.uri                    {address}\n"
            f"# spark.sql.catalog.lake.headers.{TOKEN_HEADER}  (the token)\n"
            "# spark.sql.catalog.lake.single_level_ns        false\n"
            f"rows = spark.table({_python(sql)})"
        ),
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


def _quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
