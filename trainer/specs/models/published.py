r"""Published networks whose weights can be loaded: which of their tensors is which of ours, and the network that the shapes tell. No torch.

A batch norm whose statistics are fixed is a factor and a shift for each channel, so it becomes a ``channel_affine`` layer: its statistics
are public constants of the file, and records don't mix. Before everything stands one more, which takes our colours, x / 127.5 - 1, to
those that the network was trained on, (x / 255 - mean) / std.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, final, get_args

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.specs.models.layer_spec import ChannelAffine, Linear
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.residual_networks import Numbers, resnet_18, resnext_29, wide_resnet
from zetadp.trainer.specs.models.shapes import Shape, each_layer, sequential_shapes

Shapes = Mapping[str, tuple[int, ...]]
Naming = Literal["torchvision_resnet_18", "cifar_resnet_18", "resnext_29", "wide_resnet"]
Colours = tuple[float, float, float]

CIFAR_MEAN: Colours = (125.3 / 255, 123.0 / 255, 113.9 / 255)
CIFAR_STD: Colours = (63.0 / 255, 62.1 / 255, 66.7 / 255)


@final
@dataclass(frozen=True)
class Published:
    r"""One way to name tensors.

    Attributes:
      network: from the tensors' shapes and our kind of numbers to the network, with a last layer for the file's classes.
      modules: names of its modules with weights, in the order of our layers with parameters; the argument is the shapes.
      mean, std: of red, green and blue in [0, 1], as the authors normalise their images.
      source: whose names they are.
    """

    network: Callable[[Shapes, Numbers], Sequential]
    modules: Callable[[Shapes], Iterator[str]]
    mean: Colours
    std: Colours
    source: str


def _outputs(shapes: Shapes, module: str) -> int:
    """Numbers that a module gives."""
    return _of(shapes, f"{module}.weight")[0]


def _of(shapes: Shapes, name: str) -> tuple[int, ...]:
    if name not in shapes:
        raise InvalidParameter("file", f"weights with a tensor {name}", f"{len(shapes)} others")
    return shapes[name]


def _resnet(shapes: Shapes, numbers: Numbers, *, last: str, for_large_images: bool) -> Sequential:
    classes, width = _outputs(shapes, last), _outputs(shapes, "conv1")
    return resnet_18(classes, numbers, width, norm="affine", for_large_images=for_large_images)


def _resnet_modules(shortcut: str, last: str) -> Iterator[str]:
    yield from ("conv1", "bn1")
    for stage in range(1, 5):
        for block in range(2):
            inner = ["conv1", "bn1", "conv2", "bn2", *((f"{shortcut}.0", f"{shortcut}.1") if stage > 1 and not block else ())]
            yield from (f"layer{stage}.{block}.{name}" for name in inner)
    yield last


def _resnext(shapes: Shapes, numbers: Numbers) -> Sequential:
    outputs, of_group, *_ = _of(shapes, "stage_1.stage_1_bottleneck_0.conv_conv.weight")
    cardinality = outputs // of_group
    after = _outputs(shapes, "stage_1.stage_1_bottleneck_0.conv_expand")
    return resnext_29(_outputs(shapes, "classifier"), cardinality, outputs // cardinality, numbers, after=after, norm="affine")


def _resnext_modules(_shapes: Shapes) -> Iterator[str]:
    yield from ("conv_1_3x3", "bn_1")
    for stage in range(1, 4):
        for block in range(3):
            inner = ["conv_reduce", "bn_reduce", "conv_conv", "bn", "conv_expand", "bn_expand"]
            inner += [] if block else ["shortcut.shortcut_conv", "shortcut.shortcut_bn"]
            yield from (f"stage_{stage}.stage_{stage}_bottleneck_{block}.{name}" for name in inner)
    yield "classifier"


def _blocks(shapes: Shapes) -> int:
    """Blocks of a wide residual network's stage."""
    return sum(1 for name in shapes if name.startswith("block1.layer.") and name.endswith(".conv1.weight"))


def _wide(shapes: Shapes, numbers: Numbers) -> Sequential:
    widening = _outputs(shapes, "block1.layer.0.conv1") // 16
    return wide_resnet(_outputs(shapes, "fc"), 6 * _blocks(shapes) + 4, widening, numbers, norm="affine")


def _wide_modules(shapes: Shapes) -> Iterator[str]:
    yield "conv1"
    for stage in range(1, 4):
        for block in range(_blocks(shapes)):
            at = f"block{stage}.layer.{block}"
            yield from (f"{at}.{name}" for name in ("bn1", "conv1", "bn2", "conv2"))
            if f"{at}.convShortcut.weight" in shapes:
                yield f"{at}.convShortcut"
    yield from ("bn1", "fc")


PUBLISHED: dict[Naming, Published] = {
    "torchvision_resnet_18": Published(
        lambda shapes, numbers: _resnet(shapes, numbers, last="fc", for_large_images=True),
        lambda _: _resnet_modules("downsample", "fc"),
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
        "torchvision's resnet18",
    ),
    "cifar_resnet_18": Published(
        lambda shapes, numbers: _resnet(shapes, numbers, last="linear", for_large_images=False),
        lambda _: _resnet_modules("shortcut", "linear"),
        (0.4914, 0.4822, 0.4465),
        (0.2023, 0.1994, 0.2010),
        "kuangliu/pytorch-cifar's ResNet18",
    ),
    "resnext_29": Published(_resnext, _resnext_modules, CIFAR_MEAN, CIFAR_STD, "prlz77/ResNeXt.pytorch and bearpaw/pytorch-classification"),
    "wide_resnet": Published(_wide, _wide_modules, CIFAR_MEAN, CIFAR_STD, "xternalz/WideResNet-pytorch"),
}
NAMINGS: tuple[Naming, ...] = get_args(Naming)


def published_network(naming: Naming, shapes: Shapes, numbers: Numbers) -> Sequential:
    """The network that tensors of these shapes are of, behind the layer that normalises colours. Raises InvalidParameter for others."""
    found = PUBLISHED[naming].network(shapes, numbers)
    return Sequential(numbers=numbers, layers=(ChannelAffine(), *found.layers), head=found.head)


def modules_of(naming: Naming, shapes: Shapes, model: Sequential) -> dict[str, str]:
    """From the names of our layers with parameters, but for that of the colours, to theirs.

    Raises:
      InvalidParameter: the file has more or fewer modules than the network.
    """
    _, *ours = [stage.name for stage in each_layer(model, _of_image(model)) if stage.own]
    theirs = list(PUBLISHED[naming].modules(shapes))
    if len(ours) != len(theirs):
        raise InvalidParameter("file", f"weights of {len(ours)} layers", f"{len(theirs)}")
    return dict(zip(ours, theirs, strict=True))


def parameters_of(model: Sequential) -> dict[str, Shape]:
    """Names and shapes of all parameters, in real numbers."""
    return {name: shape for stage in sequential_shapes(model, _of_image(model)) for name, shape in stage.parameters.items()}


def _of_image(model: Sequential) -> DataSetFacts:
    """Facts of images that such networks take: how large they are changes no parameter."""
    last = model.layers[-1]
    assert isinstance(last, Linear)
    return DataSetFacts(
        training_records=1,
        test_records=0,
        shape=(3, 32, 32),
        is_complex=False,
        task="classification",
        classes=last.outputs,
        unit="image",
        sha256="0" * 64,
        description="an image",
    )
