"""A strategy is not offered if its own `Not for` rules it out for the task's shapes or the program's kernels; an unknown fact rules out nothing."""

from __future__ import annotations

import pytest

from agents.strategies import CATALOGUE, Facts, by_name
from verifier.profiling.diagnosing.structure import Product, ReducedRows, Structure

KNOWN = {"headroom": 9.0, "reductions": True, "reuse": True, "units": 132, "cache_bytes": 50 << 20, "unit_cache_bytes": 227 << 10}

STEPS = {"dependent_steps": 512}


def offered(name: str, **more) -> bool:
    facts = Facts("cuda", "latency", capability=(9, 0), **(KNOWN | {"products": True} | more))
    return by_name(name).refuses(facts) is None


def product(m: int, n: int, k: int, batch: int = 1) -> Structure:
    return Structure(products=[Product(batch=batch, m=m, n=n, k=k)], rows=[])


def rows(*found: tuple[str, int, int]) -> Structure:
    return Structure(products=[], rows=[ReducedRows(*row) for row in found])


@pytest.mark.parametrize(
    ("name", "fits", "ruled_out"),
    [
        ("split-k", product(128, 128, 16384), product(4096, 4096, 1024)),
        ("split-k", product(64, 512, 4096), product(64, 64, 128)),
        ("parallel-split", rows(("sum", 16, 100_000)), rows(("sum", 100_000, 512))),
        ("parallel-split", rows(("sum", 16, 100_000)), rows(("sum", 16, 512))),
        ("grouped-product", Structure(groups=True), product(64, 64, 64)),
        ("one-pass-softmax", rows(("softmax", 64, 100_000)), rows(("softmax", 4096, 1024))),
        ("row-cache", rows(("layer_norm", 4096, 1024)), rows(("layer_norm", 4096, 100_000))),
        ("row-cache", rows(("layer_norm", 4096, 1024)), rows(("sum", 4096, 1024))),
        ("warp-a-row", rows(("softmax", 4096, 256)), rows(("softmax", 4096, 8192))),
        ("warp-a-row", rows(("softmax", 4096, 256)), rows(("softmax", 64, 8))),
        ("warp-reductions", rows(("sum", 4096, 256)), rows(("sum", 64, 8))),
        ("own-order", Structure(sorted_lengths=[64]), Structure(sorted_lengths=[64_000])),
        ("own-matvec", product(1, 4096, 4096), product(16, 4096, 4096)),
        ("own-matvec", product(1, 4096, 4096), product(1, 64, 64)),
        ("swizzle-blocks", product(16384, 16384, 4096), product(512, 512, 512)),
        ("own-depthwise", Structure(depthwise=True), Structure()),
        ("fold-constants", Structure(foldable=True), Structure()),
        ("fuse-pointwise", Structure(chains=True), Structure(chains=False)),
        ("split-product", product(1024, 1024, 1024), product(64, 64, 64)),
        ("stream-through-softmax", Structure(score_elements=1 << 26), Structure(score_elements=1 << 16)),
    ],
)
def test_shapes_rule_out_what_they_do_not_fit(name, fits, ruled_out):
    assert offered(name, structure=fits)
    assert not offered(name, structure=ruled_out)
    assert offered(name, structure=None), "an unknown structure rules nothing out"


@pytest.mark.parametrize(
    ("name", "fits", "ruled_out"),
    [
        (
            "persistent-recurrence",
            {"dependent_steps": 512, "kernels": 2048, "own_share": 1.0},
            {"dependent_steps": 512, "kernels": 1, "own_share": 1.0},
        ),
        ("persistent-recurrence", STEPS | {"kernels": 6, "own_share": 0.0}, {"dependent_steps": 0}),
        ("cooperative-kernel", {"short_kernels": 4}, {"short_kernels": 1}),
        ("dependent-launch", {"own_kernels": 4, "program_us": 100}, {"own_kernels": 1, "program_us": 100}),
        ("dependent-launch", {"own_kernels": 4, "program_us": 100}, {"own_kernels": 31, "program_us": 12_700}),
        ("fuse-block", {"kernels": 3}, {"kernels": 1}),
        ("fuse-matmul-tail", {"library_products": True}, {"library_products": False}),
        ("library-variant", {"library_products": True}, {"library_products": False}),
        ("vector-math", {"functions": True}, {"functions": False}),
        ("warp-roles", {"on_tensor_cores": True}, {"on_tensor_cores": False}),
        ("persistent-kernel", {"slowest_waves": 5.9}, {"slowest_waves": 0.97}),
        ("work-per-thread", {"slowest_blocks": 4096}, {"slowest_blocks": 132}),
        ("loads-in-flight", {"streams": True}, {"streams": False}),
        ("cuda-graph", {"host_share": 0.3, "launches": 9, "waits": 0}, {"host_share": 0.3, "launches": 140, "waits": 41}),
        ("cuda-graph", {"host_share": 0.04, "launches": 2, "gap_share": 0.05}, {"host_share": 0.04, "launches": 2, "gap_share": 0.002}),
        ("channels-last", {"library_products": True}, {"library_products": False}),
        ("register-blocking", {"on_tensor_cores": False}, {"on_tensor_cores": True}),
        ("non-temporal-stores", {"quiet_memory": False}, {"quiet_memory": True}),
        ("non-temporal-stores", {"largest_bytes": 200 << 20}, {"largest_bytes": 5 << 20}),
    ],
)
def test_a_programs_kernels_rule_out_what_it_has_no_use_for(name, fits, ruled_out):
    assert offered(name, **fits) and not offered(name, **ruled_out)


def test_a_plan_made_before_any_program_mends_no_kernel():
    from agents.roles import digest

    facts = Facts("cuda", "memory", **KNOWN)
    first, later = ({s.name for s in digest.catalogue_for(facts, "cuda", written=written)} for written in (False, True))
    mending = {s.name for s in CATALOGUE if s.mends}
    assert mending and first.isdisjoint(mending) and {"leave-to-library", "block-size"} <= later - first
