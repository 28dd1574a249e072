r"""Published weights into a file that networks here start from: read by digest, renamed, and batch norms taken as the constants they are.

``python -m zetadp.trainer.models.conversion resnet18.pth --naming torchvision_resnet_18 --sha256 DIGEST --to resnet18.safetensors``
writes the file and prints the network as JSON, with ``initial_weights`` that keep every layer but the last.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.models.layer_spec import Linear
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.published import NAMINGS, PUBLISHED, Naming, modules_of, parameters_of, published_network
from zetadp.trainer.specs.models.residual_networks import Numbers
from zetadp.trainer.specs.models.weights import GivenWeights

VARIANCE_FLOOR = 1e-5
"""eps of the batch norms of all these networks."""
WRAPPERS = ("state_dict", "net", "model")
"""Under which some authors' files keep the tensors."""
COUNTER = "num_batches_tracked"
"""A batch norm's count of batches, which its outputs don't depend on."""

Arrays = dict[str, NDArray[np.float32]]


def read_tensors(file: Path, sha256: str) -> dict[str, NDArray[np.float64]]:
    r"""The tensors of a safetensors file, or of one that torch saved, by name; digest and content are of the same bytes.

    Of torch's files only tensors and plain containers are read: nothing in them is run. ``module.`` before all names is left out.

    Raises:
      InvalidParameter: it has another digest, isn't of either format, or has a tensor that isn't finite.
    """
    content = file.read_bytes()
    if (digest := hashlib.sha256(content).hexdigest()) != sha256:
        raise InvalidParameter("sha256", f"the digest of {file.name}, {digest}", sha256)
    try:
        loaded: object = load(content) if file.suffix == ".safetensors" else torch.load(io.BytesIO(content), "cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise InvalidParameter("file", "a safetensors file, or tensors that torch saved", str(error).splitlines()[0]) from error
    for wrapper in WRAPPERS:
        if isinstance(loaded, Mapping) and wrapper in loaded:
            loaded = loaded[wrapper]
    named = {str(name): value for name, value in cast("Mapping[object, object]", loaded).items()} if isinstance(loaded, Mapping) else {}
    if not named or not all(isinstance(value, Tensor) for value in named.values()):
        raise InvalidParameter("file", "tensors by name", type(loaded).__name__)
    tensors = {name: cast("Tensor", value).double().numpy() for name, value in named.items()}
    if any(not np.isfinite(values).all() for values in tensors.values()):
        raise InvalidParameter("file", "a file of finite numbers", "NaN or infinity")
    return {name.removeprefix("module.") if all(one.startswith("module.") for one in tensors) else name: tensors[name] for name in tensors}


def converted(naming: Naming, tensors: Mapping[str, NDArray[np.float64]], numbers: Numbers = "real") -> tuple[Sequential, Arrays]:
    r"""The network, and its parameters under our names, float32; of a complex network with imaginary parts 0.

    A complex network gives real images what the real one gives them: its activation is the real one on both parts.

    Raises:
      InvalidParameter: a tensor is missing, left over, or of another shape.
    """
    if numbers == "real_pairs":
        raise InvalidParameter("numbers", "real or complex (a published network takes three channels)", numbers)
    shapes = {name: values.shape for name, values in tensors.items()}
    model = published_network(naming, shapes, numbers)
    constants = PUBLISHED[naming]
    mean, std = np.array(constants.mean), np.array(constants.std)
    arrays = {"0_channel_affine.weight": 0.5 / std, "0_channel_affine.bias": (0.5 - mean) / std}
    unused = {name for name in tensors if not name.endswith(COUNTER)}
    for ours, theirs in modules_of(naming, shapes, model).items():
        of_module = {name.rpartition(".")[2]: tensors[name] for name in unused if name.rpartition(".")[0] == theirs}
        unused -= {f"{theirs}.{name}" for name in of_module}
        found = _affine(theirs, of_module) if ours.endswith("_channel_affine") else of_module
        arrays |= {f"{ours}.{name}": values for name, values in found.items()}
    if unused:
        raise InvalidParameter("file", "tensors of the network only", min(unused))
    if numbers == "complex":
        arrays = {name: np.stack((values, np.zeros_like(values)), axis=-1) for name, values in arrays.items()}
    found = {name: values.shape for name, values in arrays.items()}
    for name, shape in parameters_of(model).items():
        if found.get(name) != shape:
            raise InvalidParameter("file", f"weights with {name} of shape {shape}", found.get(name))
    return model, {name: np.ascontiguousarray(values, dtype=np.float32) for name, values in arrays.items()}


def _affine(module: str, tensors: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """A batch norm with its statistics fixed: (x - mean) / sqrt(variance + eps) * weight + bias."""
    needed = {"weight", "bias", "running_mean", "running_var"}
    if set(tensors) != needed:
        raise InvalidParameter("file", f"a batch norm {module} with {', '.join(sorted(needed))}", sorted(tensors))
    factor = tensors["weight"] / np.sqrt(tensors["running_var"] + VARIANCE_FLOOR)
    return {"weight": factor, "bias": tensors["bias"] - tensors["running_mean"] * factor}


def transferred(model: Sequential, file: str, sha256: str, classes: int) -> Sequential:
    """The network with a new last layer for so many classes and all others kept as they are in the file, under the data sets' root."""
    kept = len(model.layers) - 1
    given = GivenWeights(file=file, sha256=sha256, frozen_layers=kept, given_layers=kept)
    layers = (*model.layers[:-1], Linear(outputs=classes))
    return Sequential(numbers=model.numbers, layers=layers, head=model.head, initial_weights=given)


def main(arguments: list[str] | None = None) -> None:
    """Convert one file."""
    parser = argparse.ArgumentParser(prog="python -m zetadp.trainer.models.conversion", description=__doc__)
    parser.add_argument("file", type=Path, help="the published file: safetensors, or saved by torch")
    parser.add_argument("--naming", choices=NAMINGS, required=True, help="whose names its tensors have")
    parser.add_argument("--sha256", required=True, help="its digest, as its publisher states it")
    parser.add_argument("--to", type=Path, required=True, help="the file to write, *.safetensors, below the data sets' root")
    parser.add_argument("--numbers", choices=("real", "complex"), default="real")
    parser.add_argument("--classes", type=int, default=10, help="of the new last layer")
    given = parser.parse_args(arguments)
    model, arrays = converted(given.naming, read_tensors(given.file, given.sha256), given.numbers)
    content = save(arrays, metadata={"source_sha256": given.sha256, "naming": given.naming})
    given.to.write_bytes(content)
    found = transferred(model, given.to.name, hashlib.sha256(content).hexdigest(), given.classes)
    sys.stdout.write(json.dumps(found.model_dump(mode="json"), indent=1) + "\n")


if __name__ == "__main__":
    main()
