"""What every backend does, over every catalog there is to test with and both faces."""
