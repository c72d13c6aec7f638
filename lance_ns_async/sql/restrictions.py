"""What statements of remote callers may use, so that memory and time stay bounded.

DuckDB's own limit of memory counts what it keeps, but not the values that its functions build: `repeat('x', 2e9)` takes
2 GB whatever the limit. Remote callers therefore have only functions whose values are about as long as their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lance_namespace.errors import InvalidInputError, PermissionDeniedError, UnsupportedOperationError

from lance_ns_async.model import Id, TableId
from lance_ns_async.sql.statement import Node, has_reference, nodes_of

MAX_REMOTE_LENGTH = 10_000
"""Maximum number of characters of a statement of a remote caller."""

MAX_BUILT = 12
"""Maximum number of values with columns that a statement joins to longer ones: repeated, they grow exponentially."""

_MAX_STARS = 8  # Maximum number of `*`; in nested queries, the number of columns grows exponentially.
_MAX_ARRAY = 4_096  # Maximum number of elements of the type of an array; null has as many.

_BUILDING = frozenset({"||", "concat", "concat_ws", "list_value", "map", "row", "struct_pack"})

_FUNCTIONS = frozenset(
    """
    + - * / // % ** ^ @ ~ & | << >> ~~ !~~ ~~* !~~* ~~~ ^@ <->
    any_value approx_count_distinct approx_quantile arbitrary arg_max arg_min argmax argmin avg bit_and bit_or bit_xor
    bool_and bool_or corr count count_if count_star countif covar_pop covar_samp entropy favg first fsum kurtosis last
    mad max max_by mean median min min_by mode quantile quantile_cont quantile_disc regr_slope regr_intercept regr_r2
    skewness stddev stddev_pop stddev_samp sum sumkahan var_pop var_samp variance
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    abs acos asin atan atan2 cbrt ceil ceiling cos cot degrees even exp fdiv floor fmod gcd greatest isfinite
    isinf isnan lcm least ln log log10 log2 mod pi pow power radians random round sign sin sqrt tan trunc
    add constant_or_null nullif subtract xor
    ascii bit_count bit_length contains ends_with instr lcase left length len like_escape lower ltrim md5
    nfc_normalize octet_length ord position prefix regexp_extract regexp_full_match regexp_matches reverse right rtrim
    sha256 split_part starts_with strip_accents strlen strpos substr substring suffix trim ucase unicode upper
    century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth
    dayofweek dayofyear decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear last_day make_date make_time
    make_timestamp microsecond millennium millisecond minute month monthname nanosecond now quarter second strftime
    strptime time_bucket to_days to_hours to_microseconds to_milliseconds to_minutes to_months to_seconds to_timestamp
    to_weeks to_years today try_strptime week weekday weekofyear year yearweek current_date
    array_cosine_distance array_cosine_similarity array_distance array_inner_product array_negative_inner_product
    array_extract array_length array_slice cardinality element_at json_array_length json_extract json_extract_string
    json_type json_valid list_aggregate list_avg list_contains list_cosine_distance list_cosine_similarity list_distance
    list_distinct list_extract list_filter list_has list_has_all list_has_any list_inner_product list_max list_min
    list_position list_reverse list_slice list_sort list_sum list_apply list_transform map_extract map_keys map_values
    struct_extract unnest
    error hash if typeof
    """.split()
)
"""Functions and operators of DuckDB that are fast, and whose values are about as long as their arguments."""


@dataclass(frozen=True, slots=True)
class Restrictions:
    """What a statement of a remote caller may use."""

    may_see: Callable[[Id], bool]
    """Returns whether the caller may know of a table or namespace."""

    def check_text(self, text: str) -> None:
        """Raises InvalidInputError if a statement is too long."""
        if len(text) > MAX_REMOTE_LENGTH:
            raise InvalidInputError(
                f"sql: {len(text):,} characters are too many; use {MAX_REMOTE_LENGTH:,} or fewer, or query the tables "
                "from a program of your own"
            )

    def check_tables(self, ids: Iterable[TableId]) -> None:
        """Raises PermissionDeniedError for a table that the caller may not use; the answer tells nothing of it."""
        for id in ids:
            if not self.may_see(id):
                raise PermissionDeniedError(f"Permission denied: sql: {id} (it is not among the tables of this token)")

    def check(self, tree: Node) -> None:
        """Checks the functions of a statement as DuckDB has parsed it."""
        nodes = list(nodes_of(tree))
        # Those in FROM are checked with the names of tables.
        in_from = {id(node["function"]) for node in nodes if node.get("type") == "TABLE_FUNCTION"}
        built = stars = 0
        for node in nodes:
            match node.get("class"):
                case "FUNCTION" | "WINDOW" if id(node) not in in_from:
                    name = str(node["function_name"]).casefold()
                    if name in _BUILDING:
                        built += sum(has_reference(it) for it in node["arguments"])
                    elif name not in _FUNCTIONS:
                        raise UnsupportedOperationError(
                            f"Not supported: sql: the function {name} for remote callers; run the statement by "
                            "lance-ns sql or ns.sql, with a connection of your own"
                        )
                case "STAR":
                    stars += 1
                case "TYPE" if str(node["type_name"]).casefold() == "array":
                    _check_array(node)
            if node.get("type") == "RECURSIVE_CTE_NODE":
                raise UnsupportedOperationError("Not supported: sql: WITH RECURSIVE for remote callers")
        if built > MAX_BUILT:
            raise InvalidInputError(f"sql: {built} values are joined by ||, lists or structs; use {MAX_BUILT} or fewer")
        if stars > _MAX_STARS:
            raise InvalidInputError(f"sql: {stars} times *; use {_MAX_STARS} or fewer, or name the columns")


def _check_array(node: Node) -> None:
    element, size = node["children"]
    text = (size.get("literal") or {}).get("text", "")
    if element["type_name"].casefold() == "array" or not text.isdecimal() or int(text) > _MAX_ARRAY:
        raise InvalidInputError(
            f"sql: the type of an array: use one level and at most {_MAX_ARRAY:,} elements, or a list"
        )
