"""Finds the app that a worker is to serve: `module:attribute`, from the directory it was started in."""

from __future__ import annotations

import importlib
import os
import sys

import click

from redjob.app import Redjob


def load_app(place: str) -> Redjob:
    """Import an app; the current directory comes first on the path, as with `python -m`.

    Raises click.UsageError, which says what is missing where. An error inside the module itself is
    told with its type and message; REDJOB_DEBUG=1 shows where it came from.
    """
    module_name, colon, attribute = place.partition(":")
    if not colon or not module_name or not attribute:
        raise click.UsageError(f"{place!r} does not name an app; write it as module:attribute")
    directory = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and f"{module_name}.".startswith(f"{exc.name}."):
            message = f"there is no module {exc.name!r} in {directory} or on the Python path"
            raise click.UsageError(message) from exc
        raise _broken(module_name, exc) from exc
    except Exception as exc:  # whatever a user's module raises
        raise _broken(module_name, exc) from exc
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise click.UsageError(f"module {module_name!r} has no attribute {attribute!r}")
        found = getattr(found, name)
    if not isinstance(found, Redjob):
        raise click.UsageError(f"{place} is a {type(found).__name__}, not a redjob.Redjob")
    return found


def _broken(module_name: str, exc: Exception) -> click.UsageError:
    if os.environ.get("REDJOB_DEBUG"):
        raise exc
    return click.UsageError(
        f"module {module_name!r} cannot be imported: {type(exc).__name__}: {exc} "
        "(REDJOB_DEBUG=1 shows where)"
    )
