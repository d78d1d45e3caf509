"""The worker service: takes jobs, runs them under a lease, reports how they ended."""
