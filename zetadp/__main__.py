"""``python -m zetadp``: the command line."""

from zetadp.app.__main__ import main

if __name__ == "__main__":
    main()
