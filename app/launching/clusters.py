"""The cluster that the settings name."""

from __future__ import annotations

from zetadp.app.kit.settings import Settings
from zetadp.app.launching.interface import Cluster


def cluster_of(settings: Settings) -> Cluster:
    """Raises InvalidParameter if it can't be used with these settings."""
    match settings.launcher:
        case "slurm":
            from zetadp.app.launching.slurm import Slurm

            return Slurm(settings)
        case "kubernetes":
            # Its client is an extra that only such a launcher needs.
            from zetadp.app.launching.kubernetes import Kubernetes

            return Kubernetes(settings)
        case "local":
            from zetadp.app.launching.local import Local

            return Local(settings)
