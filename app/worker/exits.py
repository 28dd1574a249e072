r"""Exit codes of a worker. A separate module, since whoever starts workers needs nothing else of it."""

from __future__ import annotations

EXIT_BROKEN = 1
"""An unforeseen error; the log says where."""
EXIT_BUSY = 75
"""``EX_TEMPFAIL``: another worker has the name that this one was given."""
EXIT_REFUSED = 78
"""``EX_CONFIG``: a worker can't run with these settings, whenever it is started."""
