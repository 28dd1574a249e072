r"""THE REGISTRY of training algorithms, free of torch. To add one: a folder with spec.py and train.py, and its spec in the union here.

``train`` hands an ``Algorithm`` to ``trainer.engine.run``, which has the lifecycle of every run: what to prepare, what a step is, what is
there at the end.
``comparison``, which runs several of these, stands beside them in ``trainer``.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from trainer.dp_sgd_laplace.printed_spec import DpSgdLaplacePrinted
from trainer.dp_sgd_laplace.spec import DpSgdLaplace
from trainer.federated.spec import FederatedZetaDpSgd
from trainer.functional_mechanism.spec import FunctionalMechanism
from trainer.non_private.spec import NonPrivateTraining
from trainer.obfuscation.spec import Obfuscation
from trainer.spec import TrainingSpec
from trainer.spectral_dp.spec import SpectralDp
from trainer.spof.printed_spec import SpofPrinted
from trainer.spof.spec import Spof
from trainer.zeta_dp_sgd.spec import ZetaDpSgd

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
