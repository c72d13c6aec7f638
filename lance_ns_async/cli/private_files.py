"""Changes of files that only their owner may read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

from lance_ns_async.cli.errors import Misuse

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


@contextmanager
def edit(file: Path, check: Callable[[Path], object]) -> Iterator[TOMLDocument]:
    """Provides the content of a file to change, empty if there is no file; then writes it, for its owner only.

    Comments stay. A reader sees the old content or the new one, and an error leaves the old one.

    Args:
        file: The file.
        check: Raises an error if an existing file is malformed.

    Raises:
        Misuse: The file cannot be read or written.
    """
    import tomlkit

    document = tomlkit.document()
    if file.is_file():
        check(file)
        document = tomlkit.parse(file.read_text(encoding="utf-8"))
    yield document
    write(file, tomlkit.dumps(document))


def write(file: Path, text: str) -> None:
    """Replaces the content of a file, for its owner only. A reader sees the old content or the new one.

    Raises:
        Misuse: The file cannot be written.
    """
    # A link to a file, such as one in a repository of settings, stays a link.
    target = file.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # The new file has mode 600 before it has a content.
        handle, temporary = mkstemp(dir=target.parent, prefix=target.name)
        try:
            with open(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.replace(temporary, target)
        except BaseException:  # an interrupt, too, must not leave the file, which may contain secrets
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise Misuse(f"{file}: {error.strerror}") from error
