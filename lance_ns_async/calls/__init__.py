"""Policies for one remote call: retries, slots, limiter, circuit breaker, hedging, observers and paging."""
