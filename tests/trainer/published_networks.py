r"""Residual networks as their authors write them, in torch alone: with the modules' names of the published files, and batch norms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import final

import torch
from torch import Tensor, nn

from zetadp.trainer.specs.models.published import Naming


def convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)


@final
class BasicBlock(nn.Module):
    """torchvision's, and pytorch-cifar's with another name of the shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = convolution(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut_name = shortcut
        fits = inputs == outputs and stride == 1
        around = nn.Sequential() if fits else nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        self.add_module(shortcut, around)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(inner + self.get_submodule(self.shortcut_name)(x))


@final
class ResNet18(nn.Module):
    def __init__(self, width: int, classes: int, *, is_torchvisions: bool) -> None:
        super().__init__()
        self.conv1 = convolution(3, width, 7, 2) if is_torchvisions else convolution(3, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.begin = nn.MaxPool2d(3, 2, 1) if is_torchvisions else nn.Identity()
        self.shortcut, self.last = ("downsample", "fc") if is_torchvisions else ("shortcut", "linear")
        before = width
        for stage in range(4):
            after = width * 2**stage
            first = BasicBlock(before, after, 2 if stage else 1, self.shortcut)
            self.add_module(f"layer{stage + 1}", nn.Sequential(first, BasicBlock(after, after, 1, self.shortcut)))
            before = after
        self.add_module(self.last, nn.Linear(before, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.begin(torch.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        return self.get_submodule(self.last)(x.mean(dim=(2, 3)))


@final
class Bottleneck(nn.Module):
    """ResNeXt's, as prlz77 writes it."""

    def __init__(self, inputs: int, outputs: int, inner: int, stride: int, cardinality: int) -> None:
        super().__init__()
        self.conv_reduce, self.bn_reduce = convolution(inputs, inner, 1), nn.BatchNorm2d(inner)
        self.conv_conv, self.bn = convolution(inner, inner, 3, stride, cardinality), nn.BatchNorm2d(inner)
        self.conv_expand, self.bn_expand = convolution(inner, outputs, 1), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut.add_module("shortcut_conv", convolution(inputs, outputs, 1, stride))
            self.shortcut.add_module("shortcut_bn", nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.bn_reduce(self.conv_reduce(x)))
        inner = torch.relu(self.bn(self.conv_conv(inner)))
        return torch.relu(self.shortcut(x) + self.bn_expand(self.conv_expand(inner)))


@final
class ResNeXt29(nn.Module):
    def __init__(self, cardinality: int, width: int, after: int, classes: int) -> None:
        super().__init__()
        before = after // 4
        self.conv_1_3x3, self.bn_1 = convolution(3, before), nn.BatchNorm2d(before)
        for stage in range(3):
            blocks: OrderedDict[str, nn.Module] = OrderedDict()
            for block in range(3):
                stride = 2 if stage and not block else 1
                made = Bottleneck(before, after * 2**stage, cardinality * width * 2**stage, stride, cardinality)
                blocks[f"stage_{stage + 1}_bottleneck_{block}"] = made
                before = after * 2**stage
            self.add_module(f"stage_{stage + 1}", nn.Sequential(blocks))
        self.classifier = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn_1(self.conv_1_3x3(x)))
        for stage in range(1, 4):
            x = self.get_submodule(f"stage_{stage}")(x)
        return self.classifier(x.mean(dim=(2, 3)))


@final
class WideBlock(nn.Module):
    """xternalz's: where the shape changes the shortcut begins behind norm and activation."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, outputs, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), convolution(outputs, outputs)
        self.convShortcut = None if inputs == outputs and stride == 1 else convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        begun = torch.relu(self.bn1(x))
        inner = self.conv2(torch.relu(self.bn2(self.conv1(begun))))
        return inner + (x if self.convShortcut is None else self.convShortcut(begun))


@final
class WideStage(nn.Module):
    def __init__(self, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layer = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@final
class WideResNet(nn.Module):
    def __init__(self, depth: int, widening: int, classes: int) -> None:
        super().__init__()
        self.conv1 = convolution(3, 16)
        before = 16
        for stage in range(3):
            blocks: list[nn.Module] = []
            for block in range((depth - 4) // 6):
                after = 16 * 2**stage * widening
                blocks.append(WideBlock(before, after, 2 if stage and not block else 1))
                before = after
            self.add_module(f"block{stage + 1}", WideStage(blocks))
        self.bn1, self.fc = nn.BatchNorm2d(before), nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        for stage in range(1, 4):
            x = self.get_submodule(f"block{stage}")(x)
        return self.fc(torch.relu(self.bn1(x)).mean(dim=(2, 3)))


def reference(naming: Naming) -> nn.Module:
    """A small one with random weights and statistics, in evaluation mode and double precision."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        match naming:
            case "torchvision_resnet_18":
                network: nn.Module = ResNet18(4, 7, is_torchvisions=True)
            case "cifar_resnet_18":
                network = ResNet18(4, 7, is_torchvisions=False)
            case "resnext_29":
                network = ResNeXt29(2, 3, 16, 7)
            case "wide_resnet":
                network = WideResNet(16, 1, 7)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, std=0.2)
                module.running_mean = 0.2 * torch.randn(module.num_features)
                module.running_var = 0.5 + torch.rand(module.num_features)
    return network.eval().double()
