"""The command ``zetadp``, which is also ``python -m zetadp`` and, in a checkout, ``python -m app``."""

import atexit
import gc
import os
import sys

# Importing makes a few hundred thousand objects that live as long as the process: the usual look for garbage after each 700 of them
# is a tenth of the time of a start, and the last one, before the process ends, takes half a second. Nothing is left to it to close.
gc.set_threshold(50_000)
atexit.register(gc.freeze)

# A verification's vectors are too short for several threads: waiting for each other takes them a sixth of its processor time. Nor does it
# need plug-ins of Pydantic, which looks for some in everything that is installed, or most validators. Children of other commands inherit
# this environment and may have use for all of it. One verification makes too little garbage to look for.
if sys.argv[1:2] == ["verify"]:
    gc.set_threshold(300_000)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.environ["_ZETADP_DEFER_VALIDATORS"] = "1"

from zetadp.app.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
