r"""The Merkle tree of RFC 9162, section 2.1 (that of RFC 6962): which nodes a root and a proof are made of, and how proofs are checked.

SHA-256; a leaf's hash is that of 0x00 and its data, an inner node's that of 0x01 and its two children. A complete subtree never changes
once it is there, so it is stored as a node (level, position). Each hash of a root or a proof is folded from at most log2(n) + 1 of them.
Nothing here knows where nodes are stored.

Why not a library: pymerkle, the maintained one, stores leaves through its own connection, so that a certificate and its leaf
couldn't be stored in one transaction, and its licence is the GPL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

Node = tuple[int, int]
"""(level, position) of a complete subtree: the leaves from position 2^level, 2^level of them."""

Span = tuple[int, int]
"""Leaves from the first to before the second."""

EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """Hash of a leaf's data."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def completed(index: int) -> Iterator[tuple[Node, Node, Node]]:
    r"""The inner nodes that the leaf ``index`` completes, from below, each with its children: constant on average.

    >>> [parent for parent, _, _ in completed(3)]
    [(1, 1), (2, 0)]
    """
    level, position = 0, index
    while position % 2:
        yield (level + 1, position // 2), (level, position - 1), (level, position)
        level, position = level + 1, position // 2


def nodes_of(span: Span) -> list[Node]:
    r"""The complete subtrees that make up a span of leaves, from the left; their levels fall.

    >>> nodes_of((0, 7))
    [(2, 0), (1, 2), (0, 6)]
    """
    found: list[Node] = []
    first, end = span
    while first < end:
        level = (end - first).bit_length() - 1
        found.append((level, first >> level))
        first += 1 << level
    return found


def inclusion_spans(index: int, size: int) -> list[Span]:
    """The spans whose hashes prove that the leaf is in the tree of this size (RFC 9162, 2.1.3.1), from the leaf upwards."""
    return _inclusion(index, (0, size))


def _inclusion(index: int, span: Span) -> list[Span]:
    first, end = span
    if end - first == 1:
        return []
    middle = first + _split(end - first)
    if index < middle:
        return [*_inclusion(index, (first, middle)), (middle, end)]
    return [*_inclusion(index, (middle, end)), (first, middle)]


def consistency_spans(first: int, second: int) -> list[Span]:
    """The spans that prove that the tree of ``first`` leaves is the beginning of that of ``second`` (RFC 9162, 2.1.4.1)."""
    return _consistency(first, (0, second), whole=True) if 0 < first < second else []


def _consistency(first: int, span: Span, *, whole: bool) -> list[Span]:
    begin, end = span
    if first == end - begin:
        return [] if whole else [span]
    split = _split(end - begin)
    if first <= split:
        return [*_consistency(first, (begin, begin + split), whole=whole), (begin + split, end)]
    return [*_consistency(first - split, (begin + split, end), whole=False), (begin, begin + split)]


def fold(span: Span, hash_of: Callable[[Node], bytes]) -> bytes:
    """The hash of a span of leaves, or the empty tree's; ``hash_of`` knows the complete subtrees."""
    nodes = nodes_of(span)
    if not nodes:
        return EMPTY_ROOT
    found = hash_of(nodes[-1])
    for node in reversed(nodes[:-1]):
        found = node_hash(hash_of(node), found)
    return found


def root_over(leaves: Sequence[bytes]) -> bytes:
    """The root over these leaves' hashes."""
    level = list(leaves)
    if not level:
        return EMPTY_ROOT
    while len(level) > 1:
        pairs = [node_hash(level[place], level[place + 1]) for place in range(0, len(level) - 1, 2)]
        # A last one without a partner rises as it is: that splits at the largest power of two below, as the definition does.
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


def root_from_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that an inclusion proof leads to (RFC 9162, 2.1.3.2); None if its length isn't that of such a proof."""
    if not 0 <= index < size:
        return None
    position, last, found = index, size - 1, leaf
    for other in path:
        if last == 0:
            return None
        if position % 2 or position == last:
            found = node_hash(other, found)
            while position % 2 == 0 and position:
                position, last = position >> 1, last >> 1
        else:
            found = node_hash(found, other)
        position, last = position >> 1, last >> 1
    return found if last == 0 else None


def is_consistent(first: int, first_root: bytes, second: int, second_root: bytes, path: Sequence[bytes]) -> bool:
    """Whether the proof shows that the first tree is the beginning of the second (RFC 9162, 2.1.4.2). The empty tree begins every tree."""
    if first in (0, second):
        return not path and first_root == (EMPTY_ROOT if first == 0 else second_root)
    if not 0 < first < second or not path:
        return False
    # Where the first tree is one complete subtree its root stands for itself, and the proof leaves it out.
    hashes = [first_root, *path] if first & (first - 1) == 0 else list(path)
    position, last = first - 1, second - 1
    while position % 2:
        position, last = position >> 1, last >> 1
    old = new = hashes[0]
    for other in hashes[1:]:
        if last == 0:
            return False
        if position % 2 or position == last:
            old, new = node_hash(other, old), node_hash(other, new)
            while position % 2 == 0 and position:
                position, last = position >> 1, last >> 1
        else:
            new = node_hash(new, other)
        position, last = position >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root


def _split(size: int) -> int:
    """The largest power of two below ``size`` (at least 2)."""
    return 1 << ((size - 1).bit_length() - 1)
