r"""The environment of a child process: without the service's settings and credentials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from zetadp.trainer.data.uploaded import UPLOADED_VARIABLE
from zetadp.trainer.specs.algorithms.federation import FEDERATION_VARIABLE

DATA_SETS_DIR = "ZETADP_DATA_SETS_DIR"
"""The setting of the service that a child sees: the folder of data sets. It also gets the folder of uploaded ones."""

WITHHELD = ("ZETADP_", "AWS_")

MEMORY_KEPT = {"MALLOC_MMAP_THRESHOLD_": str(256 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
"""For glibc in a child: blocks up to 256 MiB come from the heap, and the heap gives memory back only beyond 1 GiB.

Every step of a training allocates and frees the same activations. By default glibc returns each large one to the system at once, and
the page faults of allocating it again cost as much time as the arithmetic on it (for 100 MiB blocks, forty times as much as reusing them).
"""


def child_environment(environment: Mapping[str, str], data_sets_dir: Path | None, uploaded_dir: Path | None = None) -> dict[str, str]:
    """The service's environment without its settings, which may hold a password, and without the credentials of its storage (``AWS_``),
    since no child reads from there; but with the folders of the data sets, and the path of a federation's settings.

    Memory is kept as ``MEMORY_KEPT`` says, unless the operator set either of its variables.

    >>> child_environment({"PATH": "/bin", "ZETADP_DATABASE_URL": "secret", "MALLOC_TRIM_THRESHOLD_": "0"}, Path("/data"))
    {'PATH': '/bin', 'MALLOC_TRIM_THRESHOLD_': '0', 'ZETADP_DATA_SETS_DIR': '/data'}
    >>> child_environment({"AWS_SECRET_ACCESS_KEY": "secret", "MALLOC_TRIM_THRESHOLD_": "0"}, None)
    {'MALLOC_TRIM_THRESHOLD_': '0'}
    """
    found = {name: value for name, value in environment.items() if name == FEDERATION_VARIABLE or not name.startswith(WITHHELD)}
    if MEMORY_KEPT.keys().isdisjoint(found):
        # Both or neither: setting one alone also switches off how glibc adapts the other.
        found |= MEMORY_KEPT
    folders = {DATA_SETS_DIR: data_sets_dir, UPLOADED_VARIABLE: uploaded_dir}
    return found | {name: str(folder.absolute()) for name, folder in folders.items() if folder is not None}
