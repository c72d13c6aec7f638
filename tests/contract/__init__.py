"""The contract of backends, tested on each catalog through both interfaces."""
