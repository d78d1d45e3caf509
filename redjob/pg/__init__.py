"""Postgres: all SQL, and nothing of Redis."""
