r"""Reads a policy from a file. What two readers could take for two policies is refused: a key that stands there twice, aliases, tags.

Every value is the text that stands there; what it means, the policy's fields say. So ``1.0e-6`` is the decimal number that was written, and
``no`` is a word.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.kit.errors import ProblemType, ServiceError
from zetadp.app.kit.field_errors import field_errors, summary

if TYPE_CHECKING:
    from zetadp.app.kit.settings import Settings

LARGEST = 64 * 1024
"""Bytes of a policy's file."""


class PolicyUnreadable(ServiceError):
    """The file holds no policy. As a request's answer it is about the operator's own."""

    problem = ProblemType(503, "policy-unreadable", "The operator's policy can't be read.")


_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))


class _Loader(yaml.BaseLoader):
    """Texts, lists and mappings, strict about keys."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _refused("has an alias", self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        if node is not None and node.tag not in _PLAIN:
            raise _refused("has a tag", node.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value]
        if not all(isinstance(key, yaml.ScalarNode) for key in keys):
            raise _refused("has a key that isn't a word", node.start_mark)
        if len({key.value for key in keys}) != len(keys):
            raise _refused("names a key twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _refused(problem: str, mark: yaml.Mark) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, mark)


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
        document = _Loader(content).get_single_data()
    except (yaml.YAMLError, RecursionError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        raise PolicyUnreadable(f"isn't YAML that can be read: {' '.join(str(error).split())[:300]}") from error
    try:
        return Policy.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise PolicyUnreadable(summary(field_errors(error.errors(), document, "policy"))) from error


def operators_policy(settings: Settings) -> Policy | None:
    """The policy of the service's operator; None without one. Raises PolicyUnreadable."""
    if settings.policy is None:
        return None
    try:
        return read_policy(settings.policy)
    except OSError as error:
        raise PolicyUnreadable(f"{settings.policy}: {error.strerror}") from error
