r"""The registry of training algorithms, free of torch. To add one: its spec, in ``trainer.specs.algorithms`` and in the union
here, and a folder of the same name in ``trainer.algorithms`` with ``train.py``.

``train`` passes an ``Algorithm`` to ``trainer.engine.run``, which has the lifecycle of every run: what to prepare, what a step is, and what
the run ends with. ``comparison``, which runs several of these, joins them in ``trainer``.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from zetadp.trainer.specs.algorithms.dp_sgd_laplace import DpSgdLaplace
from zetadp.trainer.specs.algorithms.dp_sgd_laplace_printed import DpSgdLaplacePrinted
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.functional_mechanism import FunctionalMechanism
from zetadp.trainer.specs.algorithms.non_private import NonPrivateTraining
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.algorithms.spectral_dp import SpectralDp
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.algorithms.spof_printed import SpofPrinted
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.base import TrainingSpec

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
