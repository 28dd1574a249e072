"""The command ``zetadp``, which is also ``python -m zetadp`` and, in a checkout, ``python -m app``."""

import gc
import os
import sys

# Importing makes a few hundred thousand objects that live as long as the process: the usual look for garbage after each 700 of them
# is a tenth of the time of a start.
gc.set_threshold(50_000)

# A verification's vectors are too short for several threads: waiting for each other takes them a sixth of its processor time. Children of
# other commands inherit this environment and may have use for threads.
if sys.argv[1:2] == ["verify"]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from zetadp.app.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
