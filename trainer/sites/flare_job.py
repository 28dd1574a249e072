r"""An NVFLARE job that asks a federation's sites: its configuration, without code, and the one module that server and clients install."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zetadp.trainer.sites.settings import check_socket
from zetadp.trainer.specs.algorithms.federation import Federation

FOLDER: Final = Path(__file__).parent / "nvflare"
MODULE: Final = FOLDER / "zetadp_flare.py"
TASK_SECONDS: Final = 0.1
"""Between two times that a client asks the server for its next task."""


def write_flare(federation: Federation, relay: Path, into: Path) -> None:
    r"""Writes ``job``, for whoever submits it, and ``local``, whose files belong into that folder of the server and of every client.

    Args:
      relay: where the coordinator's run listens.
      into: a new folder.
    Raises:
      InvalidParameter: the socket's path is too long.
      OSError: it exists, or can't be written.
    """
    names = [site.name for site in federation.sites]
    only_signed = {"path": "zetadp_flare.OnlySigned", "args": {"keys": [site.key for site in federation.sites]}}
    server = {
        "format_version": 2,
        "server": {"task_request_interval": TASK_SECONDS},
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [],
        "workflows": [
            {"id": "sums", "path": "zetadp_flare.SumController", "args": {"socket_path": str(check_socket(relay)), "sites": names}}
        ],
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["zetadp"], "executor": {"path": "zetadp_flare.SiteExecutor", "args": {}}}],
        "task_data_filters": [],
        "task_result_filters": [{"tasks": ["*"], "filters": [only_signed]}],
        "components": [],
    }
    scope = {"name": "zetadp", "task_result_filters": [only_signed], "task_data_filters": []}
    meta = {"name": federation.name, "resource_spec": {}, "min_clients": 1, "scope": scope["name"], "deploy_map": {"app": ["@ALL"]}}
    into.mkdir(parents=True)
    _write(into / "job" / "meta.json", meta)
    _write(into / "job" / "app" / "config" / "config_fed_server.json", server)
    _write(into / "job" / "app" / "config" / "config_fed_client.json", client)
    _write(into / "local" / "privacy.json", {"scopes": [scope], "default_scope": scope["name"]})
    (into / "local" / "custom").mkdir()
    shutil.copyfile(MODULE, into / "local" / "custom" / MODULE.name)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
