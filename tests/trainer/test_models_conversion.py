r"""Published weights: their networks, written in torch alone, and ours of the converted file give the same."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.trainer.made_up import built, facts_of
from tests.trainer.published_networks import reference
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.location import ROOT_VARIABLE
from zetadp.trainer.models.conversion import converted, main, read_tensors
from zetadp.trainer.models.front import split_front
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.published import NAMINGS, PUBLISHED, Naming
from zetadp.trainer.specs.models.residual_networks import Numbers


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def images(count: int = 3) -> Tensor:
    """Colours as our readers give them."""
    return 2.0 * torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(1)) - 1.0


def of_authors(naming: Naming, network: nn.Module, colours: Tensor) -> Tensor:
    constants = PUBLISHED[naming]
    mean, std = (torch.tensor(values, dtype=torch.float64).reshape(3, 1, 1) for values in (constants.mean, constants.std))
    with torch.no_grad():
        return network(((colours.double() + 1.0) / 2.0 - mean) / std)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return tmp_path


def command(root: Path, naming: Naming, *more: str, file: str = "published.pth") -> list[str]:
    return [str(root / file), "--naming", naming, "--sha256", digest(root / file), "--to", str(root / "ours.safetensors"), *more]


@pytest.mark.parametrize(
    ("naming", "numbers"), [*((naming, "real") for naming in NAMINGS), ("torchvision_resnet_18", "complex"), ("wide_resnet", "complex")]
)
def test_ours_gives_what_the_authors_network_gives(
    root: Path, capsys: pytest.CaptureFixture[str], naming: Naming, numbers: Numbers
) -> None:
    network = reference(naming)
    torch.save(network.state_dict(), root / "published.pth")
    main(command(root, naming, "--numbers", numbers, "--classes", "7"))
    model = Sequential.model_validate_json(capsys.readouterr().out)
    # The last layer too, which a transfer would draw anew.
    assert not isinstance(model.initial_weights, str)
    whole = {**model.initial_weights.model_dump(), "given_layers": len(model.layers)}
    model = Sequential.model_validate({**model.model_dump(), "initial_weights": whole})
    ours = built(model, facts_of((3, 32, 32), 7, is_complex=False))
    with torch.no_grad():
        found = ours(images())
    wanted = of_authors(naming, network, images())
    assert float((found.double() - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())


def test_all_but_the_last_layer_is_kept(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"net": {f"module.{name}": value for name, value in reference("wide_resnet").state_dict().items()}}, root / "published.pth")
    main(command(root, "wide_resnet", "--classes", "3"))
    model = Sequential.model_validate(json.loads(capsys.readouterr().out))
    front, rest = split_front(built(model, facts_of((3, 32, 32), 3, is_complex=False)))
    assert len(front) == len(model.layers) - 1
    assert [name for name, _ in rest.named_parameters()] == [f"{len(front)}_linear.weight", f"{len(front)}_linear.bias"]


def test_both_formats_give_the_same(root: Path) -> None:
    state = reference("cifar_resnet_18").float().state_dict()
    torch.save(state, root / "published.pth")
    save_file(state, root / "published.safetensors")
    read = [read_tensors(root / name, digest(root / name)) for name in ("published.pth", "published.safetensors")]
    first, second = (converted("cifar_resnet_18", tensors)[1] for tensors in read)
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_another_file_than_the_one_meant_is_refused(root: Path) -> None:
    torch.save({"a": torch.ones(1)}, root / "published.pth")
    with pytest.raises(InvalidParameter, match=r"sha256 must be the digest of published.pth, [0-9a-f]{64}, got '00"):
        read_tensors(root / "published.pth", "0" * 64)


class Evil:
    """Would run code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran"),)


def test_a_files_code_isnt_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    torch.save({"a": Evil()}, root / "published.pth", pickle_module=pickle)
    with pytest.raises(InvalidParameter, match="file must be a safetensors file, or tensors that torch saved"):
        read_tensors(root / "published.pth", digest(root / "published.pth"))
    assert not (root / "ran").exists()


def test_what_isnt_such_a_networks_is_refused(root: Path) -> None:
    state = reference("wide_resnet").state_dict()
    tensors = {name: value.numpy() for name, value in state.items()}
    with pytest.raises(InvalidParameter, match="with a tensor stage_1"):
        converted("resnext_29", tensors)
    with pytest.raises(InvalidParameter, match=r"tensors of the network only, got 'odd.weight'"):
        converted("wide_resnet", tensors | {"odd.weight": np.ones(2)})
    with pytest.raises(InvalidParameter, match="a batch norm bn1 with bias, running_mean, running_var, weight"):
        converted("wide_resnet", {name: value for name, value in tensors.items() if name != "bn1.running_var"})
    with pytest.raises(InvalidParameter, match=r"weights with 0*\d*_?.*linear.bias of shape \(7,\), got None"):
        converted("wide_resnet", {name: value for name, value in tensors.items() if name != "fc.bias"})
    torch.save({**state, "fc.bias": torch.full((7,), torch.nan)}, root / "published.pth")
    with pytest.raises(InvalidParameter, match="file must be a file of finite numbers"):
        read_tensors(root / "published.pth", digest(root / "published.pth"))
