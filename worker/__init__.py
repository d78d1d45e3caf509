"""The worker service: takes jobs from Redis streams, runs them under a lease and reports how they ended."""
