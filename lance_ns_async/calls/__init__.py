"""One remote call: policy, caller, slots, limiter, circuit, hedging, observers, paging."""
