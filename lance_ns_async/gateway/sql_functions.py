"""SQL that clients of a gateway may use: functions, and literals, so that no text builds values of unlimited size."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from lance_ns_async.storage.sql_bounds import OPERATORS, Bounds, SqlCheck, is_call

MAX_PATTERN: Final = 16_384
"""Maximum bytes of one literal in a text with patterns.

A compiled pattern takes 700 times as much memory.
"""

MAX_BUILT: Final = 4096  # Maximum bytes of literals in texts that build new values; each row repeats each literal.
MAX_BUILDING: Final = 256  # Maximum tokens in texts that build new values; each row may be repeated that many times.
MAX_MULTIPLIED: Final = 256  # Maximum bytes of literals next to a function that may insert them for each character.
MAX_FUNCTIONS: Final = 256  # Maximum calls of functions.
MAX_PATTERNS: Final = 16  # Maximum regular expressions; each may take 10 MB when compiled.

_SYNTAX = frozenset({"and", "or", "in", "not", "like", "ilike", "between", "is", "any", "all", "interval"})
"""Words before brackets that are not functions."""

READING: Final = frozenset(
    """
    abs acos acosh array_any_value array_contains array_dims array_distance array_distinct array_element array_empty
    array_except array_extract array_has array_has_all array_has_any array_indexof array_intersect array_length
    array_max array_min array_ndims array_overlap array_pop_back array_pop_front array_position array_positions
    array_remove array_remove_all array_remove_n array_reverse array_slice array_sort arrow_typeof ascii asin asinh
    atan atan2 atanh bit_length btrim cardinality cast cbrt ceil ceiling char_length character_length chr contains
    contains_tokens cos cosh cot current_date current_time current_timestamp date date_bin date_part date_trunc
    datepart datetrunc degrees digest element_at empty ends_with exp extract find_in_set flatten floor from_unixtime
    gcd get_field initcap instr isnan iszero json_array_contains json_array_length json_exists json_extract json_get
    json_get_bool json_get_float json_get_int json_get_string lcm left length list_any_value list_contains list_dims
    list_distance list_distinct list_element list_empty list_except list_extract list_has list_has_all list_has_any
    list_indexof list_intersect list_length list_max list_ndims list_pop_back list_pop_front list_position
    list_positions list_remove list_remove_all list_remove_n list_reverse list_slice list_sort ln log log10 log2 lower
    ltrim make_date make_time map_extract map_keys map_values md5 mod nanvl now nullif octet_length pi position pow
    power radians random regexp_count regexp_instr regexp_like regexp_match reverse right round rtrim sha224 sha256
    sha384 sha512 signum sin sinh split_part sqrt st_area st_contains st_covers st_crosses st_disjoint st_distance
    st_equals st_intersects st_length st_overlaps st_touches st_within st_x st_y starts_with strpos substr
    substr_index substring substring_index tan tanh time timestamp to_date to_hex to_local_time to_timestamp
    to_timestamp_micros to_timestamp_millis to_timestamp_nanos to_timestamp_seconds to_unixtime today translate trim
    trunc try_cast upper uuid
    decimal numeric varchar char float double
    """.split()
)
"""Functions, and types with a length, that are fast and whose values are not longer than their arguments."""

BUILDING: Final = frozenset(
    """
    array array_append array_cat array_concat array_prepend array_push_back array_push_front array_union coalesce
    concat concat_ws greatest ifnull least list_append list_cat list_concat list_prepend list_push_back
    list_push_front list_union make_array make_list named_struct nvl nvl2 row string_to_array string_to_list struct
    """.split()
)
"""Functions whose values are as long as all their arguments together."""

MULTIPLYING: Final = frozenset(
    """
    array_join array_to_string date_format encode decode list_join list_to_string overlay regexp_replace replace to_char
    """.split()
)
"""Functions whose values may be longer than their arguments, by a factor up to the length of their literals."""

FUNCTIONS: Final = READING | BUILDING | MULTIPLYING
"""Functions that a remote caller may use. Others build large values (`repeat`, `lpad`, `range`) or are slow."""

_PATTERNS = frozenset({"regexp_count", "regexp_instr", "regexp_like", "regexp_match", "regexp_replace"})
_LITERALS = frozenset({"true", "false", "null", "from", "for", "placing"})  # Words in arguments that are no columns.


_BOUNDS = Bounds(bytes=2 << 20, tokens=100_000, terms=2_000)


@dataclass(slots=True)
class _Arguments:
    """The content of an open bracket, or of the whole text."""

    name: str = ""
    """The function whose arguments are in the bracket; `[` for a list or an index."""
    argument_of: str = ""
    """The multiplying function of which the bracket is in an argument after the first."""
    commas: int = 0
    columns: int = 0

    @property
    def literals_of(self) -> str:
        """The function that requires literals at the current position; "" if there is none."""
        return self.argument_of or (self.name if self.name in MULTIPLYING and self.commas else "")


class RemoteSqlCheck(SqlCheck):
    """The check of the SQL texts of one request of a client; allowed functions are in lower case."""

    def __init__(self, functions: Set[str]) -> None:
        super().__init__(_BOUNDS)
        self._allowed = functions
        self._functions = self._patterns = self._built_bytes = self._building = self._multiplying = 0

    def check_text(self, name: str, sql: str, *, is_value: bool) -> None:
        """Checks one text, also for values that could be far larger than the rows."""
        self._arguments = [_Arguments()]
        self._literals = self._longest = 0
        self._matches = self._builds = False
        self._multiplies = ""
        tokens = self.tokens
        super().check_text(name, sql, is_value=is_value)
        self._check_literals()
        tokens = self.tokens - tokens
        # A single column is not a new value.
        if self._builds or (is_value and (self._literals or tokens > 1)):
            self._check_values(tokens, MAX_BUILDING * (4 if is_value else 1))

    def check_token(self, kind: str, token: str, before: str, start: int) -> None:
        """Checks a token."""
        super().check_token(kind, token, before, start)
        match kind:
            case "string" | "number":
                length = len(token.encode("utf-8", "surrogatepass"))
                self._literals += length
                self._longest = max(self._longest, length)
            case "word":
                self._check_name(token.lower())
            case "quoted":
                self._check_name(token)
            case "open":
                name = before if is_call(before, token) else token.strip("(")
                if is_call(before, token) and before not in _SYNTAX:
                    self._check_function(before)
                self._arguments.append(_Arguments(name, self._arguments[-1].literals_of))
            case "close":
                inner = self._arguments.pop()
                # A list of literals is one value for all rows.
                joins = inner.name in BUILDING or (inner.name == "[" and inner.commas > 0)
                self._builds |= joins and inner.columns > 0
                self._arguments[-1].columns += inner.columns
            case "comma":
                self._arguments[-1].commas += 1
            case "operator":
                self._builds |= token == "||"
            case "comment":
                self.reject("comments are not allowed", "remove the comment")
            case "other":
                self.reject_character(token, start)

    def _check_name(self, word: str) -> None:
        if word in ("like", "ilike", "similar"):
            self._matches = True
        elif word not in ("and", "or") and word not in OPERATORS:
            self._arguments[-1].columns += 1
            self._check_argument(word)

    def _check_argument(self, word: str) -> None:
        """Rejects arguments that could make a value as long as the product of the lengths of two columns."""
        if (function := self._arguments[-1].literals_of) and word not in _LITERALS:
            self.reject(
                f"{word} is not the first argument of {function}", "use literals for all arguments but the first"
            )

    def _check_function(self, name: str) -> None:
        if name not in self._allowed:
            self.reject(
                f"function {name.strip('`').strip(chr(34))!r} is not allowed",
                "compute it in the client, or ask the operator of the server to allow it",
            )
        self._check_argument(name)
        self._functions += 1
        if self._functions > MAX_FUNCTIONS:
            self.reject(f"it calls functions more than {MAX_FUNCTIONS} times", "split it into several requests")
        if name in _PATTERNS:
            self._matches = True
            self._patterns += 1
            if self._patterns > MAX_PATTERNS:
                self.reject(f"it has more than {MAX_PATTERNS} regular expressions", "join them as 'a|b'")
        if name in MULTIPLYING:
            if self._multiplies:
                self.reject(f"it calls both {self._multiplies} and {name}", "call only one of them in one text")
            self._multiplies = name

    def _check_literals(self) -> None:
        """Checks the literals next to patterns and multiplying functions."""
        if self._matches and self._longest > MAX_PATTERN:
            self.reject(f"with a pattern, a literal may have at most {MAX_PATTERN} bytes", "use shorter literals")
        if not self._multiplies:
            return
        self._multiplying += 1
        if self._builds or self._multiplying > 4:
            self.reject(f"it calls {self._multiplies} with functions that join values", "use separate requests")
        if self._literals > MAX_MULTIPLIED:
            self.reject(
                f"with {self._multiplies}, literals may have at most {MAX_MULTIPLIED} bytes", "use shorter literals"
            )

    def _check_values(self, tokens: int, limit: int) -> None:
        """Checks a text that builds values."""
        self._built_bytes += self._literals
        self._building += tokens
        if self._built_bytes > MAX_BUILT:
            self.reject(
                f"values built for each row have literals of more than {MAX_BUILT} bytes",
                "compute the values in the client, and send the rows",
            )
        if self._building > limit:
            self.reject(
                f"values are built of more than {MAX_BUILDING} words, literals, operators and commas",
                "split it into several requests",
            )
