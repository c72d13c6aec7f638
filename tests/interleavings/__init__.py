"""The orders in which the steps of clients can meet, tried one by one.

Each client is a task with a namespace of its own, on one fake server and one storage. It stops before each remote call
and each work in the storage; a schedule decides whose step is next. `scheduler.py` runs one order, `search.py` tries
all orders that differ in a result, `programs.py` has what clients do, and `model.py` decides whether the answers and
the final state have an explanation.
"""
