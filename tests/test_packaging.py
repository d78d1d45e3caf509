"""What people install: every file of the tree under one name, six dependencies, nothing else."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_LINKED = ("api", "worker", "sweeper", "lua")
_SUFFIXES = {".py", ".lua", ".sql", ".typed"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that is built from it, as a release would be."""
    target = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", target, _ROOT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def _only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def _files_of_the_tree() -> set[str]:
    """Every file that belongs into the package, named as it is there."""
    real = [path for path in (_ROOT / "redjob").rglob("*") if path.suffix in _SUFFIXES]
    linked = [path for name in _LINKED for path in (_ROOT / name).rglob("*")]
    names = {path.relative_to(_ROOT / "redjob").as_posix() for path in real}
    names |= {path.relative_to(_ROOT).as_posix() for path in linked if path.suffix in _SUFFIXES}
    return {f"redjob/{name}" for name in names}


@pytest.mark.parametrize("name", _LINKED)
def test_the_real_folder_is_linked_into_the_package(name: str) -> None:
    link = _ROOT / "redjob" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name
    assert link.is_dir()


@pytest.mark.parametrize("name", ["redjob.api", "redjob.worker", "redjob.sweeper"])
def test_services_are_imported_under_one_name(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__name__ == name
    assert module.__doc__


def test_the_thin_install_has_six_dependencies() -> None:
    needed = {
        re.split(r"[^A-Za-z0-9-]", line)[0]
        for line in requires("redjob") or []
        if "extra ==" not in line
    }
    assert needed == {"redis", "hiredis", "msgspec", "croniter", "anyio", "click"}


def test_all_holds_every_extra_for_users() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(everything.removeprefix("redjob[").removesuffix("]").split(","))
    assert named == set(extras) - {"all", "dev"}


@pytest.mark.slow
def test_the_wheel_holds_the_whole_tree_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(_only(built, "*.whl")) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
    packaged = {name for name in names if ".dist-info/" not in name}
    assert packaged == _files_of_the_tree()
    assert "redjob/py.typed" in packaged
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_sdist_builds_the_same_package(built: Path) -> None:
    with tarfile.open(_only(built, "*.tar.gz")) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert _files_of_the_tree() <= names


@pytest.mark.slow
def test_a_fresh_environment_can_use_the_wheel(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    subprocess.run([*install, _only(built, "*.whl")], check=True, cwd=tmp_path)
    code = (
        "import redjob, redjob.api, redjob.worker, redjob.sweeper, pathlib;"
        "print(redjob.__version__, pathlib.Path(redjob.__file__).parents[1])"
    )
    told = subprocess.run(
        [python, "-c", code], check=True, cwd=tmp_path, capture_output=True, text=True
    ).stdout.split()
    assert told[0] == importlib.import_module("redjob").__version__
    assert Path(told[1]).is_relative_to(tmp_path)
