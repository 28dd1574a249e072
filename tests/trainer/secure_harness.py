"""Sites and a coordinator of secure sums in one place, without any network: of one sum, and of a run's rounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from tests.trainer.federation_harness import NUMBERS, spec_of
from zetadp.trainer.sites.keys import public_text
from zetadp.trainer.sites.ledger import SiteLedger, make_ledger
from zetadp.trainer.sites.messages import Refusal, SecureRequest, Step, digest, opened, read, sealed
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.record import FederationRecord
from zetadp.trainer.sites.secure.masks import Residues, Ring
from zetadp.trainer.sites.secure.parts import Sum
from zetadp.trainer.sites.secure.party import Party, SharesUnreadable
from zetadp.trainer.sites.secure.rounds import SecureRounds
from zetadp.trainer.sites.secure.summing import Summing
from zetadp.trainer.sites.settings import SiteBudget
from zetadp.trainer.sites.site import Drawing, Site
from zetadp.trainer.specs.algorithms.aggregation import SecureAggregation
from zetadp.trainer.specs.algorithms.federation import FederatedSite, Federation

SITES = 4
SECURE = {"kind": "secure", "dropouts": 1, "colluding": 1}
MODEL = "3" * 64
"""The digest of the parameters that a sum is for."""
PARAMETERS = np.zeros(NUMBERS, np.float32)


@cache
def signing(number: int) -> Ed25519PrivateKey:
    """A site's certified key; the coordinator's is -1."""
    return Ed25519PrivateKey.from_private_bytes(bytes([number + 1]) * 32)


def about(sites: int, dropouts: int, colluding: int, width: int = 29, session: str = "1" * 64) -> Sum:
    """A sum of so many sites."""
    named = tuple(FederatedSite(name=f"s{number}", key=public_text(signing(number))) for number in range(sites))
    federation = Federation(name="made-up", coordinator=public_text(signing(-1)), sites=named)
    aggregation = SecureAggregation(dropouts=dropouts, colluding=colluding)
    aggregation.check(sites)
    return Sum(federation=federation, aggregation=aggregation, session=session, ring=Ring(numbers=NUMBERS, width=width))


def integers(number: int, width: int = 29) -> NDArray[np.int64]:
    """What a site adds up: anything modulo 2^width."""
    half = 2 ** (width - 1)
    return np.random.default_rng(number).integers(-half, half - 1, NUMBERS, endpoint=True)


@dataclass
class Round:
    """The course of a sum, up to any of its steps; each step takes the sites that are still there."""

    about: Sum
    draws: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.parties = [Party(self.about, number, signing(number)) for number in range(len(self.about.federation.sites))]
        self.summing = Summing(self.about)

    def keys(self, there: Collection[int]) -> list[bytes]:
        """The keys of these sites."""
        return [self.parties[number].keys() for number in there]

    def shares(self, there: Collection[int], keys: Sequence[bytes]) -> list[bytes]:
        """Their shares."""
        self.summing.take_keys(keys)
        return [self.parties[number].shares(keys) for number in there]

    def masked(self, there: Collection[int], shares: Sequence[bytes]) -> Mapping[int, Residues]:
        """Their masked integers, as they travel."""
        self.summing.take_shares(shares)
        ring = self.about.ring
        return {
            number: ring.unpacked(ring.packed(self.parties[number].masked(shares, MODEL, partial(self.draw, number)))) for number in there
        }

    def draw(self, number: int) -> NDArray[np.int64]:
        """A site's integers, which are counted."""
        self.draws.append(number)
        return integers(number, self.about.ring.width)

    def agreed(self, there: Collection[int], arrived: Mapping[int, Residues]) -> list[bytes]:
        """Their signatures on what arrived."""
        self.summing.take_masked(arrived, MODEL)
        return [self.parties[number].agreed(arrived) for number in there]

    def whole(self, *there: Collection[int]) -> NDArray[np.int64]:
        """The sum; ``there``: the sites that are left in each of the five steps."""
        shares = self.shares(there[1], self.keys(there[0]))
        agreed = self.agreed(there[3], self.masked(there[2], shares))
        return self.summing.total([self.parties[number].revealed(agreed) for number in there[4]])


