"""State of catalogs after killed processes and concurrent operations.

Two suites share the processes and the catalogs of this folder:

- The crash suite (`test_crash.py`, `crash.py`, `model.py`): a process performs operations chosen by a seed, and tells
  of each one before it begins and after it ended. It is killed by SIGKILL, either just after a certain remote call, or
  a random time after a certain operation began. A fresh process then compares what is there with every state that the
  operation under way may have left, and uses every name again.
- The races (`test_races.py`, `races.py`, `history.py`): four processes with four tasks each perform random operations
  on a few names. When each operation began and ended goes into a history, and `history.check` looks for an order of
  single steps that explains all answers.

Every round has a seed and stands alone. A failed test prints the commands that run its seed again:

    python -m tests.consistency crash dir --seed 17 --times 20
    python -m tests.consistency race iceberg-1.11.0 --plan overwrites --seed 3 --times 20
"""
