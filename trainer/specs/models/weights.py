r"""Weights that are given instead of drawn: a public file, named by its digest, that a network starts from or keeps. Free of torch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, TypedDict, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict, StringConstraints, model_validator
from safetensors import SafetensorError, deserialize

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.location import ROOT_VARIABLE, file_of

FIELD = "model.initial_weights"
PACKAGED = "with_zetadp/"
"""Files whose name begins so come with the package, whatever the data sets' root is: small backbones that ``benchmarks.backbones`` made."""
BACKBONES = Path(__file__).parent / "backbones"

LARGEST_FILE = 2**31
"""Bytes."""

LAYERS_NAME = re.compile(r"(\d{1,3})_[a-z_]+(?:\.[a-z]+\.\d{1,2}_[a-z_]+){0,3}\.(?:weight|bias)")

WeightsFile = Annotated[
    str,
    StringConstraints(strict=True, max_length=200, pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]*/)*[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors$"),
]
"""A path relative to the data sets' root: folder names (``trainer.data.files.location``), the last name ending in ``.safetensors``."""
LayerCount = Annotated[int, Strict(), Field(ge=0, le=128)]


class _Stored(TypedDict):
    """A tensor as the format's reader gives it."""

    dtype: str
    shape: list[int]
    data: bytearray


def not_covered(sha256: str) -> str:
    """What a certificate says of weights of this digest, among what the guarantee doesn't cover."""
    return (
        f"the weights that training started from (SHA-256 {sha256}): they are assumed to be public; if they were trained on the same data, "
        "that had a privacy cost of its own"
    )


@final
class GivenWeights(Value):
    r"""Public weights from a file; the layers behind the first ``given_layers`` start fresh, as with ``glorot``.

    Whoever submits the job declares the weights public. The guarantee says nothing about the records they were trained on: weights that
    were trained on the same private data are a release that had a privacy cost of its own, and its guarantee and this one add up.

    The file's tensors are named as in our own ``model.safetensors``, ``0_convolution.weight`` for layer 0, and are float32; a complex
    one has a last axis of (real, imaginary). Those of the first ``given_layers`` layers must all be there, in the network's shapes, and
    finite; those of later layers aren't read.

    Attributes:
      file: under the data sets' root, or ``with_zetadp/NAME`` for one that comes with the package.
      sha256: of the whole file, 64 hexadecimal digits: it makes the weights part of the model's description.
      frozen_layers: this many layers, from the first on, keep the file's weights and are never trained: they are part of the public
        preprocessing of a record, computed once. Not a dropout, and not all layers with weights.
      given_layers: this many layers, from the first on, start at the file's weights; >= frozen_layers.
    Raises:
      InvalidParameter: fewer given than frozen layers.
    """

    kind: Literal["given"] = "given"
    file: WeightsFile
    sha256: Annotated[str, StringConstraints(strict=True, pattern="^[0-9a-f]{64}$")]
    frozen_layers: LayerCount
    given_layers: Annotated[LayerCount, Field(ge=1)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.frozen_layers > self.given_layers:
            raise InvalidParameter(f"{FIELD}.frozen_layers", f"<= given_layers = {self.given_layers}", self.frozen_layers)
        return self

    @property
    def not_covered(self) -> str:
        """What a certificate says of them, among what the guarantee doesn't cover."""
        return not_covered(self.sha256)

    def read(self, expected: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
        r"""The given layers' tensors, from one reading of the file, of which digest and content are the same bytes.

        Args:
          expected: names and shapes of all the given layers' parameters.
        Raises:
          InvalidParameter: the file isn't there, isn't the one that the digest names, isn't of this format, or its tensors of these
            layers aren't exactly the expected ones, finite float32 numbers.
        """
        content = self._content()
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            raise InvalidParameter(f"{FIELD}.sha256", f"the digest of {self.file}, {digest}", self.sha256)
        try:
            tensors: dict[str, _Stored] = dict(deserialize(content))
        except SafetensorError as error:
            raise InvalidParameter(f"{FIELD}.file", "a safetensors file", f"{self.file}: {error}") from error
        needed = {name for name in tensors if not self._is_left_unread(name)}
        if missing := sorted(expected.keys() - needed):
            raise InvalidParameter(f"{FIELD}.file", f"a file with all tensors of the given layers (including {missing[0]})", self.file)
        if extra := sorted(needed - expected.keys()):
            raise InvalidParameter(f"{FIELD}.file", "a file with tensors of the network's layers only", f"{self.file} with {extra[0]}")
        return {name: _checked(name, tensors[name], shape) for name, shape in expected.items()}

    def _content(self) -> bytes:
        path = self._path()
        try:
            size = path.stat().st_size
            if size > LARGEST_FILE:
                raise InvalidParameter(f"{FIELD}.file", f"a file of at most {LARGEST_FILE} bytes", size)
            return path.read_bytes()
        except OSError as error:
            raise InvalidParameter(f"{FIELD}.file", "a file that can be read", self.file) from error

    def _path(self) -> Path:
        folder, _, name = self.file.rpartition("/")
        if self.file.startswith(PACKAGED):
            return BACKBONES / self.file.removeprefix(PACKAGED).replace("/", "_")
        try:
            return file_of(folder, name)
        except InvalidParameter as error:
            if error.field == ROOT_VARIABLE:
                raise
            raise InvalidParameter(f"{FIELD}.file", error.expected, self.file) from error

    def _is_left_unread(self, name: str) -> bool:
        layer = LAYERS_NAME.fullmatch(name)
        return layer is not None and int(layer[1]) >= self.given_layers


def _checked(name: str, tensor: _Stored, shape: tuple[int, ...]) -> NDArray[np.float32]:
    found = (tensor["dtype"], tuple(tensor["shape"]))
    if found != ("F32", shape):
        raise InvalidParameter(f"{FIELD}.file", f"a file in which {name} has dtype F32 and shape {shape}", found)
    values = np.frombuffer(tensor["data"], dtype="<f4").reshape(shape)
    if not np.isfinite(values).all():
        raise InvalidParameter(f"{FIELD}.file", "a file of finite numbers", f"NaN or infinity in {name}")
    return values
