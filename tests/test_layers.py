"""The import contracts see through the linked folders: a planted wrong import is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_LINT = Path(sys.executable).with_name("lint-imports")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, links kept as links."""
    for name in ("redjob", "api", "worker", "sweeper"):
        shutil.copytree(_ROOT / name, tmp_path / name, symlinks=True)
    (tmp_path / "lua").mkdir()
    shutil.copy(_ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "line", "told"),
    [
        ("worker/planted.py", "import redjob.sweeper", "redjob.worker.planted -> redjob.sweeper"),
        ("api/planted.py", "import redis.asyncio", "redjob.api.planted -> redis"),
        ("sweeper/planted.py", "import asyncpg", "redjob.sweeper.planted -> asyncpg"),
        ("redjob/planted.py", "", "- redjob.planted"),
    ],
)
def test_a_wrong_import_is_refused(tree: Path, file: str, line: str, told: str) -> None:
    (tree / file).write_text(f"{line}\n")
    done = subprocess.run(
        [_LINT, "--no-cache"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert told in done.stdout
