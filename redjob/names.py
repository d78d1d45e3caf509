"""The one rule for names that people choose: namespaces, queues, tenants, tasks."""

from __future__ import annotations

import re

from redjob.errors import InvalidArgument

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def check_name(field: str, value: object) -> str:
    """Return the name unchanged. Raises InvalidArgument unless it matches [A-Za-z0-9_.:-]{1,128}."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise InvalidArgument(
            field, f"is {value!r:.80}", "use 1 to 128 of the characters A-Z a-z 0-9 _ . : -"
        )
    return value
