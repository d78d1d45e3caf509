"""The HTTP service: routes, bodies and errors over the client; stands above client and below the command line."""
