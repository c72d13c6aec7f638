"""How a table begins, changes hands and ends, on every catalog."""
