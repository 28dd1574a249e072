"""The cluster that the settings name."""

from __future__ import annotations

from zetadp.app.kit.settings import Settings
from zetadp.app.launching.interface import Cluster
from zetadp.mechanisms.errors import InvalidParameter


def cluster_of(settings: Settings) -> Cluster:
    """Raises InvalidParameter if it can't be used with these settings."""
    match settings.launcher:
        case "slurm":
            from zetadp.app.launching.slurm import Slurm

            return Slurm(settings)
        case "kubernetes":
            try:
                from zetadp.app.launching.kubernetes import Kubernetes  # its client is an extra that only such a launcher needs
            except ImportError:
                expected = "a launcher whose client is installed; kubernetes needs pip install 'zetadp[kubernetes]'"
                raise InvalidParameter("ZETADP_LAUNCHER", expected, settings.launcher) from None

            return Kubernetes(settings)
        case "local":
            from zetadp.app.launching.local import Local

            return Local(settings)
