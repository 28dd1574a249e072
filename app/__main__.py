"""The command ``zetadp``, which is also ``python -m zetadp`` and, in a checkout, ``python -m app``."""

import gc

# Importing makes a few hundred thousand objects that live as long as the process: the usual look for garbage after each 700 of them
# is a tenth of the time of a start.
gc.set_threshold(50_000)

from zetadp.app.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
