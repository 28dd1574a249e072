r"""Reads a policy from a file. A key that stands there twice is refused: two readers could see two policies."""

from __future__ import annotations

import json
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.kit.errors import ProblemType, ServiceError
from zetadp.app.kit.field_errors import field_errors, summary
from zetadp.app.kit.settings import Settings

LARGEST = 64 * 1024
"""Bytes of a policy's file."""


class PolicyUnreadable(ServiceError):
    """The file holds no policy. As a request's answer it is about the operator's own."""

    problem = ProblemType(503, "policy-unreadable", "The operator's policy can't be read.")


class _Loader(yaml.SafeLoader):
    """Safe, and strict about keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [key.value for key, _ in node.value]
        if len(set(names)) != len(names):
            raise yaml.constructor.ConstructorError(None, None, "names a key twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_policy(path: Path) -> Policy:
    r"""The policy in this file.

    Raises:
      PolicyUnreadable: it holds none; the text says what is wrong, with the field.
      OSError: it can't be read.
    """
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    try:
        return policy_in(content)
    except PolicyUnreadable as error:
        raise PolicyUnreadable(f"{path}: {error}") from error


@cache
def policy_in(content: bytes) -> Policy:
    """The policy that these bytes hold, YAML or JSON. Raises PolicyUnreadable."""
    if len(content) > LARGEST:
        raise PolicyUnreadable(f"a policy has at most {LARGEST} bytes")
    try:
        document = yaml.load(content, _Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise PolicyUnreadable(f"isn't YAML that can be read: {' '.join(str(error).split())[:300]}") from error
    try:
        return Policy.model_validate_json(_json(document))
    except ValidationError as error:
        raise PolicyUnreadable(summary(field_errors(error.errors(), document))) from error


def operators_policy(settings: Settings) -> Policy | None:
    """The policy of the service's operator; None without one. Raises PolicyUnreadable."""
    if settings.policy is None:
        return None
    try:
        return read_policy(settings.policy)
    except OSError as error:
        raise PolicyUnreadable(f"{settings.policy}: {error.strerror}") from error


def _json(document: object) -> bytes:
    try:
        return json.dumps(document).encode()
    except (TypeError, ValueError) as error:
        raise PolicyUnreadable(f"holds something that JSON doesn't have: {error}") from error