def plain(there: Collection[int], width: int) -> list[int]:
    """The plain sum modulo 2^width, centred."""
    modulus = 2**width
    sums = [sum(int(integers(number, width)[place]) for number in there) % modulus for place in range(NUMBERS)]
    return [value - modulus if value >= modulus // 2 else value for value in sums]


class Sites:
    """Four sites that answer at once, on a line that loses (site, step) in ``lost``; those in ``late`` come when the next step is asked."""

    def __init__(self, folder: Path, *, epsilon: float = 100.0, drawing: Callable[[int], Drawing] | None = None, **changes: Any) -> None:
        self.folder, self.coordinator = folder, Ed25519PrivateKey.generate()
        self.keys = [Ed25519PrivateKey.generate() for _ in range(SITES)]
        spec = spec_of(public_text(self.coordinator), [public_text(key) for key in self.keys], **({"aggregation": SECURE} | changes))
        self.proposal = Proposal.of(spec, spec.plan())
        self.budget = SiteBudget.model_validate({"epsilon": epsilon, "delta": 1e-5, "adjacency": "add_remove", "unit": "record"})
        self.draws: list[tuple[int, int]] = []
        self.lost: set[tuple[int, str]] = set()
        self.late: set[tuple[int, str]] = set()
        self.sent: list[bytes] = []
        self.unreadable: list[tuple[str, SharesUnreadable]] = []
        self.changed: Callable[[int, str, bytes], bytes] = lambda _site, _step, answer: answer
        self.bytes, self.time = [0] * SITES, 0.0
        self._drawing = drawing or (lambda site: lambda _proposal: (NUMBERS, self._draws(site)))
        for site in range(SITES):
            make_ledger(folder / f"{site}.sqlite")
        self.sites = [self.opened(site) for site in range(SITES)]
        self.waiting: deque[bytes] = deque()
        self._later: list[bytes] = []

    def _draws(self, site: int) -> Callable[[int, NDArray[np.float32]], NDArray[np.int64]]:
        def draw(number: int, _parameters: NDArray[np.float32]) -> NDArray[np.int64]:
            self.draws.append((site, number))
            return np.arange(NUMBERS) - 10**site

        return draw

    def ledger(self, site: int) -> SiteLedger:
        """A site's ledger, opened once more."""
        return SiteLedger(self.folder / f"{site}.sqlite", self.budget.budget, self.budget.adjacency, self.budget.unit)

    def opened(self, site: int) -> Site:
        """A new process of a site, as it were."""

        def failed(error: Exception) -> None:
            if not isinstance(error, SharesUnreadable):
                raise error
            self.unreadable.append(("abcd"[site], error))

        agreed = {self.proposal.digest: self.proposal}
        return Site("abcd"[site], self.keys[site], self.ledger(site), lambda: agreed, self._drawing(site), failed)

    def send(self, frame: bytes) -> None:
        """To all sites, whose answers wait."""
        self.sent.append(frame)
        step = read(SecureRequest, opened(frame)).step
        self.waiting.extend(self._later)
        self._later.clear()
        for number, site in enumerate(self.sites):
            if (number, step) not in self.lost:
                answer = self.changed(number, step, site.answer(frame))
                self.bytes[number] += len(answer)
                (self._later if (number, step) in self.late else self.waiting).append(answer)

    def receive(self, seconds: float) -> bytes | None:
        """The next answer; time passes while there is none."""
        self.time += 0.0 if self.waiting else seconds
        return self.waiting.popleft() if self.waiting else None

    def rounds(self, folder: Path | None = None, numbers: int = NUMBERS) -> SecureRounds:
        """A coordinator's process, as it were."""
        place = self.folder / "run" if folder is None else folder
        place.mkdir(exist_ok=True)
        record = FederationRecord(place, self.proposal.federation)
        return SecureRounds(
            proposal=self.proposal,
            key=self.coordinator,
            line=self,
            record=record,
            folder=place,
            numbers=numbers,
            should_stop=lambda: False,
            round_seconds=1.0,
            first_seconds=2.0,
            now=lambda: self.time,
        )

    def ask(self, step: Step, *payloads: bytes, number: int = 1) -> list[bytes]:
        """The sites' answers to a coordinator that sends what it likes: one payload to all, or to each its own."""
        answers = list[bytes]()
        for site, payload in zip(self.sites, payloads * (SITES if len(payloads) == 1 else 1), strict=True):
            request = SecureRequest(
                proposal=self.proposal.digest, round=number, session="0" * 64, step=step, numbers=NUMBERS, payload=digest(payload)
            )
            answers.append(site.answer(sealed(request, payload, self.coordinator)))
        return answers

    def charged(self) -> list[int]:
        """Rounds that each site's own ledger has charged."""
        return [self.ledger(site).charged(self.proposal.digest) for site in range(SITES)]

    def reason(self, frame: bytes, site: int = 0) -> str:
        """Why a site refuses this."""
        return read(Refusal, opened(self.sites[site].answer(frame))).reason


def expected(sites: list[int]) -> list[int]:
    """The sum of what these sites draw."""
    return [sum(place - 10**site for site in sites) for place in range(NUMBERS)]


def total(found: Mapping[int, NDArray[np.int64]]) -> list[int]:
    """The sum of what arrived."""
    return np.stack(list(found.values())).sum(0).tolist()
