"""The HTTP service over the client: routes, bodies, errors; stands below the command line."""
