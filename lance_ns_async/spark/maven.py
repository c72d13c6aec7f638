"""Class paths from Maven's central repository, in pure Python, without Maven or Java: needs the package `jgo`."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import requests
from jgo.maven import Artifact, Dependency, MavenContext, PythonResolver
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from lance_ns_async.spark.java import user_cache

PARALLEL_DOWNLOADS = 8
_TIMES = (10.0, 60.0)
_CHUNK = 1 << 18


class ClasspathError(Exception):
    """A class path could not be downloaded; the message contains the reason and a remedy."""

    # Neither an OSError nor a RuntimeError: jgo treats those as a POM without dependencies, and continues.


def classpath(name: str, coordinates: Sequence[str], exclusions: Sequence[str] = ()) -> list[Path]:
    """Returns the jars of the coordinates and of all their dependencies, downloaded at the first time, and then cached.

    A coordinate is `group:artifact:version[:type[:classifier]]`; an exclusion is `group:artifact`, with `*` for any,
    and applies to all coordinates. Messages begin with `name`.
    """
    cache = user_cache() / "jars"
    key = hashlib.sha256(json.dumps([list(coordinates), list(exclusions)]).encode()).hexdigest()[:12]
    resolved = cache / f"{name}-{key}.classpath"
    if resolved.exists():
        jars = [cache / line for line in resolved.read_text(encoding="utf-8").splitlines()]
        if all(jar.exists() for jar in jars):
            return jars
    sys.stderr.write(f"{name}: fetching its jars, this once, into {cache}\n")
    sys.stderr.flush()
    try:
        jars = _fetch(coordinates, exclusions, cache / "repository")
    except (ClasspathError, RuntimeError, ValueError) as error:
        raise ClasspathError(
            f"{name}: its jars cannot be fetched: {error}. The first run needs Maven's central repository: "
            "look at the network, the proxy (HTTPS_PROXY) and the certificate authority (REQUESTS_CA_BUNDLE)"
        ) from error
    with _whole(resolved) as file:
        file.write("".join(f"{jar.relative_to(cache)}\n" for jar in jars).encode())
    return jars


def _fetch(coordinates: Sequence[str], exclusions: Sequence[str], repository: Path) -> list[Path]:
    with requests.Session() as session:
        retry = Retry(total=4, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504))
        session.mount("https://", HTTPAdapter(pool_maxsize=PARALLEL_DOWNLOADS, max_retries=retry))
        context = MavenContext(resolver=_WholeFiles(session), repo_cache=repository)
        dependencies = [_dependency(context, coordinate, exclusions) for coordinate in coordinates]
        named, needed = context.resolver.resolve(dependencies)
        artifacts = [dependency.artifact for dependency in (*named, *needed)]
        with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
            return list(pool.map(Artifact.resolve, artifacts))


def _dependency(context: MavenContext, coordinate: str, exclusions: Sequence[str]) -> Dependency:
    match coordinate.split(":"):
        case [group, artifact, version]:
            kind, classifier = "jar", ""
        case [group, artifact, version, kind]:
            classifier = ""
        case [group, artifact, version, kind, classifier]:
            pass
        case _:
            raise ValueError(f"{coordinate!r} is not group:artifact:version[:type[:classifier]]")
    excluded = [context.project(*exclusion.split(":", maxsplit=1)) for exclusion in exclusions]
    target = context.project(group, artifact).at_version(version).artifact(classifier, kind)
    # Raw: the versions are those that Maven selects; otherwise each coordinate would also manage the others' versions.
    return Dependency(target, exclusions=excluded, raw=True)


class _WholeFiles(PythonResolver):
    """Keeps a file only when it is complete, so that a second process or an interrupted download does no harm."""

    def __init__(self, session: requests.Session) -> None:
        super().__init__()
        self._session = session

    def download(self, artifact: Artifact) -> Path | None:
        path = f"{artifact.component.path_prefix.as_posix()}/{artifact.filename}"
        target = artifact.context.repo_cache / path
        for repository in artifact.context.remote_repos.values():
            try:
                if self._saved(f"{repository}/{path}", target):
                    return target
            except OSError as error:
                raise ClasspathError(f"{artifact}: {error}") from error
        # A RuntimeError: like Maven, jgo continues without a POM that does not exist.
        raise RuntimeError(f"there is no {artifact}")

    def _saved(self, url: str, target: Path) -> bool:
        """Returns whether the file exists; it is then the target's content."""
        with self._session.get(url, stream=True, timeout=_TIMES) as answer:
            if answer.status_code == requests.codes.not_found:
                return False
            answer.raise_for_status()
            with _whole(target) as file:
                digest = hashlib.sha1(usedforsecurity=False)
                for chunk in answer.iter_content(_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                stated = self._session.get(f"{url}.sha1", timeout=_TIMES)
                stated.raise_for_status()
                if digest.hexdigest() not in stated.text.lower():
                    raise OSError(f"{url} has another checksum than the repository states")
        return True


@contextmanager
def _whole(target: Path) -> Iterator[BinaryIO]:
    """Provides a draft to write, which becomes the target when it is complete, and is removed after an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        Path(draft).replace(target)
    except BaseException:
        Path(draft).unlink()
        raise
