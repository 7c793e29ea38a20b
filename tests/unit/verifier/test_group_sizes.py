"""The rows of each group are counted where a model routes them, by choices or by offsets among its inputs."""

import torch

from verifier.parties.capturing.capture import capture
from verifier.parties.group_sizes import offsets_among

SOURCE = "a task"


class Routed(torch.nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, scores):
        weights, picked = scores.topk(2, dim=-1)
        return weights * (picked % self.groups)


def sizes_of(model, *inputs):
    return [(sizes.source, sizes.rows) for sizes in capture(model, list(inputs), SOURCE, "eval").group_sizes]


def test_the_choices_of_a_router_are_counted():
    scores = torch.zeros(16, 4)
    scores[:, 1], scores[:10, 0], scores[10:, 3] = 2.0, 1.0, 1.0
    assert sizes_of(Routed(4), scores) == [("topk, 2 of 4 for each of 16 rows", [10, 16, 0, 6])]


def test_a_choice_among_many_or_with_few_rows_is_no_routing():
    assert sizes_of(Routed(1024), torch.randn(4096, 1024)) == []
    assert sizes_of(Routed(64), torch.randn(8, 64)) == []


class Summed(torch.nn.Module):
    def forward(self, rows, keys):
        spread = rows.new_zeros(5, rows.shape[1]).scatter_add(0, keys[:, None].expand_as(rows), rows)
        return spread.index_add(0, torch.arange(5), spread), rows.new_zeros(5, rows.shape[1]).index_add_(0, keys, rows)


def test_the_rows_that_are_added_up_at_a_key_are_counted():
    keys = torch.tensor([0, 0, 0, 1, 1, 3, 4, 4])
    [found] = capture(Summed(), [torch.randn(8, 3), keys], SOURCE, "eval").key_rows
    assert (found.source, found.median, found.most, found.empty) == ("scatter_add of 8 rows at 5 keys", 2.0, 3, 1)


def test_offsets_delimit_groups_but_numbers_that_count_do_not():
    offsets = torch.tensor([0, 7, 7, 20])
    found = offsets_among([torch.randn(20, 8), offsets, torch.arange(20), torch.tensor([3, 4, 5])])
    assert [(sizes.source, sizes.rows) for sizes in found] == [("offsets in input 1", [7, 0, 13])]
