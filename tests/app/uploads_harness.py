r"""Files to upload, data sets to make of them, and a reader without a process of its own, for tests that aren't about that process."""

from __future__ import annotations

import io
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from zetadp.app.kit.settings import Settings
from zetadp.app.uploads import lifecycle
from zetadp.app.uploads.data_set_definition import DataSetDefinition
from zetadp.app.uploads.making import Readable, made
from zetadp.app.uploads.parser import MadeArrays, ReadableFile
from zetadp.trainer.data.formats import Contents, FormatName, declared
from zetadp.trainer.data.uploaded import store

RECORDS, FEATURES = 60, 4
JsonObject = dict[str, Any]


class InProcess:
    """Reads files as a reading process does, in this one. ``instead`` is raised where it is set."""

    instead: Exception | None = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def inspect(self, path: Path, format_: FormatName) -> Contents:
        if self.instead is not None:
            raise self.instead
        return declared(path, format_).inspect(path)

    def make(self, definition: DataSetDefinition, uploads: Mapping[str, ReadableFile], folder: Path, room: int) -> MadeArrays:
        if self.instead is not None:
            raise self.instead
        data, facts = made(definition, {name: Readable(one.path, one.format) for name, one in uploads.items()})
        digest, itself = store(folder, data)
        assert sum(path.stat().st_size for path in folder.iterdir()) <= room
        return MadeArrays(facts=facts, arrays_sha256=digest, rebuilds_itself=itself)

    def close(self) -> None:
        pass


@contextmanager
def reading_in_process() -> Generator[None]:
    """Every service that starts inside reads files in its own process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifecycle, "Reader", InProcess)
        yield


def arrays(records: int = RECORDS, seed: int = 0) -> dict[str, np.ndarray]:
    """Complex features that tell two classes apart, their labels, and whose they are."""
    rng = np.random.default_rng(seed)
    labels = np.arange(records) % 2
    features = rng.normal(size=(records, FEATURES)) + 1j * rng.normal(size=(records, FEATURES))
    features[:, 0] += 4 * labels - 2
    return {"x": features.astype(np.complex64), "y": labels, "patient": np.arange(records) // 3}


def npz(**of: np.ndarray) -> bytes:
    """An archive of these arrays, or of ``arrays()``."""
    stream = io.BytesIO()
    np.savez(stream, **(of or arrays()))
    return stream.getvalue()


def upload(client: httpx2.Client, content: bytes | None = None, **changes: str) -> httpx2.Response:
    """The answer to an upload; ``changes``: of its query."""
    query = {"format": "npz", "name": "a.npz"} | changes
    return client.post("/v1/uploads", params=query, content=npz() if content is None else content)


def uploaded(client: httpx2.Client, content: bytes | None = None, **changes: str) -> str:
    """The id of a new upload."""
    response = upload(client, content, **changes)
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def definition(upload_id: str, **changes: object) -> JsonObject:
    """A classification of the arrays of ``npz()``."""
    return {
        "name": "ward 3",
        "description": "Spectra of ward 3",
        "task": "classification",
        "numbers": "complex",
        "unit": "beat",
        "features": [{"upload": upload_id, "array": "x"}],
        "targets": [{"upload": upload_id, "array": "y"}],
        "classes": 2,
        "held_out": {"kind": "fraction", "fraction": 0.2, "split_seed": 0},
    } | changes


def make(client: httpx2.Client, upload_id: str, **changes: object) -> str:
    """The id of a new data set."""
    response = client.post("/v1/data-sets", json=definition(upload_id, **changes))
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def training(data_set: str, **changes: object) -> JsonObject:
    """A small training spec on a data set."""
    return {
        "algorithm": "zeta_dp_sgd",
        "data": {"kind": "uploaded", "data_set": data_set},
        "model": {"kind": "complex_mlp", "hidden": [4], "activation": "cardioid", "head": "magnitude"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.5},
        "privacy": {"adjacency": "add_remove", "unit": "beat", "delta": 1e-5, "noise_multiplier": 20.0},
        "clipping_bound": 1.0,
        "expected_batch_size": 16,
        "steps": 10,
        "evaluation": {"kind": "public_held_out"},
    } | changes


def files_below(place: Path) -> list[Path]:
    """Every file there."""
    return sorted(path for path in place.rglob("*") if path.is_file()) if place.exists() else []
