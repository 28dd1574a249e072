r"""Users' records: bounded, whole, and nobody else's business."""

from __future__ import annotations

import numpy as np
import torch

from zetadp.trainer.engine import members_of

USERS = np.array([1, 0, 1, 2, 1, 0, 1])


def test_members_are_each_users_own_records_in_the_data_sets_order() -> None:
    assert members_of(USERS, 10).tolist() == [[1, 5, -1, -1], [0, 2, 4, 6], [3, -1, -1, -1]]


def test_a_user_with_more_records_keeps_the_first_ones() -> None:
    assert members_of(USERS, 2).tolist() == [[1, 5], [0, 2], [3, -1]]


def test_other_users_records_do_not_change_which_of_a_users_are_kept() -> None:
    # User 1 is replaced by somebody with one record; the others' places among their own records stay.
    fewer = np.array([1, 0, 2, 0])
    kept = members_of(fewer, 2)
    assert (kept[0] >= 0).sum() == 2
    assert (kept[2] >= 0).sum() == 1


def test_every_record_within_the_bound_belongs_to_one_user() -> None:
    generator = np.random.default_rng(3)
    users = generator.permutation(np.concatenate((np.arange(50), generator.integers(0, 50, 450))))
    members = members_of(users, 500)
    numbers = members[members >= 0]
    assert torch.equal(numbers.sort().values, torch.arange(500))
    assert all((users[row[row >= 0].numpy()] == user).all() for user, row in enumerate(members))
