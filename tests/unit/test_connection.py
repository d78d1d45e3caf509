"""Where Redis and Postgres are: what is refused before anything connects, and what is passed on."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from redjob.cli.options import connection_options, postgres_options
from redjob.cli.parent import environment_of
from redjob.config import Connection
from redjob.errors import InvalidArgument

URL = "postgresql://user:s3cret@h:5432/jobs"


@pytest.mark.parametrize("name", ["redjob", "a", "_x9", "a" * 63, "pgjobs"])
def test_names_that_are_plain_identifiers_are_schemas(name: str) -> None:
    assert Connection(postgres_schema=name).postgres_schema == name


@pytest.mark.parametrize("name", ["", "Redjob", "9a", "a-b", 'a"; drop', "pg_jobs", "a" * 64, "ü"])
def test_other_names_are_not(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Connection(postgres_schema=name)
    assert caught.value.field == "postgres_schema"


@pytest.mark.parametrize("url", ["", "redis://:s3cret@h", "h:5432", "host=h password=s3cret"])
def test_another_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Connection(postgres_url=url)
    assert caught.value.field == "postgres_url"
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(Connection(postgres_url=URL))


def _connection_of(*arguments: str, **environment: str | None) -> Connection:
    """The connection that a command gets."""
    found: list[Connection] = []

    @click.command()
    @connection_options
    @postgres_options
    def command(connection: Connection, /) -> None:
        found.append(connection)

    result = CliRunner(env=environment).invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def test_a_command_takes_postgres_from_its_line_or_from_the_environment() -> None:
    unset = {"REDJOB_POSTGRES_URL": None, "REDJOB_POSTGRES_SCHEMA": None}
    assert _connection_of(**unset) == Connection()
    asked = Connection(postgres_url=URL, postgres_schema="jobs")
    assert _connection_of("--postgres-url", URL, "--postgres-schema", "jobs", **unset) == asked
    set_there = {"REDJOB_POSTGRES_URL": URL, "REDJOB_POSTGRES_SCHEMA": "jobs"}
    assert _connection_of(**set_there) == asked
    assert _connection_of(REDJOB_POSTGRES_URL="") == Connection(), "empty is unset"


def test_children_read_it_in_their_environment() -> None:
    told = environment_of(Connection(postgres_url=URL, postgres_schema="jobs"), "redis://h")
    assert told["REDJOB_POSTGRES_URL"] == URL
    assert told["REDJOB_POSTGRES_SCHEMA"] == "jobs"
    assert "REDJOB_POSTGRES_URL" not in environment_of(Connection(), "redis://h")
