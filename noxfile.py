"""The nox sessions: `nox -l` lists them, and `nox` runs those that must pass before a change is merged."""

from __future__ import annotations

import argparse
import atexit
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False

CORES = os.cpu_count() or 1
PYPROJECT = nox.project.load_toml("pyproject.toml")


def read_groups(*names: str) -> list[str]:
    """Returns the requirements of dependency groups."""
    return list(nox.project.dependency_groups(PYPROJECT, *names))


def pin_lowest(*extras: str) -> list[str]:
    """Returns the dependencies, and those of the extras, pinned to their lowest allowed versions."""
    project = PYPROJECT["project"]
    requirements = [
        *project["dependencies"],
        *(it for extra in extras for it in project["optional-dependencies"][extra]),
    ]
    return [re.sub(r">=([^,]+).*", r"==\1", requirement) for requirement in requirements]


def find_pythons() -> list[str]:
    """Returns the supported Python versions on this machine, including those of pyenv, and the running one."""
    versions = []
    for version in nox.project.python_versions(PYPROJECT):
        folders = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))
        path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
        python = shutil.which(f"python{version}", path=path)
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            # pyenv's shims exist also for disabled versions, so the real interpreter must come first in the PATH.
            os.environ["PATH"] = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
            versions.append(version)
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return versions if running in versions else [*versions, running]


PYTHONS = find_pythons()
# The lowest versions of the dependencies have no wheels for the newest Pythons.
OLDEST, SECOND, NEWEST = PYTHONS[0], PYTHONS[:2][-1], PYTHONS[-1]

TESTS = (f"tests-{OLDEST}", f"bare-{NEWEST}", "integration", "ecosystem")
nox.options.sessions = ["lint", "docs", "types", *TESTS]

DEMO_NAMESPACES = {
    "glue": "demo",
    "hive3": "lake.demo",
    "iceberg": "demo",
    "lakekeeper": "demo",
    "polaris": "lake.demo",
    "unity": "lake.demo",
}
"""The namespace of the demo's tables in each catalog with a server; some catalogs require two levels."""

OTHER_SESSIONS = [f"--ignore=tests/{folder}" for folder in ("integration", "ecosystem", "connector", "issuer")]
"""Excludes the tests that have their own sessions."""

INTEGRATION = ["conformance", "consistency", "contract", "documentation", "integration"]
"""The folders with tests of real servers; importing all tests takes each process half a minute."""

TYPED = 0.997
"""The share of types that type checkers of users must know; not those that depend on botocore, which ships no types."""


FAILED: dict[str, Path] = {}
"""The sessions that failed, with the files of their failed tests."""


