"""The sweeper service: finds what a crash left behind and puts each job back in exactly one place."""
