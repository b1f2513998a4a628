"""The repository's own habits: no machine's paths or hosts, documented modules of bearable size."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
#: The most lines that a module of each folder may have.
MAX_LINES = {"grammar": 450, "parsing": 450, "server": 450, "bench": 450, "tests": 600}

#: Written in pieces, so that this file doesn't trip over itself.
PATHS = re.compile("|".join(("/wor" + r"k/", "/tmp/d" + "ev", "/roo" + "t/", r"/home/\w")))
HOSTS = re.compile("|".join((r"py" + r"pi\.org", r"python" + r"hosted", r"npm" + r"js\.org")))


def tracked() -> list[Path]:
    """The files that are, or with the next commit would be, in the repository."""
    if not (REPO / ".git").exists():
        pytest.skip("this is not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPO,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    files = [REPO / name for name in listing.split("\0") if name]
    return [file for file in files if file.is_file()]


def room(file: Path) -> str:
    return file.relative_to(REPO).parts[0]


def modules() -> list[Path]:
    return [file for file in tracked() if file.suffix == ".py" and room(file) in MAX_LINES]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    found = {}
    for file in tracked():
        try:
            found[str(file.relative_to(REPO))] = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    assert len(found) > 20
    return found


def test_no_paths_of_a_machine(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        found = PATHS.search(text)
        assert found is None, f"{name} names {found and found.group()}"


def test_no_package_index_is_named(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        found = HOSTS.search(text)
        assert found is None, f"{name} names {found and found.group()}"


def test_no_large_files_are_tracked() -> None:
    for file in tracked():
        assert file.stat().st_size < 1_000_000, f"{file} is too large for the repository"


def test_every_module_says_what_it_is_for() -> None:
    for module in modules():
        text = module.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(text)), f"{module.relative_to(REPO)} has no docstring"


def test_modules_stay_of_bearable_size() -> None:
    for module in modules():
        lines = module.read_text(encoding="utf-8").count("\n")
        assert lines <= MAX_LINES[room(module)], f"{module.relative_to(REPO)} has {lines} lines"


def test_every_package_is_installed() -> None:
    """The list of packages in pyproject.toml is written by hand; it must not forget one."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    there = {
        str(module.parent.relative_to(REPO)).replace("/", ".")
        for module in modules()
        if room(module) in ("grammar", "parsing", "server")
    }
    assert listed == there | {"gabarito_config"}


def test_every_configuration_file_is_installed() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["gabarito_config"]
    config = REPO / "config"
    covered = {file for pattern in patterns for file in config.glob(pattern)}
    there = {file for file in tracked() if config in file.parents}
    assert there
    assert there <= covered, f"not installed: {sorted(there - covered)}"


def test_scripts_are_executable() -> None:
    assert os.access(REPO / ".ci" / "run", os.X_OK)
