"""From a module to a certificate, as the README has it: in few lines, and by a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]


@pytest.mark.slow  # the README's snippet, which runs by default, trains as well
def test_twelve_lines_are_enough(tmp_path: Path) -> None:
    script = """
        from functools import partial
        import torch, zetadp
        from torch import nn

        signals, labels = torch.randn(500, 16), torch.randint(0, 2, (500,))
        module = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
        done = zetadp.train(
            module, nn.CrossEntropyLoss(), (signals, labels), epsilon=2.0, delta=1e-5, unit="record", clipping_bound=1.0,
            expected_batch_size=50, steps=10, optimizer=partial(torch.optim.SGD, lr=0.1), folder="run")
        print(done.report.steps_released, done.folder / "certificate.json")
        """
    lines = textwrap.dedent(script).strip()
    assert len([line for line in lines.splitlines() if line]) <= 12
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", lines]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "10 run/certificate.json\n", done.stderr
