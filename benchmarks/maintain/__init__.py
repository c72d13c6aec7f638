"""Speed and memory of maintenance."""
