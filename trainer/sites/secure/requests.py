r"""A coordinator's requests for the steps of a secure sum, and which sum they are of."""

from __future__ import annotations

from collections.abc import Sequence

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.messages import SecureRequest, digest
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.secure.masks import Ring
from zetadp.trainer.sites.secure.parts import Sum
from zetadp.trainer.specs.shares import share_grid

LENGTH_BYTES = 4


def sum_of(proposal: Proposal, request: SecureRequest, numbers: int) -> Sum:
    r"""The sum that a request is about.

    Args:
      numbers: of the network's parameters.
    """
    plan = proposal.plan
    assert plan.aggregation is not None  # whoever asks has looked
    grid = share_grid(plan, numbers)
    return Sum(
        federation=proposal.federation,
        aggregation=plan.aggregation,
        # With the grid, which each site computes: one that a logarithm of another machine made coarser or finer would be of another sum.
        session=digest(f"{request.proposal} {request.round} {request.session} {numbers} {grid}".encode()),
        ring=Ring(numbers=numbers, width=grid.width),
    )


def joined(frames: Sequence[bytes]) -> bytes:
    """Frames one after the other, each after its length."""
    return b"".join(len(frame).to_bytes(LENGTH_BYTES, "big") + frame for frame in frames)


def parted(content: bytes) -> list[bytes]:
    """The reverse. Raises InvalidParameter if bytes are missing."""
    frames, place = list[bytes](), 0
    while place < len(content):
        begins = place + LENGTH_BYTES
        place = begins + int.from_bytes(content[place:begins], "big")
        if place > len(content):
            raise InvalidParameter("frames", "whole", f"{len(content)} bytes")
        frames.append(content[begins:place])
    return frames
