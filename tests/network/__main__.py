"""Prints the reports on catalogs as JSON, one per line: `python -m tests.network iceberg glue`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.network.catalogs import CATALOGS
from tests.network.trial import run_trial

parser = argparse.ArgumentParser(prog="python -m tests.network", description=__doc__)
parser.add_argument("impl", nargs="*", default=list(CATALOGS))
parser.add_argument("--only", default="", help="part of the names of the faults to inject")
arguments = parser.parse_args()
for impl in arguments.impl:
    with TemporaryDirectory() as tmp:
        sys.stdout.write(json.dumps(asdict(asyncio.run(run_trial(impl, Path(tmp), arguments.only)))) + "\n")
        sys.stdout.flush()
