"""Parsing of the values of options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lance_ns_async.cli.errors import Misuse


def parse_pair(option: str, text: str, form: str = "KEY=VALUE") -> tuple[str, str]:
    """Returns the key and the value of an option in the form KEY=VALUE; raises `Misuse` without a key or a `=`."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        # The message does not contain the text, because it may be a secret without its key.
        raise Misuse(f"{option}: must be {form}, but one has nothing before its '=', or no '='")
    return key, value


def parse_pairs(option: str, texts: Iterable[str] | None, form: str = "KEY=VALUE") -> dict[str, str]:
    """Returns the values of a repeated option by their keys; see `parse_pair`."""
    return dict(parse_pair(option, text, form) for text in texts or ())


def parse_lines(text: str) -> list[str]:
    """Returns the lines of a file without empty ones and those that start with `#`."""
    return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


def parse_storage_options(values: Iterable[str] | None) -> dict[str, str] | None:
    """Returns storage options from `KEY=VALUE` and `@FILE` arguments; None if there are none.

    A file has a `KEY=VALUE` on each line; see `parse_lines`.
    """
    lines: list[str] = []
    for text in values or ():
        if not text.startswith("@"):
            lines.append(text)
            continue
        try:
            content = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise Misuse(f"--storage-option {text}: the file cannot be read ({e})") from e
        lines += parse_lines(content)
    pairs = parse_pairs("--storage-option", lines)
    return {key.strip(): value.strip() for key, value in pairs.items()} or None


def read_text(file: Path, option: str) -> str:
    """Returns the content of a file; raises `Misuse` with the name of the option if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Misuse(f"{option}: {reason}") from error
