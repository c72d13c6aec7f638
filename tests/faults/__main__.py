"""Writes the tables of the documentation, or prints the reports of trials as JSON, one per line. `python -m
tests.faults page`, or `python -m tests.faults iceberg glue`; without names, on all catalogs."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict

from tests.documentation.pages import PAGES
from tests.faults.catalogs import ALL
from tests.faults.trial import PAGE, render, run_trial

parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
parser.add_argument("names", nargs="*", choices=[*ALL, "page"], default=list(ALL))
parser.add_argument("--only", default="", help="part of the names of the faults to inject")
arguments = parser.parse_args()
for name in arguments.names:
    if name == "page":
        (PAGES / PAGE).write_text(render(), encoding="utf-8")
    else:
        sys.stdout.write(json.dumps(asdict(asyncio.run(run_trial(name, arguments.only)))) + "\n")
        sys.stdout.flush()
