"""What a user gets when the wire misbehaves: faults of every kind, on every catalog that is asked over a network.

`python -m tests.faults` writes the documentation's table of them.
"""
