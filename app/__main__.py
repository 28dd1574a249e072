"""``python -m app``: the command ``zetadp``, in a checkout."""

from zetadp.__main__ import main

if __name__ == "__main__":
    main()
