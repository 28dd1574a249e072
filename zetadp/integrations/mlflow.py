r"""Logs a run's certificate to MLflow: its figures as parameters, and the files that prove them as artifacts."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.cli.certify import CERTIFICATE_FILE, JWS_FILE, KEYS_FILE, PROOFS_FILE, REVOCATIONS_FILE
from zetadp.integrations import missing
from zetadp.integrations.valid_certificate import valid_folder
from zetadp.mechanisms import ComplexGaussian, Gaussian, Spectral
from zetadp.mechanisms.errors import InvalidParameter

try:
    mlflow = import_module("mlflow")  # as an import statement Pyright takes it for this module
except ImportError as error:
    raise missing("mlflow", "mlflow") from error

__all__ = ["FOLDER", "log_certificate"]

FOLDER = "privacy"
"""The artifacts' folder, and what parameters' names begin with."""


def log_certificate(folder: Path, keys: PublicKeySet) -> None:
    r"""Logs to the active run.

    Parameters, all of them ``privacy.*``: ``guarantee`` (``approximate_dp`` or ``none``, then with ``reason``); epsilon, delta, unit and
    adjacency of a guarantee; algorithm, steps and, where all releases have the same, the noise multiplier of real or circular Gaussian
    noise. Metrics: what the certificate says was measured. Artifacts, below ``privacy/``: the certificate, all files that it names, what
    proves it, and its words as text.

    Args:
      folder: as ``zetadp certificate JOB --folder`` leaves it.
      keys: that you trust; nothing is logged of a certificate that isn't valid with them.
    Raises:
      InvalidParameter: the certificate isn't valid, or there is no active run.
    """
    if mlflow.active_run() is None:
        raise InvalidParameter("run", "active (mlflow.start_run)", None)
    found = valid_folder(folder, keys)
    certificate = found.statement.predicate
    mlflow.log_params({f"{FOLDER}.{name}": value for name, value in _parameters(Reading(certificate)).items()})
    metrics = certificate.run.metrics or {}
    mlflow.log_metrics({f"{FOLDER}.{name}": float(value) for name, value in metrics.items()})
    names = (
        CERTIFICATE_FILE,
        JWS_FILE,
        KEYS_FILE,
        PROOFS_FILE,
        REVOCATIONS_FILE,
        *(subject.name for subject in found.statement.subject),
    )
    for path in (folder / name for name in names):
        if path.is_file():
            mlflow.log_artifact(str(path), FOLDER)
    mlflow.log_text(describe(certificate), f"{FOLDER}/certificate.txt")


def _parameters(reading: Reading) -> dict[str, str]:
    certificate = reading.certificate
    guarantee = certificate.guarantee
    found = {"guarantee": guarantee.kind, "algorithm": certificate.job.algorithm, "steps": str(certificate.run.steps_released)}
    if not isinstance(guarantee, ApproximateDp):
        return found | {"reason": guarantee.reason}
    assert reading.adjacency is not None  # a guarantee has neighbours
    found |= {"epsilon": guarantee.epsilon, "delta": guarantee.delta, "unit": reading.unit, "adjacency": reading.adjacency.value}
    multipliers = {_noise_multiplier(one.mechanism) for one in reading.releases}
    only = multipliers.pop() if len(multipliers) == 1 else None
    return found if only is None else found | {"noise_multiplier": repr(only)}


def _noise_multiplier(mechanism: object) -> float | None:
    """The standard deviation of each real component over the l2 sensitivity; None for noise that has no such quotient."""
    match mechanism:
        case Gaussian() | Spectral():
            std = mechanism.std
        case ComplexGaussian(correlation=0.0) if len(set(mechanism.stds)) == 1:
            std = mechanism.stds[0]
        case _:
            return None
    return None if mechanism.sensitivity.l2 is None else std / mechanism.sensitivity.l2
