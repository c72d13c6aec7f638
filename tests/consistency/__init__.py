"""State of catalogs after killed processes and concurrent operations.

Two suites share the processes and the catalogs of this folder:

- The crash suite (`test_crash.py`, `crash.py`, `model.py`): a process performs operations chosen by a seed, and reports
  the beginning and the end of each. It is killed by SIGKILL, either just after a certain remote call, or a random time
  after the beginning of an operation. A new process then compares the state with all states that the interrupted
  operation may have left, and uses each name again.
- The races (`test_races.py`, `races.py`, `history.py`): four processes with four tasks each perform random operations
  on a few names. The history records the beginning and the end of each operation, and `history.check` searches for an
  order of single steps that explains all responses.

Each round has a seed and is independent. A failed test prints the commands that repeat its seed:

    python -m tests.consistency crash dir --seed 17 --times 20
    python -m tests.consistency race iceberg-1.11.0 --plan overwrites --seed 3 --times 20
"""
