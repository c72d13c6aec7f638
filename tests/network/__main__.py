"""Prints the report on catalogs as JSON, a line each: `python -m tests.network iceberg glue`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.network.catalogs import CATALOGS
from tests.network.trial import tried

parser = argparse.ArgumentParser(prog="python -m tests.network", description=__doc__)
parser.add_argument("impl", nargs="*", default=list(CATALOGS))
parser.add_argument("--only", default="", help="part of the names of the misbehaviours to try")
given = parser.parse_args()
for impl in given.impl:
    with TemporaryDirectory() as tmp:
        sys.stdout.write(json.dumps(asdict(asyncio.run(tried(impl, Path(tmp), given.only)))) + "\n")
        sys.stdout.flush()
