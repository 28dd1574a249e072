r"""The registry of training algorithms, free of torch. To add one: its spec, in ``trainer.specs.algorithms`` and in the union
here, and a folder of the same name in ``trainer.algorithms`` with ``train.py``.

``train`` passes an ``Algorithm`` to ``trainer.engine.run``, which has the lifecycle of every run: what to prepare, what a step is, and what
the run ends with. ``comparison``, which runs several of these, joins them in ``trainer``.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from trainer.specs.algorithms.dp_sgd_laplace import DpSgdLaplace
from trainer.specs.algorithms.dp_sgd_laplace_printed import DpSgdLaplacePrinted
from trainer.specs.algorithms.federated import FederatedZetaDpSgd
from trainer.specs.algorithms.functional_mechanism import FunctionalMechanism
from trainer.specs.algorithms.non_private import NonPrivateTraining
from trainer.specs.algorithms.obfuscation import Obfuscation
from trainer.specs.algorithms.spectral_dp import SpectralDp
from trainer.specs.algorithms.spof import Spof
from trainer.specs.algorithms.spof_printed import SpofPrinted
from trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from trainer.specs.base import TrainingSpec

AnyPartSpec = Annotated[
    ZetaDpSgd
    | FederatedZetaDpSgd
    | SpectralDp
    | NonPrivateTraining
    | Spof
    | DpSgdLaplace
    | FunctionalMechanism
    | SpofPrinted
    | DpSgdLaplacePrinted
    | Obfuscation,
    Field(discriminator="algorithm"),
]
PARTS: tuple[type[TrainingSpec], ...] = get_args(get_args(AnyPartSpec)[0])
