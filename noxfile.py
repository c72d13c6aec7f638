"""What there is to run: `nox -l` lists it, `nox` runs what has to pass before a change lands."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "bare", "integration", "docs"]
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False

PYPROJECT = nox.project.load_toml("pyproject.toml")


def group(*names: str) -> list[str]:
    """The requirements of dependency groups."""
    return list(nox.project.dependency_groups(PYPROJECT, *names))


def interpreters() -> list[str]:
    """The supported Python versions this machine has, pyenv's included; the running one is always among them."""
    found = []
    for version in nox.project.python_versions(PYPROJECT):
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))
        path = os.pathsep.join([*map(str, kept), os.environ["PATH"]])
        python = shutil.which(f"python{version}", path=path)
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            # pyenv's shims answer for versions that are not switched on: nox must meet the real one first.
            os.environ["PATH"] = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
            found.append(version)
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return found if running in found else [*found, running]


PYTHONS = interpreters()

DEMO_NAMESPACES = {
    "glue": "demo",
    "hive3": "lake.demo",
    "iceberg": "demo",
    "polaris": "lake.demo",
    "unity": "lake.demo",
}
"""Where the demo's tables go in each catalog that is a server; some have a level above those that hold tables."""


def install(session: nox.Session, *requirements: str) -> None:
    """Installs into the session's own environment, blind to whatever path nox itself was started with."""
    session.env["PYTHONPATH"] = ""
    session.install(*requirements)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, import order, and who may import whom."""
    install(session, "-e", ".", *group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Every type, of the package, its tests and its benchmarks."""
    install(session, "-e", ".[cli,glue,spark]", *group("types", "test", "servers", "bench"), "nox")
    session.run("mypy")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """What needs no server of its own, with the extras that users add."""
    install(session, "-e", ".[cli,glue]", *group("test", "servers"))
    session.run("python", "-m", "pytest", "-m", "not integration", "--ignore=tests/integration", *session.posargs)


@nox.session
def bare(session: nox.Session) -> None:
    """The same without any extra, as far as it needs none."""
    install(session, "-e", ".", *group("test", "servers"))
    without = [f"--ignore=tests/test_{name}.py" for name in ("cli", "docs", "operations")]
    without += ["--ignore=tests/integration", "--ignore-glob=tests/test_*aws*", "--ignore-glob=tests/test_*glue*"]
    session.run("python", "-m", "pytest", "-m", "not integration", "-k", "not glue", *without, *session.posargs)


@nox.session
def integration(session: nox.Session) -> None:
    """Real servers, which the suite fetches and starts itself; one that cannot start fails it."""
    install(session, "-e", ".[cli,glue]", *group("test", "demo"))
    session.run("python", "-m", "pytest", "-m", "integration", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Makes a catalog of tables, resolves it and reads it by one Spark job: `-- --catalog iceberg --tables 1000`.

    The catalog's server is started for it, unless `--endpoint URL` names one that runs.
    """
    parser = argparse.ArgumentParser(prog="nox -s demo --")
    parser.add_argument("--catalog", default="dir", choices=["dir", *DEMO_NAMESPACES])
    parser.add_argument("--endpoint", metavar="URL", help="a catalog that runs already")
    options, passed = parser.parse_known_args(session.posargs)
    install(session, "-e", ".[cli,glue]" if options.catalog == "glue" else ".[cli]", *group("demo"))
    if options.catalog == "dir":
        session.run("lance-ns", "demo", *passed)
        return
    command = ["lance-ns", "demo", "--namespace", DEMO_NAMESPACES[options.catalog], *passed]
    if options.endpoint:
        address = "uri" if options.catalog == "hive3" else "endpoint"
        session.run(*command, "--impl", options.catalog, "--property", f"{address}={options.endpoint}")
    else:
        session.run("python", "-m", "tests.servers", options.catalog, "--run", *command)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, strictly: into `site/`, or served while it is written with `-- serve`."""
    install(session, *group("docs"))
    session.env["NO_MKDOCS_2_WARNING"] = "1"
    command = session.posargs or ["build", "--strict", "--site-dir", str(Path("site").absolute())]
    session.run("mkdocs", command[0], "--config-file", "docs/mkdocs.yml", *command[1:])


@nox.session
def bench(session: nox.Session) -> None:
    """Describes per second, client CPU and time over the ideal, beside the peer: `-- --quick`, `-- glue --quick`."""
    if session.posargs and session.posargs[0] in ("glue", "hive3", "polaris", "unity"):
        install(session, "-e", ".[glue]", *group("test", "servers", "bench", "peers"))
        session.run("python", "-m", "benchmarks.catalogs", *session.posargs)
    else:
        install(session, "-e", ".", *group("bench"))
        session.run("python", "-m", "benchmarks.describe", *session.posargs)
