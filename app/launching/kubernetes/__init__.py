"""Workers as Jobs of Kubernetes, in the queues of Kueue where there are any."""

from zetadp.app.launching.kubernetes.cluster import Kubernetes

__all__ = ["Kubernetes"]
