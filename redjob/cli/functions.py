"""`redjob functions`: the scripts as a Redis Function library, for consumers in other languages."""

from __future__ import annotations

import click

from redjob.calls.library import LIBRARY, function_name, library_text
from redjob.calls.reads import Query
from redjob.calls.scripts import script_names
from redjob.cli.options import connection_options, example, json_option, store_of
from redjob.cli.output import print_json
from redjob.config import Connection


@click.group(epilog=example("redjob functions load"))
def functions() -> None:
    """Put redjob's scripts where programs in any language can FCALL them."""


@functions.command(epilog=example("redjob functions load --redis-url redis://localhost:6379/0"))
@json_option
@connection_options
def load(connection: Connection, /, *, as_json: bool) -> None:
    """Load the library into every server that holds jobs; one of an older redjob is replaced."""
    text = library_text()
    load_it = Query(None, [("FUNCTION", "LOAD", "REPLACE", text)], lambda raw: raw[0])
    servers = len(store_of(connection).query_each(load_it))
    names = [function_name(name) for name in script_names()]
    if as_json:
        print_json({"library": LIBRARY, "servers": servers, "functions": names})
    else:
        click.echo(f"loaded {len(names)} functions into {servers} server(s): {', '.join(names)}")


@functions.command(epilog=example("redjob functions export > redjob.lua"))
def export() -> None:
    """Print the library, for whoever loads it by other means: `redis-cli -x FUNCTION LOAD REPLACE`."""
    click.echo(library_text(), nl=False)
