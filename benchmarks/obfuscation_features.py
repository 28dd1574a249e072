r"""``python -m benchmarks.obfuscation_features [--steps 1000] [--plot FILE.svg]``: appendices E and F of the obfuscation paper, on digits.

E: t-SNE of features as a conventional network has them and as the paper's method sends them; the paper shows a picture and reads from it
that categories are hidden. Here a number stands beside it: how often the five nearest points in the plane name a point's class.

F: a classifier is told pairs of features and whether both have one label, and asked about pairs of other records. The paper gives it the
features as they are (an error of .4241 for its method, on CIFAR-100). An attacker who knows the method gives it what no angle
changes: |x_k| |x'_k|, ||x_k| - |x'_k||, and |<x, x'>| / (|x| |x'|). An attack that fails here proves nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.obfuscation_attacks import DATA
from zetadp.trainer.algorithms.obfuscation.encoding import generator_of
from zetadp.trainer.algorithms.obfuscation.preparation import Prepared
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.engine.epochs import Epochs
from zetadp.trainer.engine.noise.randomness import stream_of
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.descent import Adam
from zetadp.trainer.specs.network_training import PublicHeldOut
from zetadp.trainer.specs.obfuscation.architectures import LeNet
from zetadp.trainer.specs.obfuscation.methods import AdditionalLayers, Method, Rotation

Complex = NDArray[np.complex64]
Real = NDArray[np.float64]
TRAINING_PAIRS, TEST_PAIRS, NEIGHBOURS = 6000, 3000, 5


class Sent(NamedTuple):
    """Features as they are sent, complex (records, coordinates), and labels."""

    features: Complex
    labels: NDArray[np.int64]


def sent_by(method: Method, steps: int, seed: int = 1) -> tuple[Sent, Sent]:
    """What a network of this method sends of public digits, which trained it, and of others."""
    spec = Obfuscation(
        data=DATA,
        network=LeNet(),
        method=method,
        optimizer=Adam(learning_rate=1e-3),
        batch_size=64,
        steps=steps,
        evaluation=PublicHeldOut(),
        seed=seed,
        reproducible=True,
    )
    prepared = Prepared.of(spec, spec.plan(), data_set_facts(spec.data), torch.device("cpu"), tick=lambda: None)
    epochs = Epochs(torch.arange(len(prepared.kinds)), spec.batch_size, partial(stream_of, spec))
    state = prepared.training.begin()
    while state.step < steps:
        stream = stream_of(spec, f"step {state.step + 1}")
        state = prepared.training.step(state, prepared.batch(epochs.after(state.step)), stream)
    prepared.trained.network_changed()
    assert prepared.victims is not None  # the held-out records, which are public
    generator = generator_of(stream_of(spec, "encodings"), torch.device("cpu"))
    found: list[Sent] = []
    for records in (prepared.records, prepared.victims):
        encoded = prepared.trained.encode(records.images, generator)
        found.append(Sent(encoded.sent.flatten(1).numpy(), records.labels.numpy()))
    return found[0], found[1]


def planes(features: Complex) -> Real:
    """Real parts, then imaginary ones, of those coordinates that have any."""
    both = np.concatenate((features.real, features.imag), axis=1).astype(np.float64)
    return both[:, both.any(axis=0)]


def as_they_are(one: Complex, other: Complex) -> Real:
    """A pair, one behind the other."""
    return np.concatenate((planes(np.concatenate((one, other)))[: len(one)], planes(np.concatenate((one, other)))[len(one) :]), axis=1)


def unturned(one: Complex, other: Complex) -> Real:
    """What no angle of either changes."""
    sizes, others = np.abs(one), np.abs(other)
    inner = np.abs((one.conj() * other).sum(axis=1)) / np.maximum(np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1), 1e-12)
    return np.concatenate((sizes * others, np.abs(sizes - others), inner[:, None]), axis=1)


def pairs_of(labels: NDArray[np.int64], count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Different records, (count,) each: the first half of the pairs with one label, the others with two."""
    generator = np.random.default_rng(seed)
    first, second = (generator.integers(len(labels), size=40 * count) for _ in range(2))
    same = labels[first] == labels[second]
    chosen = [np.flatnonzero(wanted & (first != second))[: count // 2] for wanted in (same, ~same)]
    rows = np.concatenate(chosen)
    return first[rows], second[rows]


def pair_error(public: Sent, others: Sent, view: Callable[[Complex, Complex], Real], *, training: int, test: int) -> float:
    """How often the classifier is wrong about pairs of records that it wasn't trained on; a guess is wrong half the time."""
    told, asked = pairs_of(public.labels, training, 1), pairs_of(others.labels, test, 2)
    network = make_pipeline(StandardScaler(), MLPClassifier((64,), early_stopping=True, max_iter=400, random_state=0))
    network.fit(view(public.features[told[0]], public.features[told[1]]), public.labels[told[0]] == public.labels[told[1]])
    answers = network.predict(view(others.features[asked[0]], others.features[asked[1]]))
    return float(np.mean(answers != (others.labels[asked[0]] == others.labels[asked[1]])))


def named_by_neighbours(plane: Real, labels: NDArray[np.int64]) -> float:
    """The share of points whose nearest other points, by majority, have their label."""
    near = KNeighborsClassifier(NEIGHBOURS + 1).fit(plane, labels).kneighbors(plane, return_distance=False)[:, 1:]
    votes = np.apply_along_axis(np.bincount, 1, labels[near], minlength=int(labels.max()) + 1)
    return float(np.mean(votes.argmax(axis=1) == labels))


def embedded(features: Real) -> Real:
    """The features in a plane."""
    return TSNE(init="pca", random_state=0).fit_transform(StandardScaler().fit_transform(features))


def main(arguments: list[str]) -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.obfuscation_features", description="Feature plots and pairs of features.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    original, rotated = sent_by(AdditionalLayers(), options.steps), sent_by(Rotation(), options.steps)
    views = {
        "a conventional network's": (original[1], planes(original[1].features)),
        "as the method sends them": (rotated[1], planes(rotated[1].features)),
        "their moduli": (rotated[1], np.abs(rotated[1].features).astype(np.float64)),
    }
    sys.stdout.write("| features in a plane (t-SNE) | classes named by five neighbours |\n| --- | --- |\n")
    figure = Figure(figsize=(5.0 * len(views), 4.6), layout="constrained")
    for axes, (name, (of, features)) in zip(figure.subplots(1, len(views)), views.items(), strict=True):
        plane = embedded(features)
        axes.scatter(plane[:, 0], plane[:, 1], c=of.labels, cmap="tab10", s=8)
        axes.set_title(name)
        sys.stdout.write(f"| {name} | {named_by_neighbours(plane, of.labels):.3f} |\n")
        sys.stdout.flush()
    if options.plot is not None:
        with options.plot.open("wb") as target:
            FigureCanvasSVG(figure).print_svg(target, metadata={"Date": None})
    sys.stdout.write("\n| pairs of features | error of the classifier |\n| --- | --- |\n")
    for name, (public, others), view in (
        ("a conventional network's", original, as_they_are),
        ("a conventional network's, products and differences", original, unturned),
        ("as the method sends them", rotated, as_they_are),
        ("of those, what no angle changes", rotated, unturned),
    ):
        error = pair_error(public, others, view, training=TRAINING_PAIRS, test=TEST_PAIRS)
        sys.stdout.write(f"| {name} | {error:.3f} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
