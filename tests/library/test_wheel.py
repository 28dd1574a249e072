"""What is built works from outside the checkout: in an environment of its own, in a project whose folders have our folders' names."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("app", "trainer", "accountants", "mechanisms", "tests")

pytestmark = pytest.mark.slow  # it installs the service's libraries anew


def _run(*command: object, folder: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheel and of the source distribution, from a clean copy of what git knows."""
    copy, folder = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    archive = subprocess.run(["git", "stash", "create"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() or "HEAD"
    packed = subprocess.run(["git", "archive", archive], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=copy, input=packed, check=True)
    _run(sys.executable, "-m", "build", "--outdir", folder, ".", folder=copy)
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A web project that has folders of these names itself."""
    folder = tmp_path_factory.mktemp("project")
    for name in OURS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f'OWNER = "the project\'s {name}"\n')
    return folder


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment into which the wheel was installed: no torch, which only training needs."""
    folder = tmp_path_factory.mktemp("environment")
    _run(sys.executable, "-m", "venv", folder, folder=folder)
    wheel = next(built.glob("*.whl"))
    _run(folder / "bin/pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel, folder=folder)
    return folder / "bin"


def test_everything_lies_below_one_name(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist()}
        assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
        assert any(name.endswith("licenses/NOTICE") for name in wheel.namelist())
    assert {top for top in tops if not top.endswith(".dist-info")} == {"zetadp"}


def test_a_project_with_such_folders_keeps_its_own_and_has_ours(environment: Path, project: Path) -> None:
    code = f"import {', '.join(OURS)}, zetadp.app.main, zetadp.trainer.specs.registry; print([one.OWNER for one in ({', '.join(OURS)})])"
    assert _run(environment / "python", "-c", code, folder=project) == f"{[f'the project{chr(39)}s {name}' for name in OURS]}\n"


def test_it_answers_and_its_command_does(environment: Path, project: Path) -> None:
    code = "import zetadp; print(zetadp.epsilon(noise_multiplier=2.0, delta=1e-5).upper)"
    epsilon = float(_run(environment / "python", "-c", code, folder=project))
    assert 1.99 < epsilon < 2.0
    answer = _run(environment / "zetadp", "epsilon", "--noise-multiplier", "2", "--delta", "1e-5", folder=project)
    assert f"epsilon <= {epsilon!r}" in answer
    assert _run(environment / "zetadp", "--version", folder=project).startswith("zetadp ")


def test_the_source_distribution_gives_the_same_wheel(built: Path, tmp_path: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = next(tmp_path.iterdir())
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "again", unpacked, folder=tmp_path)
    names = [set(zipfile.ZipFile(next(folder.glob("*.whl"))).namelist()) for folder in (built, tmp_path / "again")]
    assert names[0] == names[1]
