r"""The calculators over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from app.calculators import catalogue, service
from app.calculators.catalogue import AccountantEntry, AlgorithmEntry, MechanismEntry, Proof
from app.calculators.comparison import Comparison, ComplexGaussianComparison, compare
from app.calculators.schemas import Calibration, CalibrationRequest, Profile, ProfileRequest

router = APIRouter(tags=["calculators"])


@router.post("/profiles", summary="Compute a privacy profile")
def create_profile(request: ProfileRequest) -> Profile:
    """delta(epsilon), epsilon(delta), Renyi divergences, mu and the attacker's trade-off of any event, as upper bounds."""
    return service.compute_profile(request)


@router.post("/calibrations", summary="Calibrate noise to a target")
def create_calibration(request: CalibrationRequest) -> Calibration:
    """The least noise that meets a target, always on its safe side."""
    return service.compute_calibration(request)


@router.post("/compare/complex_gaussian", summary="Compare the papers' printed theorems with what is proved")
def compare_complex_gaussian(request: ComplexGaussianComparison) -> Comparison:
    """The printed theorems of both complex Gaussian papers beside what is proved."""
    return compare(request)


@router.get("/mechanisms", summary="List mechanisms")
def list_mechanisms() -> list[MechanismEntry]:
    """Every mechanism: what it is, its JSON schema, an example, sources, and the errata rows that concern it."""
    return catalogue.list_mechanisms()


@router.get("/mechanisms/{kind}/proof", summary="Read a mechanism's proof")
def get_proof(kind: str) -> Proof:
    """A mechanism's proof, as Markdown."""
    return catalogue.proof_of(kind)


@router.get("/accountants", summary="List accountants")
def list_accountants() -> list[AccountantEntry]:
    """Every accountant and its sources."""
    return catalogue.list_accountants()


@router.get("/algorithms", summary="List training algorithms")
def list_algorithms() -> list[AlgorithmEntry]:
    """Every training algorithm: its spec's JSON schema, and an example that runs."""
    return catalogue.list_algorithms()
