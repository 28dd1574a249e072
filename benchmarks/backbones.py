r"""``python -m benchmarks.backbones FOLDER [--images 16000] [--epochs 5]``: trains small residual networks, of which
ResNet-18 comes with the package.

It stands in for published ones in the recipes of transfer learning, which need some public weights that everybody has. Their data are
drawn here: colourful shapes of ``KINDS`` kinds, of any size, turn and place, on gradients, stripes and noise. No photograph and nobody's
record is in them. What a network learns here of edges, corners and colours is far less than ImageNet teaches.

Training is ordinary, with batch norms, by the networks as their authors write them; ``trainer.models.conversion`` then makes our files.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from safetensors.numpy import save
from torch import Tensor, nn

from tests.trainer.published_networks import ResNet18, ResNeXt29, WideResNet
from zetadp.trainer.models.conversion import converted
from zetadp.trainer.specs.models.published import PUBLISHED, Naming

SIDE = 32
KINDS = 12
BATCH = 128


def picture(generator: np.random.Generator, kind: int) -> NDArray[np.uint8]:
    """One image (3, 32, 32), drawn at twice the size and shrunk, so that edges are smooth."""
    large = 2 * SIDE
    x, y = np.meshgrid(np.linspace(-1, 1, large), np.linspace(-1, 1, large))
    colours = generator.uniform(0, 255, (4, 3))
    angle, frequency = generator.uniform(0, 2 * math.pi), generator.uniform(0, 12)
    wave = 0.5 + 0.5 * np.sin(frequency * (math.cos(angle) * x + math.sin(angle) * y) + generator.uniform(0, 6))
    back = wave[..., None] * colours[0] + (1.0 - wave[..., None]) * colours[1]
    image = Image.fromarray((back + generator.normal(0, generator.uniform(0, 25), back.shape)).clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(generator.integers(0, 3)):  # clutter
        ends = generator.uniform(0, large, 4)
        draw.line(tuple(ends), fill=tuple(generator.integers(0, 256, 3)), width=int(generator.integers(1, 4)))
    _shape(draw, generator, kind, tuple(int(value) for value in colours[2]), tuple(int(value) for value in colours[3]))
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX)).transpose(2, 0, 1)


def _shape(draw: ImageDraw.ImageDraw, generator: np.random.Generator, kind: int, fill: tuple[int, ...], line: tuple[int, ...]) -> None:
    """Kinds: polygons of 3 to 6 corners, stars of 4 to 6 points, a disc, a ring, a long bar, a cross, a half disc."""
    centre, size, turn = generator.uniform(22, 42, 2), generator.uniform(12, 24), generator.uniform(0, 2 * math.pi)
    stretch = generator.uniform(0.6, 1.0)

    def around(corners: int, radii: tuple[float, ...]) -> list[tuple[float, float]]:
        angles = turn + 2 * math.pi * np.arange(corners * len(radii)) / (corners * len(radii))
        lengths = size * np.tile(radii, corners)
        across = stretch * np.sin(angles - turn) * lengths
        along = np.cos(angles - turn) * lengths
        turned = np.stack((math.cos(turn) * along - math.sin(turn) * across, math.sin(turn) * along + math.cos(turn) * across))
        return [(float(a), float(b)) for a, b in (centre[:, None] + turned).T]

    match kind:
        case 0 | 1 | 2 | 3:
            draw.polygon(around(kind + 3, (1.0,)), fill=fill, outline=line)
        case 4 | 5 | 6:
            draw.polygon(around(kind, (1.0, 0.45)), fill=fill, outline=line)
        case 7:
            draw.polygon(around(40, (1.0,)), fill=fill, outline=line)
        case 8:
            draw.line([*around(40, (1.0,)), *around(40, (1.0,))[:2]], fill=fill, width=5)
        case 9:
            draw.line([around(2, (1.0,))[0], around(2, (1.0,))[1]], fill=fill, width=7)
        case 10:
            corners = around(4, (1.0,))
            draw.line([corners[0], corners[2]], fill=fill, width=6)
            draw.line([corners[1], corners[3]], fill=fill, width=6)
        case _:
            draw.polygon(around(40, (1.0,))[:21], fill=fill, outline=line)


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images (count, 3, 32, 32) uint8 and their kinds."""
    generator = np.random.default_rng(seed)
    kinds = generator.integers(0, KINDS, count)
    return torch.from_numpy(np.stack([picture(generator, int(kind)) for kind in kinds])), torch.from_numpy(kinds)


def networks() -> dict[Naming, nn.Module]:
    """Small ones, of less than 2^18 numbers each."""
    torch.manual_seed(1)
    return {
        "cifar_resnet_18": ResNet18(8, KINDS, is_torchvisions=False),
        "resnext_29": ResNeXt29(4, 4, 48, KINDS),
        "wide_resnet": WideResNet(16, 1, KINDS),
    }


def _normalised(naming: Naming, images: Tensor) -> Tensor:
    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (PUBLISHED[naming].mean, PUBLISHED[naming].std))
    return (images.float() / 255.0 - mean) / std


def train(naming: Naming, network: nn.Module, images: Tensor, kinds: Tensor, epochs: int) -> None:
    """Adam with a cosine schedule; images are mirrored at random."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = epochs * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images))[: len(images) // BATCH * BATCH].split(BATCH):
            batch = images[rows]
            batch = batch.flip(3) if torch.rand(()) < 0.5 else batch
            loss = nn.functional.cross_entropy(network(_normalised(naming, batch)), kinds[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()


def main() -> None:
    """Train the chosen ones and write their files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backbones", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=16_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--namings", nargs="*", default=["cifar_resnet_18"], choices=tuple(networks()))
    given = parser.parse_args()
    torch.set_num_threads(1)
    (images, kinds), (others, theirs) = pictures(given.images, 1), pictures(2000, 2)
    for naming, network in ((naming, network) for naming, network in networks().items() if naming in given.namings):
        train(naming, network, images, kinds, given.epochs)
        with torch.no_grad():
            right = float((network(_normalised(naming, others)).argmax(dim=1) == theirs).double().mean())
        _, arrays = converted(naming, {name: value.double().numpy() for name, value in network.state_dict().items()})
        content = save(arrays, metadata={"naming": naming, "source": f"benchmarks.backbones, {given.images} drawn shapes"})
        file: Path = given.folder / f"{naming}_shapes.safetensors"
        file.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        sys.stdout.write(f"{file.name} {len(content)} bytes, {digest}, {right:.3f} of new shapes right\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
