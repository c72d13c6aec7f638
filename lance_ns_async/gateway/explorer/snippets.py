"""Code that opens a table through the gateway, for copying."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from lance_ns_async.gateway.access import TOKEN_HEADER
from lance_ns_async.gateway.explorer.html import visible


def snippets(id: Sequence[str], address: str) -> Mapping[str, str]:
    """Returns code by the name of the library; the token comes from the environment variable LANCE_NS_TOKEN.

    Args:
        id: The id of the table.
        address: The address of the gateway.
    """
    url, names, parent, own = _python(address), _python(id), _python(id[:-1]), _python(id[-1])
    token = f'"header.{TOKEN_HEADER}": os.environ["LANCE_NS_TOKEN"]'
    sql = ".".join(map(_quote, ("lake", *id)))
    return {
        "lance_ns_async": (
            "import os\n\n"
            "from lance_ns_async import Namespace\n\n"
            f'with Namespace.connect("rest", {{"uri": {url}, "auth_token": os.environ["LANCE_NS_TOKEN"]}}) as ns:\n'
            f"    dataset = ns.open({names})\n"
            "    print(dataset.count_rows())"
        ),
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


def _python(value: str | Sequence[str]) -> str:
    """Returns a text or a list of texts as a Python literal without unprintable characters."""
    return visible(json.dumps(value, ensure_ascii=False))


def _quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
