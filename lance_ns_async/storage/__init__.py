"""Opening and inspecting what is stored."""
