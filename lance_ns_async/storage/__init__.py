"""Opening and inspecting stored tables."""
