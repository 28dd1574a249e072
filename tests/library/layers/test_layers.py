"""The handbook's page of layers says what is found when they are tried."""

from __future__ import annotations

import inspect
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.library.layers.page import ALL, documented, part  # noqa: E402
from tests.library.layers.torch_layers import CASES  # noqa: E402

CONTAINERS = {"Container", "Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential", "RNNBase", "RNNCellBase"}


def test_every_public_layer_of_torch_is_in_the_table() -> None:
    public: dict[str, Any] = {name: getattr(torch.nn, name, None) for name in torch.nn.modules.__all__}
    layers = {name for name, kind in public.items() if inspect.isclass(kind) and issubclass(kind, torch.nn.Module)}
    layers = {name for name in layers if "Loss" not in name} - CONTAINERS
    tried = {name.split("(")[0] for name in CASES}
    assert tried == layers
    assert [name for name in CASES if f"`{name}`" not in documented("torch")] == []


@pytest.mark.slow
@pytest.mark.parametrize("package", ALL)
def test_the_page_says_what_is_found(package: str) -> None:
    stated = documented(package)
    try:
        installed = version(package).split("+")[0]
    except PackageNotFoundError:
        pytest.skip(f"{package} isn't installed; pip install --no-deps {package}, of the version in docs/layers.md")
    if (tried := stated.splitlines()[0].split()[-1]) != installed:
        pytest.skip(
            f"docs/layers.md is about {package} {tried}, and {installed} is installed; python -m tests.library.layers.page {package}"
        )
    assert part(package) == stated
