"""What the Lance Namespace spec defines: its REST routes, and its responses with hidden credentials."""
