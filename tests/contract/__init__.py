"""The contract of backends, tested on every catalog through both interfaces."""
