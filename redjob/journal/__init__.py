"""The journal writer: what the journals tell, committed in Postgres."""
