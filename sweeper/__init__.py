"""The sweeper service: puts what a crash left behind back in exactly one place."""