def session(**options: Any) -> Callable[[Callable[..., None]], Any]:
    """Makes a function a session of nox whose failure is reported at the end of the run."""

    def decorate(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def run(session: nox.Session, **parameters: Any) -> None:
            FAILED[session.name] = failed_tests(session)
            failed_tests(session).unlink(missing_ok=True)
            function(session, **parameters)
            del FAILED[session.name]

        return nox.session(**options)(run)

    return decorate


def failed_tests(session: nox.Session) -> Path:
    """Returns the file for the ids of the session's failed tests."""
    return Path(".nox", f"{re.sub(r'[^a-z0-9.]+', '-', session.name)}.failed")


@atexit.register
def report_failures() -> None:
    """Prints the sessions and tests that failed, and the commands that repeat just these."""
    for name, path in FAILED.items():
        tests = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        print(f"\nfailed: {name}" + (f", {len(tests)} tests" if tests else ""), *tests[:5], sep="\n  ")
        print(f"repeat: nox -s {shlex.quote(name)}" + (" -- --lf" if tests else ""))


def install(session: nox.Session, *requirements: str) -> None:
    """Installs requirements into the environment of the session.

    The PYTHONPATH of nox itself is ignored. Python keeps what it compiles, because tests start many processes.
    """
    session.env.update(PYTHONPATH="", PYTHONDONTWRITEBYTECODE="")
    # uv asks the index about what is not installed, and some indexes make it download and build PySpark again for that.
    spark = [it for it in requirements if it.startswith("pyspark")]
    if spark:
        session.install("--no-deps", *spark)
    session.install(*requirements)


def check_installed(session: nox.Session) -> None:
    """Fails if installed packages are incompatible with each other."""
    # An environment of uv contains no pip.
    command = ["uv", "pip", "check"] if session.venv_backend == "uv" else ["python", "-m", "pip", "check"]
    session.run(*command, silent=True, external=session.venv_backend == "uv")


@session()
def lint(session: nox.Session) -> None:
    """Checks style, spelling, import rules, security and the fragments of the changelog."""
    install(session, "-e", ".[glue]", *read_groups("lint"))  # The classes of all catalogs are generated.
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell", "lance_ns_async", "tests", "benchmarks", "docs", "noxfile.py", *sorted(glob("*.md")))
    session.run("lint-imports")
    session.run("python", ".ci/generate_sync.py", "--check")
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@session()
def docs(session: nox.Session) -> None:
    """Builds the documentation into `site/`; `-- serve` serves it and rebuilds it after changes."""
    install(session, *read_groups("docs"))
    session.env["NO_MKDOCS_2_WARNING"] = "1"
    command = session.posargs or ["build", "--strict", "--site-dir", str(Path("site").absolute())]
    session.run("mkdocs", command[0], "--config-file", "docs/mkdocs.yml", *command[1:])


@session()
def audit(session: nox.Session) -> None:
    """Checks the dependencies for known vulnerabilities. It calls PyPI, so it is not a default session."""
    install(session, "-e", ".[all]", *read_groups("audit"))
    session.run("pip-audit", "--skip-editable", *session.posargs)


@session()
def types(session: nox.Session) -> None:
    """Checks the types of the package, the tests and the benchmarks, and that users see all types of the package."""
    install(session, "-e", ".[cli,glue]", *read_groups("types", "spark-types", "test", "servers", "bench"), "nox")
    command = ("pyright", "--verifytypes", "lance_ns_async", "--ignoreexternal", "--outputjson")
    with ThreadPoolExecutor() as threads:
        pyright = threads.submit(session.run, *command, silent=True, success_codes=[0, 1])
        session.run("mypy")
    report = json.loads(pyright.result() or "")["typeCompleteness"]
    if report["completenessScore"] < TYPED:
        unknown = [it["name"] for it in report["symbols"] if it["isExported"] and not it["isTypeKnown"]]
        session.error(f"{report['completenessScore']:.2%} of the types are known, {TYPED:.2%} required; not: {unknown}")


def run_pytest(
    session: nox.Session,
    *arguments: str,
    processes: int = CORES + 1,
    options: list[str] | None = None,
    success_codes: tuple[int, ...] = (0,),
) -> None:
    """Runs tests in one process more than there are cores, as tests also wait; a server or file is of one process.

    The order is that of the collection, which begins with the longest files.

    Java runs without its second, slower compiler, and without the verification of bytecode, because the servers and
    Spark sessions of tests run for seconds.

    Args:
        options: Further options of pytest; None means all arguments of the session.
        success_codes: Statuses of pytest that are no failure; 5 means that there were no tests.
    """
    flags = ("TieredStopAtLevel=1", "+UseSerialGC", "+UnlockDiagnosticVMOptions", "-BytecodeVerificationRemote")
    session.env["JAVA_TOOL_OPTIONS"] = " ".join(f"-XX:{it}" for it in flags)
    cache = f"cache_dir={failed_tests(session).with_suffix('.cache').absolute()}"
    command = ("python", "-m", "pytest", "-n", str(processes), "--dist", "loadgroup", "--no-loadscope-reorder")
    reports = ("--durations=10", "-o", cache, "--failed-to", str(failed_tests(session)))
    further = session.posargs if options is None else options
    session.run(*command, *reports, *arguments, *further, success_codes=success_codes)


def for_backends(*names: str) -> list[str]:
    """Returns the options for the tests of backends; `none` are those of no backend."""
    return [f"--backend={name}" for name in names]


def paths(*names: str) -> list[str]:
    """Returns the paths of tests."""
    return [f"tests/{name}" for name in names]


@session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Runs the tests that need no server, with the optional extras; `-- --cov` also measures their coverage.

    The results depend little on the version of Python, so only the oldest one runs all of them. By default, nox runs
    only that, and `bare` with the newest version. The workflow of the night names the sessions of the other ones.
    """
    coverage = ["coverage"] if "--cov" in session.posargs else []
    install(session, "-e", ".[cli,glue]", *read_groups("test", "servers", *coverage))
    check_installed(session)
    if session.python == OLDEST:
        run_pytest(session, "-m", "not integration", *OTHER_SESSIONS, "tests")
    else:
        run_pytest(session, "-m", "not integration", "--marked=environment", *for_backends("dir", "none"), "tests")


@session(python=SECOND)
def floors(session: nox.Session) -> None:
    """Runs tests with the lowest versions of the dependencies that pyproject.toml allows, as each night."""
    extras = ("cli", "glue", "otel", "sql")
    install(session, "-e", f".[{','.join(extras)}]", *read_groups("test", "servers"), *pin_lowest(*extras))
    check_installed(session)
    run_pytest(session, "-m", "not integration", "--marked=floors", *for_backends("dir", "none"), "tests")


@session(python=PYTHONS)
def bare(session: nox.Session) -> None:
    """Runs tests without extras."""
    # The group contains aiobotocore for its other dependencies.
    no_extra = [it for it in read_groups("test", "servers") if not it.startswith("aiobotocore")]
    install(session, "-e", ".", *no_extra)
    selection = ("-m", "not integration and not glue", "--marked=bare", *for_backends("dir", "none"))
    # The tests are few, and each process first imports their modules.
    run_pytest(session, *selection, "tests", processes=CORES)


@session()
def quick(session: nox.Session) -> None:
    """Checks types and style, and runs the tests of the rooms that changed since the main branch: `-- gateway`."""
    groups = read_groups("test", "servers", "types", "spark-types", "lint", "bench")
    install(session, "-e", ".[cli,glue]", *groups, "nox")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy", "lance_ns_async")
    rooms = [it for it in session.posargs if not it.startswith("-")]
    selection = [f"--room={room}" for room in rooms] or ["--changed=main"]
    options = [it for it in session.posargs if it not in rooms]
    # A change of other files, such as this one, has no tests.
    run_pytest(session, "-m", "not integration", *selection, "tests", options=options, success_codes=(0, 5))


@session()
def loaded(session: nox.Session) -> None:
    """Runs the usual tests twice beside busy processes, as each night; `-- 30` is the number of these."""
    install(session, "-e", ".[cli,glue]", *read_groups("test", "servers"))
    numbers = [it for it in session.posargs if it.isdigit()]
    options = [it for it in session.posargs if it not in numbers]
    command = ("nice", sys.executable, "-c", "while True: pass")
    busy = [subprocess.Popen(command) for _ in range(int(numbers[0]) if numbers else 2 * CORES)]
    try:
        for _ in range(2):
            run_pytest(session, "-m", "not integration", *OTHER_SESSIONS, "tests", options=options)
    finally:
        for process in busy:
            process.kill()


def add_backend_session(name: str) -> None:
    """Adds a session with all tests of one backend, those of its real server included."""

    @session(name=name)
    def backend(session: nox.Session) -> None:
        install(session, "-e", ".[cli,glue]", *read_groups("test", "servers"))
        run_pytest(session, *for_backends(name), *OTHER_SESSIONS, "tests")

    backend.__doc__ = f"Runs all tests of the backend {name}, also those of its real server."


for _name in ("dir", *DEMO_NAMESPACES, "rest"):
    add_backend_session(_name)


@session()
def integration(session: nox.Session) -> None:
    """Runs the tests of real servers, which they download and start; a server that cannot start is a failure."""
    install(session, "-e", ".[cli,glue]", *read_groups("test", "demo", "browser"))
    run_pytest(session, "-m", "integration", "--ignore-glob=*/test_duckdb_extension.py", *paths(*INTEGRATION))


@session()
def ecosystem(session: nox.Session) -> None:
    """Runs the tests of pylance, lancedb and Daft, and of the peer that users migrate from."""
    install(session, "-e", ".[cli,glue]", *read_groups("test", "servers", "lancedb", "peers", "daft"))
    run_pytest(session, "--ignore-glob=*/ecosystem/test_*ray*.py", "tests/ecosystem")


@session()
def ray(session: nox.Session) -> None:
    """Runs the tests of lance-ray, and of Daft on Ray, as each night."""
    install(session, "-e", ".[cli,glue]", *read_groups("test", "servers", "daft", "ray"))
    # The start of Ray takes minutes on a loaded machine.
    run_pytest(session, "--timeout=600", *sorted(glob("tests/ecosystem/test_*ray*.py")))


@session()
def connector(session: nox.Session) -> None:
    """Runs the tests of the JVM connector, as each night. Its newest version is for Spark 3.5, and has 240 MB."""
    install(session, "-e", ".[cli,connector]", *read_groups("test", "servers", "connector"))
    run_pytest(session, "tests/connector", processes=0)


@session()
def keycloak(session: nox.Session) -> None:
    """Runs the tests of the gateway with a real Keycloak, as each night. It has 177 MB."""
    install(session, "-e", ".[cli,oidc,ui]", *read_groups("test", "servers"))
    run_pytest(session, "tests/issuer", processes=0)


@session(name="duckdb-extension")
def duckdb_extension(session: nox.Session) -> None:
    """Runs the test of DuckDB's extension `lance`, as each night; it needs an older DuckDB than the extra sql."""
    others = [it for it in read_groups("test", "servers") if not it.startswith("duckdb")]
    install(session, "-e", ".[cli,glue]", *others, *read_groups("duckdb-extension"))
    run_pytest(session, "tests/integration/test_duckdb_extension.py", processes=0)


@session()
def newest(session: nox.Session) -> None:
    """Runs tests with the newest package of the spec, even if pylance does not accept it yet."""
    install(session, "-e", ".[cli,glue]", *read_groups("test", "servers"))
    session.install("--upgrade", "--pre", "--no-deps", "lance-namespace", "lance-namespace-urllib3-client", "pylance")
    run_pytest(session, "-m", "not integration", "--marked=environment", "tests")


@session()
def compatibility(session: nox.Session) -> None:
    """Runs the kit of the spec on this package and on others, and writes the page on compatibility."""
    install(session, "-e", ".[cli,glue]", *read_groups("test", "servers", "peers"))
    session.run("python", "-m", "tests.conformance.matrix")


@session()
def demo(session: nox.Session) -> None:
    """Creates tables in a catalog, resolves them and reads them in one Spark job: `-- --catalog iceberg --tables 1000`.

    The server of the catalog is started, unless `--endpoint URL` is the address of a running one.
    """
    parser = argparse.ArgumentParser(prog="nox -s demo --")
    parser.add_argument("--catalog", default="dir", choices=["dir", *DEMO_NAMESPACES])
    parser.add_argument("--endpoint", metavar="URL", help="the address of a running catalog")
    options, arguments = parser.parse_known_args(session.posargs)
    # Without Spark, the embedded catalog needs only the package.
    groups = [] if options.catalog == "dir" and "--no-spark" in arguments else ["demo"]
    install(session, "-e", ".[cli,glue]" if options.catalog == "glue" else ".[cli]", *read_groups(*groups))
    if options.catalog == "dir":
        session.run("python", "-m", "benchmarks.demo", *arguments)
        return
    command = ["python", "-m", "benchmarks.demo", "--namespace", DEMO_NAMESPACES[options.catalog], *arguments]
    if options.endpoint:
        address = "uri" if options.catalog == "hive3" else "endpoint"
        session.run(*command, "--impl", options.catalog, "--property", f"{address}={options.endpoint}")
    else:
        session.run("python", "-m", "tests.servers", options.catalog, "--run", *command)


@session()
def build(session: nox.Session) -> None:
    """Builds the distributions into `dist/`, and checks them."""
    install(session, *read_groups("release"))
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", *sorted(glob("dist/*")))


@session()
def bench(session: nox.Session) -> None:
    """Compares describes with another client: rate, CPU, and time over the ideal. `-- --quick`, `-- glue --quick`."""
    if session.posargs and session.posargs[0] in ("glue", "hive3", "polaris", "unity"):
        install(session, "-e", ".[glue]", *read_groups("test", "servers", "bench", "peers"))
        session.run("python", "-m", "benchmarks.catalogs", *session.posargs)
    else:
        install(session, "-e", ".", *read_groups("bench"))
        session.run("python", "-m", "benchmarks.describe", *session.posargs)
