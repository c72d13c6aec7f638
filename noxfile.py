"""What there is to run: `nox -l` lists it, `nox` runs what has to pass before a change lands."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "bare", "integration", "connector", "ecosystem", "docs"]
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False

PYPROJECT = nox.project.load_toml("pyproject.toml")


def group(*names: str) -> list[str]:
    """The requirements of dependency groups."""
    return list(nox.project.dependency_groups(PYPROJECT, *names))


def lowest(*extras: str) -> list[str]:
    """Returns pins of each dependency, and of those of the extras, to the lowest version that it may have."""
    project = PYPROJECT["project"]
    wanted = [*project["dependencies"], *(it for extra in extras for it in project["optional-dependencies"][extra])]
    return [re.sub(r">=([^,]+).*", r"==\1", requirement) for requirement in wanted]


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


ELSEWHERE = [f"--ignore=tests/{folder}" for folder in ("integration", "ecosystem", "connector")]
"""What has sessions of its own."""

SOME = "((not contract and not faults and not fuzz and not network) or dir or iceberg-fake) and not consistency"
"""Tests enough to tell environments apart."""

FEW = f"({SOME}) and not backends and not security and not fakes and not documentation"
"""The same without what hardly depends on the environment."""

FLOORS = [
    "test_api.py",
    "test_telemetry.py",
    "backends/glue",
    "calls/test_policy.py",
    "cli",
    "gateway/test_attacks.py",
    "gateway/test_server.py",
    "namespace/test_requests.py",
    "namespace/test_sync.py",
    "tables/test_queries.py",
    "tables/test_rows.py",
    "transports/aws/test_transport.py",
    "transports/http",
]
"""Unit tests that use what the package depends on, each thing by one of them at least."""

ECOSYSTEM: dict[str, tuple[list[str], list[str]]] = {
    "lancedb": (["test_pylance*.py", "test_lancedb*.py"], ["lancedb"]),
    "ray": (["test_lance_ray*.py", "test_daft*.py"], ["ray", "daft"]),
}
"""By environment: the tests that run in it, and the dependency groups that they need."""


def install(session: nox.Session, *requirements: str) -> None:
    """Installs into the session's own environment, blind to whatever path nox itself was started with."""
    session.env["PYTHONPATH"] = ""
    session.install(*requirements)


def check_installed(session: nox.Session) -> None:
    """Fails where packages that are installed do not fit each other."""
    session.run("python", "-m", "pip", "check", silent=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, spelling, import rules, and what is known to be unsafe."""
    install(session, "-e", ".", *group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell", "lance_ns_async", "tests", "benchmarks", "docs", "noxfile.py", *sorted(glob("*.md")))
    session.run("lint-imports")
    session.run("bandit", "-q", "-c", "pyproject.toml", "-r", "lance_ns_async")


@nox.session
def audit(session: nox.Session) -> None:
    """Known vulnerabilities of what is installed with the package: asks PyPI, so it is not among what always runs."""
    install(session, "-e", ".[all]", *group("audit"))
    session.run("pip-audit", "--skip-editable", *session.posargs)


@nox.session
def types(session: nox.Session) -> None:
    """Every type, of the package, its tests and its benchmarks."""
    install(session, "-e", ".[cli,glue,spark]", *group("types", "test", "servers", "bench"), "nox")
    session.run("mypy")


def pytest(session: nox.Session, *arguments: str) -> None:
    """Tests, in a process for each core; those of one server or file run in one process."""
    session.run("python", "-m", "pytest", "-n", "auto", "--dist", "loadgroup", *arguments, *session.posargs)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """What needs no server of its own, with the extras that users add."""
    install(session, "-e", ".[cli,glue]", *group("test", "servers"))
    check_installed(session)
    # Catalogs and wires differ little by Python, so one Python tries them all.
    selections = [[], ["-k", SOME]]
    position = PYTHONS.index(str(session.python))
    selection = selections[position] if position < len(selections) else ["-k", FEW]
    pytest(session, "-m", "not integration", *ELSEWHERE, *selection)


@nox.session
def bare(session: nox.Session) -> None:
    """The same without any extra, as far as it needs none."""
    # The group holds it for what it brings besides.
    no_extra = [it for it in group("test", "servers") if not it.startswith("aiobotocore")]
    install(session, "-e", ".", *no_extra)
    # FEW selects nothing in the first three, and some of their files cannot be imported without an extra.
    folders = ("documentation", "unit/backends", "unit/fakes", "unit/cli", "unit/transports/aws")
    without = [*ELSEWHERE, *(f"--ignore=tests/{folder}" for folder in folders)]
    pytest(session, "-m", "not integration", "-k", f"({FEW}) and not glue", *without)


@nox.session
def floors(session: nox.Session) -> None:
    """The lowest versions that pyproject.toml allows, with tests of each of them."""
    extras = ("cli", "glue", "otel")
    install(session, "-e", f".[{','.join(extras)}]", *group("test", "servers"), *lowest(*extras))
    check_installed(session)
    pytest(session, "-m", "not integration", "-k", SOME, *(f"tests/unit/{path}" for path in FLOORS), "tests/contract")


@nox.session
def integration(session: nox.Session) -> None:
    """Real servers, which the suite fetches and starts itself; one that cannot start fails it."""
    install(session, "-e", ".[cli,glue]", *group("test", "demo"))
    own = ["--ignore=tests/ecosystem", "--ignore=tests/connector"]
    pytest(session, "-m", "integration", *own)


@nox.session
@nox.parametrize("environment", list(ECOSYSTEM))
def ecosystem(session: nox.Session, environment: str) -> None:
    """Packages that take Lance namespaces, given ours, on catalogs that run for them."""
    files, groups = ECOSYSTEM[environment]
    install(session, "-e", ".[cli,glue]", *group("test", "servers", *groups))
    # Ray takes all cores for itself.
    alone = ["-n", "0"] if "ray" in groups else []
    pytest(session, *alone, *sorted(path for file in files for path in glob(f"tests/ecosystem/{file}")))


@nox.session
def connector(session: nox.Session) -> None:
    """Spark's own Lance connector, fed by the driver: the newest that Maven has is for Spark 3.5, and 240 MB."""
    install(session, "-e", ".", *group("test", "servers", "connector"))
    session.run("python", "-m", "pytest", "tests/connector", *session.posargs)


@nox.session
def newest(session: nox.Session) -> None:
    """What the spec's package says, in the newest version there is, be it one that pylance does not take yet."""
    install(session, "-e", ".[cli,glue]", *group("test", "servers"))
    session.install("--upgrade", "--pre", "--no-deps", "lance-namespace", "lance-namespace-urllib3-client", "pylance")
    folders = ("unit/namespace", "unit/tables", "unit/test_api.py", "unit/test_errors.py", "contract")
    pytest(session, *(f"tests/{folder}" for folder in folders), "-m", "not integration")


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
