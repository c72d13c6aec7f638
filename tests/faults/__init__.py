"""Results of operations after faults of the server or the connection, for every catalog behind a network.

`python -m tests.faults` writes the tables in the documentation.
"""
