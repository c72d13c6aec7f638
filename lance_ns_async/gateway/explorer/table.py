"""The page of a table, with code that opens it."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, PermissionDeniedError, TableNotFoundError
from lance_namespace_urllib3_client.models.json_arrow_data_type import JsonArrowDataType

from lance_ns_async.errors import shortened
from lance_ns_async.gateway.access import TOKEN_HEADER
from lance_ns_async.gateway.explorer import layout
from lance_ns_async.gateway.explorer.layout import Markup, Page, html, link, name, visible
from lance_ns_async.gateway.explorer.pages import CatalogReader, outcome, run_all, show, show_error
from lance_ns_async.masked import without_user
from lance_ns_async.model import TableId
from lance_ns_async.rendering import size_text

_SAMPLE_ROWS = 20
MAX_FIND = 50_000  # Maximum number of characters of the words or the vector to search by.
_VERSIONS = 20
_MAX_ENTRIES = 100  # Maximum number of tags and of indices.

_MAX_FIELDS = 1_000

MAX_COLUMNS = 50  # Maximum number of columns of the sample.

_MAX_TEXT = 200
_MAX_THUMBNAIL = 200_000
_FIRST_ELEMENTS = 4  # Number of elements of a list, or of fields of a struct, that are shown.

_MAX_DEPTH = 3

_IMAGES = (  # The first bytes of images. SVG is not among them, because it can contain scripts.
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)

_BLOB = frozenset({"position", "size"})
_BLOB_2 = frozenset({"kind", "position", "size", "blob_id"})
"""The fields in which Lance describes a column of blobs instead of reading them."""

_LISTS = ("list", "large_list", "list_view", "large_list_view")


async def table_page(reader: CatalogReader, id: TableId, address: str, find: str = "") -> Page:
    """Returns the page of a table; its sections are read concurrently, and each shows its own error.

    Args:
        reader: The catalog.
        id: The table.
        address: The address of the gateway.
        find: The words or the vector whose nearest rows are the sample; empty for the first rows.
    """
    work: list[Coroutine[Any, Any, Any]] = [
        outcome(reader.read("describe_table", id=list(id), vend_credentials=False)),
        show(_rows(reader, id)),
        show(_sample(reader, id, find)),
        *(show(read(reader, id)) for read in _SECTIONS.values()),
    ]
    description, rows, sample, *parts = await run_all(work)
    if isinstance(description, TableNotFoundError | PermissionDeniedError):
        raise description
    sections = dict(zip(_SECTIONS, parts, strict=True))
    contents = {
        "Overview": _overview(id, description, rows),
        "Columns": sections.pop("Columns"),
        "Sample rows": html("{}{}", _search_form(id, find), sample),
        "Open this table": _snippets(id, address),
        **sections,
        "Properties": show_error(description)
        if isinstance(description, BaseException)
        else layout.properties(description.properties or {}),
    }
    body = html(
        '{}<h1>{}</h1><nav class="contents" aria-label="Sections">{}</nav>{}',
        layout.breadcrumbs(id.parent, id.name),
        name(id.name),
        [html('<a href="#{}">{}</a>', layout.key_of(title), title) for title in contents],
        [layout.section(title, content) for title, content in contents.items()],
    )
    return Page(id.name, body, below=id.parent)


def _overview(id: TableId, description: Any, rows: Markup) -> Markup:
    facts: list[tuple[str, Markup]] = [("Id", html("<code>{}</code>", name(str(id))))]
    if isinstance(description, BaseException):
        facts.append(("Location", show_error(description)))
    else:
        location = without_user(description.location or "unknown")
        facts.append(("Location", html("<code>{}</code>", visible(location))))
        if description.managed_versioning:
            facts.append(("Versions", Markup("managed by the catalog")))
    facts.append(("Rows", rows))
    return html("<dl>{}</dl>", [html("<div><dt>{}</dt><dd>{}</dd></div>", *fact) for fact in facts])


def _snippets(id: TableId, address: str) -> Markup:
    return html(
        '<div class="snippets">{}</div>',
        [
            html(
                '<details name="snippet"{}><summary>{}</summary><pre data-copy tabindex="0">{}</pre></details>',
                Markup(" open") if i == 0 else None,
                title,
                code,
            )
            for i, (title, code) in enumerate(snippets(id, address).items())
        ],
    )


async def _rows(reader: CatalogReader, id: TableId) -> Markup:
    return html("{}", number((await reader.read("count_table_rows", id=list(id))).count))


async def _schema(reader: CatalogReader, id: TableId) -> Markup:
    response = await reader.read("describe_table", id=list(id), load_detailed_metadata=True)
    if response.var_schema is None:
        return layout.note("Nothing was written to the table yet.")
    fields = response.var_schema.fields
    rows = [
        (
            name(field.name),
            html("<code>{}</code>", visible(shortened(type_text(field.type), 500))),
            "yes" if field.nullable else "no",
        )
        for field in fields[:_MAX_FIELDS]
    ]
    note = f"The first {len(rows):,} of {len(fields):,} columns." if len(fields) > len(rows) else None
    return layout.table("Columns and their types", ("Column", "Type", "Can be null"), rows, note)


async def _sample(reader: CatalogReader, id: TableId, find: str) -> Markup:
    response = await reader.read("query_table", id=list(id), k=_SAMPLE_ROWS, **_query(find))
    return await asyncio.to_thread(sample_table, response.data, *(["No row was found."] if find else []))


def _query(find: str) -> Mapping[str, Any]:
    """Returns the fields of a search: by a vector if the text is a list of numbers, else by words."""
    if not find:
        return {"vector": {}}
    if not find.startswith("["):
        return {"vector": {}, "full_text_query": {"string_query": {"query": find}}}
    try:
        return {"vector": {"single_vector": [float(it) for it in json.loads(find)]}}
    except (TypeError, ValueError, RecursionError):
        raise InvalidInputError(f"{shortened(find, 80)}: no list of numbers; an example is [0.5, 1.25]") from None


def _search_form(id: TableId, find: str) -> Markup:
    return html(
        '<form class="search rows" action="/ui/table#sample-rows">{}<label class="hidden" for="find">Words, or a vector'
        '</label><input id="find" type="search" name="find" value="{}" placeholder="Words, or a vector: [0.5, 1.25]" '
        'maxlength="{}"><button>Find rows</button><a href="{}">Query with SQL</a></form>',
        [html('<input type="hidden" name="id" value="{}">', part) for part in id],
        find,
        MAX_FIND,
        select_link(id),
    )


async def _versions(reader: CatalogReader, id: TableId) -> Markup:
    response = await reader.read("list_table_versions", id=list(id), limit=_VERSIONS, descending=True)
    versions = response.versions[:_VERSIONS]
    # Few catalogs say it, and reading the transactions of the dataset would take a request for each version.
    operations = any("operation" in (it.metadata or {}) for it in versions)
    rows = []
    for it in versions:
        metadata = it.metadata or {}
        operation = [visible(metadata.get("operation", ""))] if operations else []
        rows.append((it.version, time(it.timestamp_millis), _count(metadata.get("total_rows")), *operation))
    note = f"The newest {_VERSIONS} versions." if response.page_token else None
    head = ("Version", "Time", "Rows", *(["Operation"] if operations else []))
    return layout.table("Versions", head, rows, note)


async def _tags(reader: CatalogReader, id: TableId) -> Markup:
    response = await reader.read("list_table_tags", id=list(id), limit=_MAX_ENTRIES)
    rows = [(name(tag), it.version, visible(it.branch or "main")) for tag, it in response.tags.items()]
    note = f"The first {_MAX_ENTRIES} tags." if response.page_token else None
    return layout.table("Tags", ("Tag", "Version", "Branch"), rows, note)


async def _indices(reader: CatalogReader, id: TableId) -> Markup:
    response = await reader.read("list_table_indices", id=list(id), limit=_MAX_ENTRIES)
    rows = [
        (name(it.index_name), visible(it.index_type or ""), visible(", ".join(it.columns)), _coverage(it))
        for it in response.indexes
    ]
    note = f"The first {_MAX_ENTRIES} indices." if response.page_token else None
    return layout.table("Indices", ("Index", "Type", "Columns", "Covered rows"), rows, note)


async def _statistics(reader: CatalogReader, id: TableId) -> Markup:
    stats = await reader.read("get_table_stats", id=list(id))
    fragments, lengths = stats.fragment_stats, stats.fragment_stats.lengths
    rows = [
        ("Size", size_text(stats.total_bytes)),
        ("Rows", number(stats.num_rows)),
        ("Indices", number(stats.num_indices)),
        ("Fragments", number(fragments.num_fragments)),
        ("Small fragments", number(fragments.num_small_fragments)),
        ("Rows of a fragment", f"{lengths.min:,} to {lengths.max:,}, median {lengths.p50:,}"),
    ]
    return html("<dl>{}</dl>", [html("<div><dt>{}</dt><dd>{}</dd></div>", *row) for row in rows])


_SECTIONS = {  # The sections of a table's page that are read on their own.
    "Columns": _schema,
    "Versions": _versions,
    "Tags": _tags,
    "Indices": _indices,
    "Statistics": _statistics,
}


def _coverage(index: Any) -> Markup:
    covered, missed = index.num_indexed_rows, index.num_unindexed_rows
    if covered is None or missed is None:
        return html("{}", number(covered))
    total = covered + missed
    return html(
        '{} of {} <meter min="0" max="{}" value="{}" aria-label="Share of covered rows"></meter>',
        number(covered),
        number(total),
        total or 1,
        covered if total else 1,
    )


def _count(text: str | None) -> str:
    return number(int(text)) if text is not None and text.isdecimal() else "\N{EN DASH}"


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


def type_text(json_type: JsonArrowDataType, depth: int = 0) -> str:
    """Returns a type of the spec as text, such as `vector[768] of float32` or `struct<x: int64>`."""
    inner = json_type.fields or []
    if depth > _MAX_DEPTH:
        return "..."
    parts = [type_text(field.type, depth + 1) for field in inner]
    match json_type.type.lower():
        case "fixed_size_list" if parts:
            kind = "vector" if parts[0] in ("float16", "float32", "float64") else "list"
            return f"{kind}[{json_type.length}] of {parts[0]}"
        case word if word in _LISTS and parts:
            return f"list of {parts[0]}"
        case "struct":
            return f"struct<{', '.join(f'{field.name}: {part}' for field, part in zip(inner, parts, strict=True))}>"
        case "map" if inner and len(entries := inner[0].type.fields or []) == 2:
            return f"map of {type_text(entries[0].type, depth + 1)} to {type_text(entries[1].type, depth + 1)}"
        case "fixed_size_binary":
            return f"binary[{json_type.length}]"
        case "decimal128" | "decimal256" as word if json_type.length is not None:
            return f"{word}({json_type.length // 1000}, {json_type.length % 1000})"
        case _:
            return json_type.type


def sample_table(data: bytes, if_empty: str = "The table has no rows.") -> Markup:
    """Returns the rows of an Arrow IPC file as a table; takes time in proportion to the shown part only."""
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        return rows_table(reader.read_all(), "Sample rows", if_empty)


def rows_table(rows: pa.Table, caption: str, if_empty: str) -> Markup:
    """Returns rows as a table, or a note if there are none."""
    if not rows.num_rows:
        return layout.note(if_empty)
    names = rows.column_names[:MAX_COLUMNS]
    head = [html('<th scope="col"><bdi>{}</bdi></th>', visible(shortened(it, _MAX_TEXT))) for it in names]
    body = [
        html("<tr>{}</tr>", [html("<td>{}</td>", cell(rows.column(i)[row])) for i in range(len(names))])
        for row in range(rows.num_rows)
    ]
    more = rows.num_columns - len(names)
    note = layout.note(f"{more:,} more columns are not shown.") if more > 0 else None
    return html(
        '{}<div class="scroll" tabindex="0" role="region" aria-label="{}"><table class="sample">'
        '<caption class="hidden">{}</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>',
        note,
        caption,
        caption,
        head,
        body,
    )


def cell(value: pa.Scalar) -> Markup:
    """Returns a value of a sample: long texts and lists are cut, and small images are shown."""
    if isinstance(value, pa.ExtensionScalar):
        return Markup("null") if value.value is None else cell(value.value)
    if not value.is_valid:
        return html('<span class="null">null</span>')
    if _is_binary(value.type):
        return _blob(value.as_buffer())
    if pa.types.is_struct(value.type):
        fields = {field.name for field in value.type}
        if fields == _BLOB or fields >= _BLOB_2:
            return html('<span class="blob">{}</span>', f"{number(value['size'].as_py())} bytes")
    return html("<bdi>{}</bdi>", visible(shortened(_text(value), _MAX_TEXT)))


def _blob(data: pa.Buffer) -> Markup:
    start = data[:16].to_pybytes()
    kind = next((kind for magic, kind in _IMAGES if start.startswith(magic)), None)
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None or data.size >= _MAX_THUMBNAIL:
        return html('<span class="blob">{}</span>', f"{data.size:,} bytes")
    return html(
        '<img src="data:{};base64,{}" alt="{}" loading="lazy">',
        kind,
        b64encode(data).decode(),
        f"Image of {data.size:,} bytes",
    )


def _text(value: Any, depth: int = 0) -> str:
    """Returns a scalar as text; of lists and structs only the first elements are read."""
    if not value.is_valid:
        return "null"
    if depth > _MAX_DEPTH:
        return "..."
    kind = value.type
    if isinstance(value, pa.ExtensionScalar):
        return _text(value.value, depth)
    if _is_binary(kind):
        return f"{value.as_buffer().size:,} bytes"
    if pa.types.is_struct(kind):
        fields = [f"{kind[i].name}: {_text(value[i], depth + 1)}" for i in range(min(kind.num_fields, _FIRST_ELEMENTS))]
        return f"{{{', '.join([*fields, *(['...'] if kind.num_fields > _FIRST_ELEMENTS else [])])}}}"
    if isinstance(value, pa.ListScalar):
        elements = value.values
        parts = [_text(elements[i], depth + 1) for i in range(min(len(elements), _FIRST_ELEMENTS))]
        more = f", ... {len(elements):,} values" if len(elements) > _FIRST_ELEMENTS else ""
        return f"[{', '.join(parts)}{more}]"
    if pa.types.is_floating(kind):
        return f"{value.as_py():.6g}"
    try:
        return str(value.as_py())
    except (ValueError, OverflowError, ImportError):
        # Python cannot represent some times, and texts may not be valid UTF-8.
        return "(cannot be shown)"


def _is_binary(kind: pa.DataType) -> bool:
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(check(kind) for check in checks)


def number(value: int | float | None) -> str:
    """Returns a number with separators; a dash for None."""
    return "\N{EN DASH}" if value is None else f"{value:,}"


def time(milliseconds: int | None) -> Markup:
    """Returns a time since 1970 in UTC; a dash for None, and the number if it is no time of this calendar."""
    if milliseconds is None:
        return Markup("\N{EN DASH}")
    try:
        value = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return html("{}", number(milliseconds))
    text = f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return html('<time datetime="{}">{}</time>', value.isoformat(), text)
