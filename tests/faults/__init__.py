"""Results of operations after faults of the server or the connection, for every catalog behind a proxy."""
