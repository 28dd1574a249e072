r"""Whom a reader trusts beside the keys that sign certificates: authorities that stamp times, witnesses of logs, and makers of machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.log.notes import NoteKey


@final
@dataclass(frozen=True)
class Trust:
    r"""Whom, and how many of them have to agree.

    Attributes:
      authorities: time-stamping authorities, each as a PEM text of its certificates.
      least_time_stamps: of different ones, at least 1.
      witnesses: of the log, by their keys.
      least_witnesses: more than half of them.
      machines: keys by which confidential machines sign reports, each as a PEM text of its certificate and the maker's.
      pck: serial numbers of the certificates of Intel's machines that may sign quotes; any if empty.
      revoked: lists of revoked certificates of such keys, each as a PEM text that its issuer signed.
    """

    authorities: tuple[str, ...] = ()
    least_time_stamps: int = 1
    witnesses: tuple[NoteKey, ...] = ()
    least_witnesses: int = 1
    machines: tuple[str, ...] = ()
    pck: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()


NOBODY = Trust()
"""What isn't checked then says so."""
