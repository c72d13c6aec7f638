"""What is done with a table once a catalog has located it: by pylance, for every catalog alike.

Everything here blocks and is run in worker threads, except for what `creating` and `many` do in turn with a catalog.
"""
