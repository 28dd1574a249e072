r"""``python -m benchmarks.activations [--data digits] [--seeds 3]``: the zeta-DP paper's Table 4, ten complex activations in one network.

``--data speech`` is the paper's own data and network, hours on one thread. ROC-AUC and accuracy on held-out records, mean and standard
deviation over seeds, beside what the paper prints for spoken words.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import torch

from benchmarks.kept_memory import keep_memory
from benchmarks.recipes import private_run
from zetadp.trainer.recipes.activations import TABLE_4, on_digits, on_speech


def main(arguments: list[str]) -> None:
    """Prints a row as soon as its runs are over."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.activations", description="Ten complex activations in one network.")
    parser.add_argument("--data", choices=("digits", "speech"), default="digits")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sys.stdout.write("| activation | the paper's ROC-AUC on Speech Commands | ROC-AUC | accuracy |\n| --- | --- | --- | --- |\n")
    for row in TABLE_4:
        spec = (on_digits if options.data == "digits" else on_speech)(row.name)
        runs = [private_run(spec)[0] for _ in range(options.seeds)]
        figures = " | ".join(_spread([run[name] for run in runs]) for name in ("roc_auc", "accuracy"))
        sys.stdout.write(f"| {row.words} | {row.roc_auc:.3f} | {figures} |\n")
        sys.stdout.flush()


def _spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3f}" + (f" +- {statistics.stdev(values):.3f}" if len(values) > 1 else "")


if __name__ == "__main__":
    keep_memory("benchmarks.activations")
    main(sys.argv[1:])
