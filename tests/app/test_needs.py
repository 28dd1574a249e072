r"""What a job needs of machines: asked, checked at submission, and matched with what workers have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from tests.app.jobs_harness import serving, settings, spec
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity, Needs, Resources, check_available, needs_of
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.worker.hardware import capacity_of, chosen, memory_there
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec
from zetadp.trainer.specs.algorithms.private_selection import PrivateSelection

GPUS = Capacity(devices=("auto", "cpu", "cuda"), gpus=2, gpu_names=("NVIDIA H200",), memory_bytes=2**36)


@pytest.mark.parametrize(
    ("runtime", "resources", "message"),
    [
        ({"processes": 3}, {"machines": 2}, r"resources\.machines must be a divisor of runtime\.processes, which is 3, got 2"),
        ({"device": "cpu"}, {"gpus": 1}, r"resources\.gpus must be 0 with runtime\.device 'cpu', got 1"),
        ({"device": "cuda", "processes": 2}, {"gpus": 1}, r"resources\.gpus must be 2, one for each process of runtime\.processes, got 1"),
        ({"processes": 2}, {"gpus": 3}, r"resources\.gpus must be 2, one for each process"),
        ({"device": "cuda"}, {"gpus": 0}, r"resources\.gpus must be 1"),
        ({}, {"gpu_kind": "H200"}, r"resources\.gpu_kind must be null without accelerators \(resources\.gpus\), got 'H200'"),
    ],
)
def test_resources_that_contradict_the_runtime_are_refused(runtime: dict[str, Any], resources: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        needs_of(RuntimeSpec.model_validate(runtime), Resources.model_validate(resources))


def test_a_machines_share_of_the_accelerators() -> None:
    needs = needs_of(RuntimeSpec(device="auto", processes=8), Resources(gpus=8, gpu_kind="h200 NVL", machines=2))
    assert (needs.device, needs.gpus, needs.gpu_kind, needs.machines) == ("cuda", 4, "h200 nvl", 2)


@pytest.mark.parametrize("kind", ["H%00", "H_00", "", "x" * 64])
def test_a_kind_that_would_match_anything_is_refused(kind: str) -> None:
    with pytest.raises(ValidationError):
        Resources(gpu_kind=kind)


def needs(**changes: Any) -> Needs:
    return Needs.model_validate({"device": "auto", "gpus": 0, "gpu_kind": None, "memory_bytes": None, "machines": 1, **changes})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"device": "cuda", "gpus": 3}, r"resources\.gpus must be at most 2, which is what the workers of this service have, got 3"),
        ({"device": "cuda", "gpus": 1, "gpu_kind": "l4"}, r"resources\.gpu_kind must be one of NVIDIA H200, which is .* got 'l4'"),
        ({"memory_bytes": 2**40}, r"resources\.memory_bytes must be at most 68719476736, which is"),
        ({"machines": 2}, r"resources\.machines must be at most 1, which is"),
    ],
)
def test_what_no_worker_has_is_said_by_the_one_that_comes_nearest(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        check_available(needs(**asked), [Capacity(), GPUS])


def test_without_any_worker_nothing_is_known() -> None:
    check_available(needs(device="cuda", gpus=64), [])


def test_one_of_several_is_enough() -> None:
    check_available(needs(device="cuda", gpus=2, gpu_kind="h200"), [Capacity(), GPUS])


@pytest.fixture
def of(tmp_path: Path) -> Settings:
    return settings(tmp_path)


def submission(runtime: dict[str, Any], resources: dict[str, Any]) -> dict[str, Any]:
    return {"spec": spec(), "runtime": runtime, "resources": resources}


def posted(client: httpx2.Client, runtime: dict[str, Any], resources: dict[str, Any]) -> httpx2.Response:
    return client.post("/v1/jobs", json=submission(runtime, resources))


def test_too_few_accelerators_are_answered_at_submission(of: Settings) -> None:
    one = capacity_of("cuda:1", ["NVIDIA H200"], 2**36)
    with serving(of) as client:
        assert posted(client, {"device": "cuda", "processes": 2}, {}).status_code == 202  # no worker lives: it waits for one
        database = Database(of)
        Leases(database, 3).take(Executor(id="w", host="h", device="cuda:1", hardware="-", capacity=one, lease_seconds=600.0))
        database.close()
        refused = posted(client, {"device": "cuda", "processes": 2}, {})
        assert refused.status_code == 422
        assert "resources.gpus must be at most 1, which is what the workers of this service have, got 2" in refused.json()["detail"]
        taken = posted(client, {"device": "cuda"}, {"gpu_kind": "h200", "memory_bytes": 2**33})
        assert taken.status_code == 202
        assert taken.json()["resources"]["memory_bytes"] == 2**33
        shared = posted(client, {"processes": 2}, {"machines": 2})
        assert (shared.status_code, "resources.machines" in shared.text) == (422, True)
    with serving(of.model_copy(update={"accept_unfit_jobs": True})) as client:
        assert posted(client, {"device": "cuda", "processes": 2}, {}).status_code == 202


@pytest.mark.parametrize(
    ("setting", "found", "environment", "names"),
    [
        ("auto", ["A", "B"], {}, ["A", "B"]),
        ("auto", ["A", "B"], {"CUDA_VISIBLE_DEVICES": "1"}, ["B"]),
        ("auto", ["A", "B"], {"CUDA_VISIBLE_DEVICES": ""}, []),
        ("auto", ["A", "B"], {"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ("cuda", [], {"CUDA_VISIBLE_DEVICES": "0,1"}, ["NVIDIA accelerator", "NVIDIA accelerator"]),
        ("cuda:0,1", ["A", "B"], {"CUDA_VISIBLE_DEVICES": "1"}, ["A", "B"]),
        ("cuda:GPU-1f", ["A", "B"], {}, ["A or B"]),
        ("cuda:MIG-GPU-1f/3/0", ["A"], {}, ["MIG part of A"]),
        ("cpu", ["A"], {}, []),
    ],
)
def test_the_accelerators_of_a_worker(setting: str, found: list[str], environment: dict[str, str], names: list[str]) -> None:
    assert Settings(device=setting).device == setting
    assert chosen(setting, found, environment) == names


def test_a_worker_of_an_accelerator_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="ZETADP_DEVICE must be accelerators below 1, which this machine has, got '1'"):
        chosen("cuda:1", ["A"], {})


@pytest.mark.parametrize("setting", ["gpu", "cuda:", "cuda:0,0", "cuda:x", "cuda:MIG-1,MIG-2", "cpu:0", "cuda:0,"])
def test_a_device_that_is_none_is_refused(setting: str) -> None:
    with pytest.raises(ValidationError, match="must be auto, cpu, cuda, or cuda: with accelerators separated by commas"):
        Settings(device=setting)


def test_memory_is_the_machines_or_its_control_groups(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (groups / "slurm" / "job_1").mkdir(parents=True)
    (proc / "meminfo").write_text("MemFree: 1 kB\nMemTotal:        2048 kB\n")
    (proc / "self" / "cgroup").write_text("0::/slurm/job_1\n")
    assert memory_there(proc, groups) == 2048 * 1024
    (groups / "slurm" / "job_1" / "memory.max").write_text("max\n")
    (groups / "slurm" / "memory.max").write_text("1000\n")
    assert memory_there(proc, groups) == 1000
    assert memory_there(tmp_path / "nowhere", groups) is None


def test_a_private_selection_runs_on_one_machine(of: Settings) -> None:
    asked = {"spec": PrivateSelection.example().model_dump(mode="json", exclude_none=True)}
    with serving(of) as client:
        shared = client.post("/v1/jobs", json=asked | {"runtime": {"processes": 2}, "resources": {"machines": 2}})
    assert (shared.status_code, "must be 1 for a private selection" in shared.text) == (422, True)
