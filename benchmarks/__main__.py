r"""``python -m benchmarks``: speed and memory, as ratios against a peer measured in turn in this process, one thread, medians."""

from __future__ import annotations

import sys

from benchmarks import accounting, training

if __name__ == "__main__":
    for module in (accounting, training):
        for line in module.run():
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
