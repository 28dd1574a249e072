r"""``python -m benchmarks``: speed and memory, as ratios against a peer measured in turn in this process, one thread, medians.

Names of parts may follow, to run only those: ``python -m benchmarks accounting service``. ``comparison`` and ``extremes`` take
many minutes, and run only when they are named (docs/comparison.md).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

from benchmarks.kept_memory import keep_memory

PARTS = (
    "closed_form",
    "accounting",
    "samplings",
    "random_points",
    "filters",
    "calculators",
    "costs",
    "service",
    "start",
    "ledgers",
    "noise",
    "training",
    "circulant",
    "spectral",
    "autoencoders",
    "obfuscation",
)


def main(parts: tuple[str, ...]) -> None:
    """Writes the report of these parts."""
    for part in parts:
        if importlib.util.find_spec(f"benchmarks.{part}") is None:
            continue
        for line in importlib.import_module(f"benchmarks.{part}").run():
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    # Before NumPy is imported: one thread for everybody.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    keep_memory("benchmarks")
    main(tuple(sys.argv[1:]) or PARTS)
