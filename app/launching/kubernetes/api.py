r"""Requests to the API server, over the transport of Kubernetes' own client: its configuration, certificates and tokens.

Answers stay JSON. The client's classes of them change with every release of Kubernetes, and refuse answers that lack what they require.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import final

from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, list_kube_config_contexts, load_incluster_config, load_kube_config
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from urllib3.exceptions import HTTPError

from zetadp.app.launching.interface import ClusterUnavailable
from zetadp.mechanisms.errors import InvalidParameter

REQUEST_SECONDS = 15.0
"""How long one request may take."""
PAGE = 500
"""Objects of one answer."""
PASSING = frozenset({401, 408, 410, 429})
"""Statuses below 500 that time mends: tokens are renewed, lists are read again."""
DEFAULT_CONFIG = "~/.kube/config"
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The file in which a pod finds its namespace."""
Json = Mapping[str, object]


class Answer(BaseModel):
    """What is read of an answer. It may hold anything else, as servers of other releases do."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


@final
class Status(Answer):
    """Why a request failed, in the server's words."""

    reason: str = ""
    message: str = ""


@final
class RequestRefused(Exception):
    """The server refuses this request: its status, its word for the reason, and its text."""

    def __init__(self, status: int, told: Status) -> None:
        self.status = status
        self.reason = told.reason
        super().__init__(told.message or told.reason or f"status {status}")


@final
class _Page(Answer):
    items: list[dict[str, object]] | None = None
    metadata: dict[str, object] = Field(default_factory=dict)


@final
class Api:
    r"""The API server that a kubeconfig names (``KUBECONFIG``, ``~/.kube/config``), or the one of this pod's cluster.

    Its methods raise ClusterUnavailable for whatever time mends, and RequestRefused.

    Args:
      namespace: in which the workers are; if empty the context's, or this pod's.
    Raises:
      InvalidParameter: there is no configuration, or none that can be read.
    """

    def __init__(self, namespace: str) -> None:
        configuration = Configuration()
        files = os.environ.get("KUBECONFIG") or str(Path(DEFAULT_CONFIG).expanduser())
        found = ""
        try:
            if any(Path(file).exists() for file in files.split(os.pathsep) if file):
                load_kube_config(config_file=files, client_configuration=configuration, persist_config=False)
                _, current = list_kube_config_contexts(files)
                found = str((current or {}).get("context", {}).get("namespace", ""))
            else:
                load_incluster_config(client_configuration=configuration)
                with suppress(OSError):
                    found = OWN_NAMESPACE.read_text(encoding="utf-8").strip()
        except (ConfigException, OSError, ValueError) as error:
            text = f"{error}".strip() or type(error).__name__
            raise InvalidParameter("KUBECONFIG", "a kubeconfig's path, or a pod with a service account", text) from None
        # The launcher asks again by itself; a request that is made three times takes three times as long.
        configuration.retries = False
        self._client = ApiClient(configuration)
        self.namespace = namespace or found or "default"

    def place(self, group: str, kind: str) -> str:
        """The path of these objects of the namespace.

        Args:
          group: its version included, like ``batch/v1``; ``v1`` for the core.
        """
        return f"/{'apis' if '/' in group else 'api'}/{group}/namespaces/{self.namespace}/{kind}"

    def ask(self, method: str, path: str, query: Mapping[str, str | int] | None = None, body: Json | None = None) -> Json:
        """One request and its answer."""
        what = f"{method} {path}"
        try:
            request = self._client.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = self._client.call_api(*request, _request_timeout=REQUEST_SECONDS)
            status, data = int(response.status), bytes(response.read())
        except (ApiException, ConfigException, HTTPError, OSError) as error:
            raise ClusterUnavailable(f"{what}: {type(error).__name__}") from None
        if 200 <= status < 300:
            return _read(what, data)
        if status >= 500 or status < 400 or status in PASSING:
            raise ClusterUnavailable(f"{what}: status {status}, {_status(data).message[:200]}")
        raise RequestRefused(status, _status(data))

    def every(self, path: str, query: Mapping[str, str | int] | None = None) -> Iterator[Json]:
        """Every object of a list, page by page."""
        following = ""
        while True:
            asked = {**(query or {}), "limit": PAGE, **({"continue": following} if following else {})}
            try:
                page = _Page.model_validate(self.ask("GET", path, asked))
            except ValidationError:
                raise ClusterUnavailable(f"GET {path}: an answer that isn't a list") from None
            yield from page.items or []
            following = str(page.metadata.get("continue") or "")
            if not following:
                return

    def close(self) -> None:
        """Its connections."""
        self._client.close()


def _read(what: str, data: bytes) -> dict[str, object]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ClusterUnavailable(f"{what}: an answer that isn't a JSON object")
    return found


def _status(data: bytes) -> Status:
    try:
        return Status.model_validate_json(data)
    except ValidationError:
        return Status(message=data[:200].decode("utf-8", "replace"))
