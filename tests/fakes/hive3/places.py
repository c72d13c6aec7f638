"""Addresses and directories of a metastore's objects."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from .errors import META, Thrown

HIVE = "hive"
"""The catalog of addresses without one."""
DEFAULT = "default"
"""The database that each new catalog contains."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CLASSES = {
    "s3a": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "abfss": "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",
}


class RelativePathError(Thrown):
    """A relative location."""

    def __init__(self, location: str) -> None:
        message = f"java.net.URISyntaxException: Relative path in absolute URI: file:./{location}"
        super().__init__(META, f"java.lang.IllegalArgumentException: {message}")


class NoClassError(Thrown):
    """A location in a known file system that the server does not support."""

    def __init__(self, scheme: str) -> None:
        message = f"java.lang.ClassNotFoundException: Class {_CLASSES[scheme]} not found"
        super().__init__(META, f"java.lang.RuntimeException: {message}")


def folded(name: str) -> str:
    """Returns the name under which an object is stored."""
    return name.strip().lower()


def address(text: str | None) -> tuple[str, str | None]:
    """Returns catalog and database of `@catalog#database`, or of a database of the catalog `hive`.

    The database is None if it is missing, and empty if it is `!`.
    """
    if text is None or not text.startswith("@"):
        return HIVE, text
    if text.endswith("#"):
        return text[1:-1], None
    if text.endswith("#!"):
        return text[1:-2], ""
    catalog, result, database = text[1:].partition("#")
    if not result:
        message = "is prepended with the catalog marker but does not appear to have a catalog name in it"
        raise Thrown(META, f"{text} {message}")
    return catalog, database


class Places:
    """The directories of the server's file systems; only local files are changed."""

    def __init__(self, schemes: Collection[str] = ()) -> None:
        """Creates it; `schemes` are supported besides `file`."""
        self._schemes = frozenset(schemes)

    def normalised(self, location: str) -> str:
        """Returns the location as the server stores it: `file:/x` for a local one, without a slash at the end."""
        result = _SCHEME.match(location)
        scheme = result[1] if result else "file"
        rest = location[result.end() :] if result else location
        if scheme == "file":
            if not rest.startswith("/"):
                raise RelativePathError(rest)
            return f"file:{_tidy(_without_host(rest))}"
        if scheme not in self._schemes:
            if scheme in _CLASSES:
                raise NoClassError(scheme)
            message = f'org.apache.hadoop.fs.UnsupportedFileSystemException No FileSystem for scheme "{scheme}"'
            raise Thrown(META, f"Got exception: {message}")
        host, slash, path = rest.removeprefix("//").partition("/")
        return f"{scheme}://{host}{_tidy(slash + path)}".rstrip("/")

    def planted(self, location: str) -> str:
        """Returns the location as the server would store it if it supported its file system."""
        try:
            return self.normalised(location)
        except Thrown:
            return location.rstrip("/")

    def below(self, location: str, name: str) -> str:
        """Returns a location inside another one."""
        return f"{self.normalised(location).rstrip('/')}/{name}"

    def make(self, location: str) -> bool:
        """Creates the directory of a location; returns whether it is new."""
        path = _local(location)
        if path is None or path.is_dir():
            return False
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            message = f"FileAlreadyExistsException Destination exists and is not a directory: {path}"
            raise Thrown(META, f"Got exception: org.apache.hadoop.fs.{message}") from None
        except NotADirectoryError:
            message = f"ParentNotDirectoryException Parent path is not a directory: file:{path.parent}"
            raise Thrown(META, f"Got exception: org.apache.hadoop.fs.{message}") from None
        except OSError:
            raise Thrown(META, f"{location} is not a directory or unable to create one") from None
        return True

    def delete(self, location: str) -> None:
        """Deletes a directory with its content."""
        path = _local(location)
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)

    def move(self, location: str, new: str) -> None:
        """Renames a directory."""
        path, target = _local(location), _local(new)
        if path is not None and target is not None and path.exists():
            path.rename(target)

    def statistics(self, location: str) -> dict[str, str]:
        """Returns the server's statistics of the files in a directory; this reads all of it."""
        path = _local(location)
        files = [file for file in path.rglob("*") if file.is_file()] if path is not None and path.is_dir() else []
        return {"numFiles": str(len(files)), "totalSize": str(sum(file.stat().st_size for file in files))}


def _without_host(rest: str) -> str:
    if not rest.startswith("//"):
        return rest
    return "/" + rest[2:].partition("/")[2]


def _tidy(path: str) -> str:
    levels: list[str] = []
    for level in path.split("/"):
        if level == ".." and levels:
            levels.pop()
        elif level not in ("", "."):
            levels.append(level)
    return "/" + "/".join(levels)


def _local(location: str) -> Path | None:
    return Path(location.removeprefix("file:")) if location.startswith("file:") else None
