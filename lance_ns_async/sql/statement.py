"""The SQL of a user as DuckDB parses it: which tables it reads, and the checked text with their names in DuckDB.

DuckDB's own parser writes a statement as JSON if, and only if, it is a SELECT. What runs is written by DuckDB from this
JSON, so that nothing runs that was not checked.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from lance_namespace.errors import InvalidInputError, UnsupportedOperationError

from lance_ns_async.errors import nearest, one_line, shortened
from lance_ns_async.model import DELIMITER, TableId, is_pattern

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Node: TypeAlias = dict[str, Any]
"""A node of the JSON of a statement."""

MAX_LENGTH = 100_000
"""Maximum number of characters of a statement."""

MAX_TABLES = 1_000
"""Maximum number of names of tables and patterns in a statement; a pattern may match any number of tables."""

SEARCHES = ("nearest", "search")
"""The functions of this package that search tables."""

_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})
"""Table functions of DuckDB that read nothing but their arguments."""

_OWN = "__lance_"  # The beginning of the names that tables get in DuckDB.

_TABLES = "tables"  # The function that reads all tables of a pattern, like the pattern in quotes.

_REFERENCES = frozenset(
    {"BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY", "TABLE_FUNCTION"}
)
"""The kinds of items in FROM that are supported."""

_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reading:
    """A table or pattern that a statement reads."""

    what: TableId | str
    """The id of a table, or a pattern."""
    version: int | str | None = None
    """The number or the tag of the version; None for the latest."""

    @property
    def is_pattern(self) -> bool:
        """Whether it can be several tables."""
        return isinstance(self.what, str)


@dataclass(frozen=True, slots=True)
class Searching:
    """A search that a statement calls as a table function."""

    function: str
    arguments: Sequence[Any]
    options: Mapping[str, Any]


@dataclass(slots=True)
class Statement:
    """A SELECT statement, with names of DuckDB in place of those of the catalog."""

    sql: str = ""
    """The statement for DuckDB."""
    explain: str = ""
    """`EXPLAIN` or `EXPLAIN ANALYZE` if only the plan is requested."""
    readings: dict[Reading, str] = field(default_factory=dict)
    """The names in DuckDB of the tables and patterns."""
    searches: list[tuple[str, Searching]] = field(default_factory=list)
    """The searches, by their names in DuckDB."""
    columns: frozenset[str] | None = None
    """The names, without case, that a column must have to be used; None if all columns may be used."""


def parse(connection: DuckDBPyConnection, text: str, check: Callable[[Node], None] | None = None) -> Statement:
    """Returns the checked statement.

    Args:
        connection: A connection without data, which parses the text.
        text: One SELECT statement, maybe after EXPLAIN; FROM may have names of the catalog and patterns.
        check: Raises an error if the statement is not allowed.

    Raises:
        InvalidInputError: The text is too long, is no valid SQL, or not exactly one statement.
        UnsupportedOperationError: It does not only read tables of the catalog.
    """
    if not text.strip():
        raise InvalidInputError("sql: the statement is empty; for example, use SELECT * FROM sales.orders LIMIT 10")
    if len(text) > MAX_LENGTH:
        raise InvalidInputError(f"sql: {len(text):,} characters are too many; use {MAX_LENGTH:,} or fewer")
    statement = Statement()
    if (explain := _EXPLAIN.match(text)) is not None:
        statement.explain = "EXPLAIN ANALYZE" if explain[1] else "EXPLAIN"
        text = text[explain.end() :]
    try:
        text = _quote_patterns(text)
        tree = json.loads(_value(connection, "SELECT json_serialize_sql(?)", text))
        select = _only_statement(tree, text)
        if check is not None:
            check(select)
        _Names(connection, statement).rewrite(select)
        statement.columns = _used_columns(select)
        statement.sql = _value(connection, "SELECT json_deserialize_sql(?)", json.dumps(tree))
    except RecursionError:
        raise InvalidInputError("sql: the statement is nested too deeply") from None
    return statement


def _value(connection: DuckDBPyConnection, sql: str, argument: str) -> str:
    ((value,),) = connection.execute(sql, [argument]).fetchall()
    return str(value)


def _only_statement(tree: Node, text: str) -> Node:
    if tree["error"]:
        reason = one_line(tree["error_message"]).partition(' Use "SET')[0]
        if tree["error_type"] != "parser":
            raise UnsupportedOperationError(
                "Not supported: sql: only SELECT statements, which read; changes are operations of the namespace"
            )
        rest = text.encode()[int(tree.get("position") or 0) :].decode(errors="ignore")
        where = f" at {rest[:30]!r}" if tree.get("position") else ""
        # Names that are no identifiers end at such a character.
        quote = '; write names with other characters as in "my-name"' if rest[:1] in ("-", ".") else ""
        raise InvalidInputError(f"sql: {shortened(reason, 300)}{where}{quote}")
    statements: list[Node] = tree["statements"]
    if len(statements) != 1:
        raise InvalidInputError(f"sql: there are {len(statements)} statements; pass one")
    return statements[0]


def _quote_patterns(text: str) -> str:
    """Returns the text with quotes around names with `*` after FROM and JOIN, which are no SQL without."""
    if "*" not in text:
        return text
    import duckdb

    # Positions are those of bytes.
    data = text.encode()
    starts = [start for start, _ in duckdb.tokenize(text)]
    tokens = [data[start:end].decode() for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    result: list[str] = []
    index = 0
    while index < len(tokens):
        result.append(tokens[index])
        index += 1
        if result[-1].strip().casefold() not in ("from", "join"):
            continue
        end = index
        while end < len(tokens) and tokens[end].strip() not in ("", "(", ")", ",", ";"):
            end += 1
            # A name ends at a space; there is none around its dots.
            if tokens[end - 1] != tokens[end - 1].rstrip():
                break
        if any("*" in token and token[0] not in "\"'" for token in tokens[index:end]):
            name = "".join(tokens[index:end])
            pattern = _joined(_parts(tokens[index:end])).replace('"', '""')
            result.append(f'"{pattern}"{name[len(name.rstrip()) :]}')
            index = end
    return "".join(result)


def _parts(tokens: Sequence[str]) -> Sequence[str]:
    """Returns the names between the dots, without quotes."""
    parts = [""]
    for token in map(str.strip, tokens):
        if token == ".":
            parts.append("")
        else:
            parts[-1] += token[1:-1].replace('""', '"') if token[0] == '"' else token
    return parts


def _joined(path: Sequence[str]) -> str:
    """Returns the text of a pattern with these names."""
    if any(DELIMITER in name for name in path):
        raise InvalidInputError(f"sql: {'.'.join(path)}: names in a pattern may not have {DELIMITER}")
    return (DELIMITER if any("." in name for name in path) else ".").join(path)


class _Names:
    """Replaces the names of the catalog in a statement."""

    def __init__(self, connection: DuckDBPyConnection, statement: Statement) -> None:
        self._connection = connection
        self._statement = statement
        self._unaliased: list[tuple[Node, tuple[str, ...]]] = []
        """The tables of the catalog without an alias, with their names."""

    def rewrite(self, node: Node) -> None:
        """Checks a node and all below it, and replaces the names of tables in them."""
        self._rewrite(node, frozenset())
        _qualify(node, self._set_aliases())

    def _set_aliases(self) -> Mapping[tuple[str, ...], str]:
        """Gives tables their own name as alias, or all their names if two have the same; returns the aliases."""
        namesakes: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for _, path in self._unaliased:
            namesakes[path[-1].casefold()].add(_folded(path))
        aliases: dict[tuple[str, ...], str] = {}
        for node, path in self._unaliased:
            is_unique = len(namesakes[path[-1].casefold()]) == 1
            node["alias"] = aliases[_folded(path)] = path[-1] if is_unique else ".".join(path)
        return aliases

    def _rewrite(self, node: Any, ctes: frozenset[str]) -> None:
        """Rewrites a node, or a list or value of one, in which the names of these table expressions are visible."""
        if isinstance(node, list):
            for item in node:
                self._rewrite(item, ctes)
            return
        if not isinstance(node, dict):
            return
        for entry in (node.get("cte_map") or {}).get("map", ()):
            query = entry["value"]["query_node"]
            name = entry["key"].casefold()
            if name.startswith(_OWN):
                raise InvalidInputError(f"sql: {name}: names that begin with {_OWN} are reserved; use another name")
            own = {name} if query.get("type") == "RECURSIVE_CTE_NODE" else set()
            self._rewrite(entry["value"], ctes | own)
            ctes |= {name}
        if isinstance(name := node.get("cte_name"), str):
            ctes |= {name.casefold()}
        if "query_location" in node and "alias" in node and "sample" in node:
            self._check_reference(node)
            if node["type"] == "BASE_TABLE":
                self._replace_table(node, ctes)
            elif node["type"] == "TABLE_FUNCTION":
                self._replace_function(node)
        for key, value in node.items():
            if key != "cte_map":
                self._rewrite(value, ctes)

    def _check_reference(self, node: Node) -> None:
        if node["type"] not in _REFERENCES:
            raise UnsupportedOperationError(f"Not supported: sql: {node['type'].lower().replace('_', ' ')} in FROM")
        if node["type"] == "SHOW_REF" and node.get("query") is None:
            raise UnsupportedOperationError("Not supported: sql: SHOW; list_tables lists the tables of a namespace")

    def _replace_table(self, node: Node, ctes: frozenset[str]) -> None:
        path = tuple(str(name) for name in node["qualified_name"]["path"])
        if len(path) == 1 and path[0].casefold() in ctes:
            return
        if not node["alias"]:
            self._unaliased.append((node, path))
        _set_name(node, self._name(Reading(_named(path), _version(node.get("at_clause")))))

    def _replace_function(self, node: Node) -> None:
        function = node["function"]
        name = str(function["function_name"]).casefold()
        if name in _FUNCTIONS and not function.get("schema") and not function.get("catalog"):
            return
        if name not in (*SEARCHES, _TABLES):
            functions = [*SEARCHES, _TABLES, *sorted(_FUNCTIONS)]
            near = nearest(name, functions)
            suggestion = f"did you mean {near}? There are" if near else "there are"
            raise UnsupportedOperationError(
                f"Not supported: sql: the table function {name}; {suggestion} {', '.join(functions)}"
            )
        arguments, options = self._evaluate(name, function["arguments"])
        if name == _TABLES:
            if len(arguments) != 1 or not isinstance(arguments[0], str) or options:
                raise InvalidInputError("sql: tables('sales.*') takes one pattern")
            own = self._name(Reading(_named([arguments[0]])))
        else:
            own = f"{_OWN}search_{len(self._statement.searches)}"
            self._statement.searches.append((own, Searching(name, arguments, options)))
        alias = node["alias"] or name
        for key in [*node]:
            if key not in ("alias", "sample", "query_location", "query_location_length", "column_name_alias"):
                del node[key]
        node.update(type="BASE_TABLE", at_clause=None)
        node.setdefault("column_name_alias", [])
        node["alias"] = alias
        _set_name(node, own)

    def _evaluate(self, function: str, arguments: Sequence[Node]) -> tuple[list[Any], dict[str, Any]]:
        """Returns the values of the arguments without and with names; they must be constants."""
        expressions = [argument["expression"] for argument in arguments]
        names = [argument["name"] for argument in arguments]
        if not expressions:
            return [], {}
        if any(has_reference(expression) for expression in expressions):
            raise UnsupportedOperationError(f"Not supported: sql: {function} with columns or queries as arguments")
        template = json.loads(_value(self._connection, "SELECT json_serialize_sql(?)", "SELECT 1"))
        template["statements"][0]["node"]["select_list"] = expressions
        sql = _value(self._connection, "SELECT json_deserialize_sql(?)", json.dumps(template))
        (row,) = self._connection.execute(sql).fetchall()
        values = list(zip(names, row, strict=True))
        return [value for name, value in values if not name], {name: value for name, value in values if name}

    def _name(self, reading: Reading) -> str:
        readings = self._statement.readings
        if reading not in readings and len(readings) >= MAX_TABLES:
            raise InvalidInputError(f"sql: more than {MAX_TABLES:,} names of tables; use patterns, such as 'sales.*'")
        return readings.setdefault(reading, f"{_OWN}{len(readings)}")


def _set_name(node: Node, name: str) -> None:
    node.update(catalog_name="", schema_name="", table_name=name, qualified_name={"path": [name]}, at_clause=None)


def _folded(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.casefold() for name in path)


def _named(path: Sequence[str]) -> TableId | str:
    """Returns the table or the pattern that a name in FROM means."""
    if len(path) == 1:
        return path[0] if is_pattern(path[0]) else TableId(path[0])
    if not any(map(is_pattern, path)):
        return TableId(path)
    return _joined(path)


def _version(clause: Node | None) -> int | str | None:
    if clause is None:
        return None
    literal = clause["expr"].get("literal") or {}
    if clause["unit"].upper() != "VERSION" or literal.get("kind") not in ("INTEGER", "STRING"):
        raise UnsupportedOperationError("Not supported: sql: AT (...) takes VERSION => a number or the name of a tag")
    return int(literal["text"]) if literal["kind"] == "INTEGER" else str(literal["text"])


def has_reference(node: Any) -> bool:
    """Returns whether a node has columns, queries or parameters, and is therefore no constant."""
    return any(it.get("class") in ("COLUMN_REF", "SUBQUERY", "PARAMETER") for it in nodes_of(node))


def nodes_of(node: Any) -> Iterator[Node]:
    """Yields a node and all nodes below it; of a list, those of its items."""
    if isinstance(node, list):
        for item in node:
            yield from nodes_of(item)
    elif isinstance(node, dict):
        yield node
        for value in node.values():
            yield from nodes_of(value)


def _used_columns(select: Node) -> frozenset[str] | None:
    """Returns the names that columns are used by, and maybe others; None if some are used without their names."""
    names: set[str] = set()
    tables = {str(it.get("alias")).casefold() for it in nodes_of(select) if it.get("type") == "BASE_TABLE"}
    for it in nodes_of(select):
        if it.get("class") in ("STAR", "POSITIONAL_REFERENCE") or it.get("type") in ("PIVOT", "SHOW_REF"):
            return None
        if it.get("ref_type") == "NATURAL" or it.get("column_name_alias"):
            return None
        path = _folded(it.get("using_columns") or it.get("column_names") or ())
        # The name of a table alone is its whole rows.
        if it.get("class") == "COLUMN_REF" and len(path) == 1 and path[0] in tables:
            return None
        names.update(path)
    return frozenset(names)


def _qualify(node: Any, aliases: Mapping[tuple[str, ...], str]) -> None:
    """Replaces the path of a table before the name of a column by the alias of the table."""
    for it in nodes_of(node):
        if it.get("class") != "COLUMN_REF" or len(names := it["column_names"]) < 3:
            continue
        for end in range(len(names) - 1, 1, -1):
            path = _folded(names[:end])
            if path in aliases:
                it["column_names"] = [aliases[path], *names[end:]]
                break
