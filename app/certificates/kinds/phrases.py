r"""Phrases that several kinds of training read aloud."""

from __future__ import annotations

from app.certificates.facts import GroupFacts, MechanismFacts, ReleaseFacts, SamplingFacts


def sentence(words: str) -> str:
    """The words with a capital and a full stop.

    >>> sentence("every node takes part")
    'Every node takes part.'
    """
    return f"{words[0].upper()}{words[1:]}."


def release_phrase(release: ReleaseFacts, who: str) -> str:
    """How often, with which noise, on what."""
    drawn = _drawn(release.sampling, who) + _held(release.group)
    return f"{release.count} release{'' if release.count == 1 else 's'} with {noise_phrase(release.mechanism)}, {drawn}"


def noise_phrase(mechanism: MechanismFacts) -> str:
    """Kind and amount of the noise; for a local release, of what."""
    parts = " and ".join(dict.fromkeys(std for std in (mechanism.std_real, mechanism.std_imag) if std is not None))
    scale = f"standard deviation {parts} on each real component" if parts else f"scale {mechanism.laplace_scale}"
    if mechanism.box is None:
        return f"{mechanism.kind} noise of {scale}"
    # A local release: every record by itself, in a public box.
    box = mechanism.box
    amount = f"of epsilon {mechanism.epsilon} for each record" if mechanism.epsilon is not None else f"of {scale}"
    within = f"on every record by itself, of {box.dimension} coordinates in [{box.lower}, {box.upper}]"
    return f"{mechanism.kind} noise {amount}, {within}"


def _drawn(sampling: SamplingFacts, who: str) -> str:
    match sampling.kind:
        case "poisson":
            return f"each {who} drawn with probability {sampling.probability}"
        case "fixed_size":
            return f"on samples of exactly {sampling.sample_size} of {sampling.population_size} records"
        case "none":
            return "on all of the data"


def _held(group: GroupFacts | None) -> str:
    return "" if group is None else f", where one protected unit holds at most {group.size} of the unit {group.of!r}"
