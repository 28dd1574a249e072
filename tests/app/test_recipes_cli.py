"""``recipes`` and ``submit --recipe`` on the command line, against a real service of this process."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from tests.app.jobs_harness import ADMIN_KEY, serving, settings
from tests.selection import thinned
from zetadp.app.cli import app
from zetadp.app.cli.recipes import recipe_submission
from zetadp.app.client import Client, RequestRefused
from zetadp.app.jobs.resources import JobSubmission
from zetadp.trainer.recipes import RECIPES, recipe


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    # The service runs in this process: its log would come between the command's own lines.
    with capture_logs(), pytest.MonkeyPatch.context() as patch, serving(settings(tmp_path_factory.mktemp("recipes"))) as client:
        patch.setenv("ZETADP_KEY", ADMIN_KEY)
        yield str(client.base_url)


def _run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(app, arguments, input=text)


def _submitted(address: str, *arguments: str) -> dict[str, Any]:
    done = _run("submit", "--recipe", "digits", *arguments, "--json", "--address", address)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_recipes_shows_the_printed_epsilon_beside_the_proved_one(address: str) -> None:
    text = _run("recipes", "--address", address).stdout
    phase = text[text.index("phase_mnist:") :].split("\nmnist_real:")[0]
    assert "epsilon printed: 0.51 at 1e-05 (Gaussian DP, Tables 3 and 5)" in phase
    assert "epsilon proved of this recipe's run: 0.402337 at 1e-05, for one phase_pair" in phase


def test_recipes_prints_json_for_scripts(address: str) -> None:
    listed = json.loads(_run("recipes", "--json", "--address", address).stdout)
    assert [entry["name"] for entry in listed] == [known.name for known in RECIPES]


def test_a_recipe_becomes_a_job_with_its_name_as_label(address: str) -> None:
    job = _submitted(address)
    assert (job["state"], job["labels"], job["spec"]["steps"]) == ("preparing", {"recipe": "digits"}, 400)


def test_set_changes_numbers_lists_and_labels(address: str) -> None:
    changes = ("spec.steps=3", "spec.model.hidden[0]=16", "labels.seed=one", "runtime.threads=1")
    job = _submitted(address, *(part for change in changes for part in ("--set", change)))
    assert (job["spec"]["steps"], job["spec"]["model"]["hidden"]) == (3, [16])
    assert (job["labels"], job["runtime"]["threads"]) == ({"recipe": "digits", "seed": "one"}, 1)


@pytest.mark.parametrize("name", ["mri_phantoms_federated", "mri_reconstruction"])
def test_a_recipe_is_sent_whole_with_what_is_null_in_it(name: str) -> None:
    # The U-Net's norm_groups must be given and is null.
    of = recipe(name)
    assert of is not None
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, content=JobSubmission(spec=of.spec).model_dump_json())
        sent.append(request)
        return httpx2.Response(422, json={"title": "Refused.", "detail": "It was looked at."})

    with Client("http://nobody") as client:
        client._http = httpx2.Client(base_url="http://nobody", transport=httpx2.MockTransport(answer))
        submission = recipe_submission(client, name, ["spec.steps=7"])
        with pytest.raises(RequestRefused, match="It was looked at"):
            client.submit(submission)
    assert JobSubmission.model_validate_json(sent[0].content) == submission
    assert submission.spec.steps == 7


def test_set_to_null_makes_a_field_null(address: str) -> None:
    job = _submitted(address, "--set", "spec.privacy.epsilon=null", "--set", "spec.privacy.noise_multiplier=2.0")
    assert (job["spec"]["privacy"]["epsilon"], job["spec"]["privacy"]["noise_multiplier"]) == (None, 2.0)


@pytest.mark.parametrize(
    ("change", "told"),
    thinned(
        [
            ("spec.steps", "--set must be of the form path=value, like spec.steps=100, got 'spec.steps'"),
            ("=3", "--set must be of the form path=value"),
            ("spec.steps.more=3", "'more' lies in something without parts"),
            ("spec.model.hidden[7]=3", "an entry from 0 to 0 of the list"),
            ("spec.stepz=3", "spec.stepz: there is no field with this name"),
            ("spec.steps=many", "spec.steps: must be a valid integer"),
            ("spec.records_per_user=3", "spec.records_per_user must be absent where the unit is one row ('record'), got 3"),
        ],
        every=3,
    ),
)
def test_a_change_that_does_not_fit_is_refused_by_name(address: str, change: str, told: str) -> None:
    done = _run("submit", "--recipe", "digits", "--set", change, "--address", address)
    assert done.exit_code == 2
    assert told in done.stderr


def test_the_list_tells_a_recipe_without_a_guarantee_as_such(address: str) -> None:
    lines = _run("recipes", "--address", address).stdout.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("fitbit_spof_printed:"))
    told = " ".join(lines[start : start + 4])
    assert "no guarantee: it ran Algorithm 1 of the SPOF paper as printed" in told
    assert "epsilon proved of this recipe's run" not in told.partition("fitbit_functional_mechanism")[0]


def test_an_unknown_recipe_has_the_code_of_what_is_not_there(address: str) -> None:
    done = _run("submit", "--recipe", "mnist", "--address", address)
    assert done.exit_code == 4
    assert "there is no recipe 'mnist'" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("-", "--recipe", "digits"), ("-", "--set", "spec.steps=3")])
def test_submit_wants_a_file_or_a_recipe(address: str, arguments: tuple[str, ...]) -> None:
    done = _run("submit", *arguments, "--address", address, text="{}")
    assert done.exit_code == 2
    assert "give a file, or a recipe with --recipe" in done.stderr
