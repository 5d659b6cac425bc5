"""Virtual time, where what must come out can be worked out by hand."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

from foreword.bench.load.record import RequestRecord
from foreword.bench.load.summary import Slo
from foreword.bench.load.trace import Trace
from foreword.bench.load.workloads import Burst, Chat, Fixed, Mixed, Rag, Recipe, Urgent
from foreword.config.admission import AdmissionConfig
from foreword.config.engine import EngineOptions
from foreword.errors import ConfigError
from foreword.sim.cost import CostProfile
from foreword.sim.report import PolicyReport, SimReport, hit_rate
from foreword.sim.settings import SimSettings
from foreword.sim.simulate import simulate

PROFILE = CostProfile(
    name="round numbers",
    context_tokens=4096,
    kv_tokens=16 * 4096,
    step_s=0.01,
    prompt_token_s=0.001,
    attention_pair_s=1e-6,
    decode_s=0.002,
    context_token_s=1e-5,
)


def run(
    recipe: Recipe,
    *,
    profile: CostProfile = PROFILE,
    policies: tuple[str, ...] = ("fcfs",),
    slo: Slo | None = None,
    admission: AdmissionConfig | None = None,
    max_num_batched_tokens: int = 512,
    num_blocks: int | None = None,
    **settings: Any,
) -> SimReport:
    options = EngineOptions(max_num_batched_tokens=max_num_batched_tokens, num_blocks=num_blocks)
    return simulate(
        recipe,
        SimSettings(**settings),
        options,
        profile,
        policies=policies,
        admission=admission or AdmissionConfig(),
        slo=slo,
    )


def only(report: SimReport) -> PolicyReport:
    (policy,) = report.policies
    return policy


def records(report: SimReport) -> list[RequestRecord]:
    return list(only(report).result.records)


def step_s(prompt: int = 0, start: int = 0, context: int | None = None) -> float:
    """A step with one stretch of a prompt, or with one stream."""
    if context is not None:
        return PROFILE.step_s + PROFILE.decode_s + PROFILE.context_token_s * context
    pairs = sum(range(start + 1, start + prompt + 1))
    return PROFILE.step_s + PROFILE.prompt_token_s * prompt + PROFILE.attention_pair_s * pairs


def test_one_request_alone_takes_what_its_steps_take() -> None:
    profile = replace(
        PROFILE, request_s=0.5, request_token_s=0.01, reply_s=0.25, between_steps_s=0.125
    )
    recipe = Fixed(prompt_tokens=(40,), output_tokens=3)
    (record,) = records(run(recipe, profile=profile, num_prompts=1, max_num_batched_tokens=30))
    first = 0.5 + 40 * 0.01 + step_s(30) + 0.125 + step_s(10, 30) + 0.25
    second = first + 0.125 + step_s(context=41)
    third = second + 0.125 + step_s(context=42)
    assert record.token_times_s == pytest.approx((first, second, third))
    assert record.ttft_s == pytest.approx(first)
    assert record.completion_tokens == 3


def test_a_queue_of_equal_requests_grows_as_arithmetic_says() -> None:
    """D/D/1: each step has room for one prompt, and they come faster than they go."""
    service_s, gap_s = step_s(64), 0.05
    recipe = Fixed(prompt_tokens=(64,), output_tokens=1)
    found = records(
        run(
            recipe,
            num_prompts=50,
            request_rate=1 / gap_s,
            burstiness=inf,
            max_num_batched_tokens=64,
        )
    )
    expected = [service_s + number * (service_s - gap_s) for number in range(50)]
    assert [record.ttft_s for record in found] == pytest.approx(expected)


def test_a_queue_that_is_fast_enough_stays_empty() -> None:
    recipe = Fixed(prompt_tokens=(64,), output_tokens=1)
    report = run(recipe, num_prompts=20, request_rate=5, burstiness=inf, max_num_batched_tokens=64)
    assert [record.ttft_s for record in records(report)] == pytest.approx([step_s(64)] * 20)
    assert only(report).utilisation == pytest.approx(20 * step_s(64) / (19 * 0.2 + step_s(64)))


@pytest.mark.parametrize("router", ["round-robin", "least-loaded"])
def test_two_replicas_take_half_the_time(router: str) -> None:
    recipe = Burst(size=12, prompt_tokens=64, output_tokens=1)
    one, two = [
        run(recipe, num_prompts=12, max_num_batched_tokens=64, replicas=replicas, router=router)
        for replicas in (1, 2)
    ]
    assert only(one).duration_s == pytest.approx(12 * step_s(64))
    assert only(two).duration_s == pytest.approx(6 * step_s(64))
    assert [len(each.result.records) for each in only(two).replicas] == [6, 6]


def test_the_least_loaded_replica_is_the_one_with_the_shortest_prompts() -> None:
    """Long and short take turns: round robin gives one replica all the long ones."""
    recipe = Fixed(prompt_tokens=(500, 10), output_tokens=1)
    options: dict[str, Any] = {"num_prompts": 20, "request_rate": 1e6, "replicas": 2}
    blind = only(run(recipe, router="round-robin", **options))
    wise = only(run(recipe, router="least-loaded", **options))
    assert blind.replicas[0].totals.prompt_tokens == 10 * 500
    shares = [each.totals.prompt_tokens for each in wise.replicas]
    assert max(shares) - min(shares) <= 500
    assert wise.duration_s < 0.6 * blind.duration_s


def test_requests_are_taken_in_one_at_a_time() -> None:
    profile = replace(PROFILE, request_s=1.0)
    found = records(
        run(Burst(size=3, prompt_tokens=8, output_tokens=1), profile=profile, num_prompts=3)
    )
    assert [record.ttft_s for record in found] == pytest.approx(
        [arrived + step_s(8) for arrived in (1.0, 2.0, 3.0)]
    )


def test_the_same_seeds_give_the_same_bytes() -> None:
    noisy = replace(PROFILE, noise=0.3)

    def report(**settings: Any) -> str:
        made = run(
            Chat(), profile=noisy, num_prompts=60, request_rate=2, replicas=2, slo=Slo(ttft_ms=300),
            policies=("fcfs", "shortest"), **settings,
        )  # fmt: skip
        return json.dumps(made.to_json())

    assert report() == report()
    assert report() != report(noise_seed=1)
    assert report() != report(seed=1)


def test_tokens_and_time_add_up() -> None:
    report = run(Chat(), num_prompts=80, request_rate=3, replicas=2)
    policy = only(report)
    totals, found = policy.totals, records(report)
    assert [record.index for record in found] == list(range(80))
    assert totals.prompt_tokens == sum(record.prompt_tokens or 0 for record in found)
    assert totals.cached_prompt_tokens == sum(record.cached_tokens or 0 for record in found) > 0
    assert totals.generated_tokens == 80 * Chat().output_tokens
    # the last token of an answer is computed by nobody
    uncached = totals.prompt_tokens - totals.cached_prompt_tokens
    assert totals.computed_tokens == uncached + totals.generated_tokens - 80
    assert policy.summary.prompt_tokens == totals.prompt_tokens
    assert hit_rate(totals) == policy.summary.cached_tokens / policy.summary.prompt_tokens
    for replica in policy.replicas:
        assert 0 < replica.busy_s < policy.duration_s
        assert all(earlier.at_s < later.at_s for earlier, later in pairwise(replica.points))
    assert all(earlier <= later for r in found for earlier, later in pairwise(r.token_times_s))


def test_known_documents_are_found_in_the_cache() -> None:
    recipe = Rag(documents=2, document_tokens=160)
    found = records(run(recipe, num_prompts=20))
    new = [record for record in found if record.kind == "new document"]
    known = [record for record in found if record.kind == "known document"]
    assert {record.cached_tokens for record in new} == {0}
    assert {record.cached_tokens for record in known} == {160}


def test_blocks_of_a_trace_are_shared_as_its_hashes_say(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1100, "output_length": 2, "hash_ids": [1, 2, 3]},
        {"timestamp": 9000, "input_length": 1100, "output_length": 2, "hash_ids": [1, 2, 4]},
        {"timestamp": 18000, "input_length": 1100, "output_length": 2, "hash_ids": [5, 2, 3]},
    ]
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    found = records(run(Trace(path=str(path))))
    assert [record.cached_tokens for record in found] == [0, 1024, 0]
    assert [record.intended_s for record in found] == [0, 9, 18]


def test_the_shortest_first_serves_short_prompts_sooner() -> None:
    report = run(Mixed(), policies=("fcfs", "shortest"), num_prompts=150, request_rate=3)
    fcfs, shortest = [policy.summary.ttft_ms_by_kind["short"] for policy in report.policies]
    assert shortest.p99 < 0.5 * fcfs.p99


@pytest.mark.parametrize("policy", ["priority", "deadline"])
def test_who_is_in_a_hurry_is_served_sooner(policy: str) -> None:
    """All prompts are of one length, so that the shortest first helps nobody."""
    recipe = Urgent(urgent_ttft_slo_ms=20_000, patient_ttft_slo_ms=60_000)
    report = run(recipe, policies=("shortest", policy), num_prompts=150, request_rate=1.2)
    shortest, theirs = [each.summary.ttft_ms_by_kind["urgent"] for each in report.policies]
    assert theirs.count == shortest.count
    assert theirs.p90 < 0.7 * shortest.p90


def test_goodput_counts_what_kept_the_slo() -> None:
    slow = step_s(64) + 0.5
    slo = Slo(ttft_ms=slow * 1e3)
    report = run(
        Fixed(prompt_tokens=(64,), output_tokens=1),
        num_prompts=100,
        request_rate=20,
        burstiness=inf,
        max_num_batched_tokens=64,
        slo=slo,
    )
    behind_s = step_s(64) - 0.05  # each waits so much longer than the one before it
    kept = 1 + int(0.5 / behind_s)
    assert only(report).summary.goodput_share == kept / 100


def test_too_few_blocks_cost_preemptions_and_no_request(tmp_path: Path) -> None:
    """Answers that turn out longer than the ones before them outgrow the pool."""
    path = tmp_path / "trace.jsonl"
    rows = [(second, 2) for second in range(20)] + [(20, 300)] * 8
    path.write_text(
        "\n".join(
            json.dumps(
                {
                    "timestamp": second * 1000,
                    "input_length": 32,
                    "output_length": output,
                    "hash_ids": [number],
                }
            )
            for number, (second, output) in enumerate(rows)
        )
    )
    policy = only(run(Trace(path=str(path)), num_blocks=40))
    assert policy.summary.good == 28
    assert policy.totals.preemptions > 0
    assert 0 < policy.totals.waste_ratio < 0.9
    assert only(run(Trace(path=str(path)))).totals.preemptions == 0


def test_a_prompt_that_does_not_fit_is_refused_and_the_others_go_on() -> None:
    report = run(Fixed(prompt_tokens=(64, 5000), output_tokens=2), num_prompts=4)
    policy = only(report)
    assert (policy.summary.good, policy.summary.errors) == (2, {"http status": 2})
    assert "5000 tokens" in policy.to_json()["requests"][1]["failure"]


def test_admission_refuses_what_would_come_too_late() -> None:
    """D/D/1 again, at three times what it bears: who is admitted comes in time."""
    recipe = Fixed(prompt_tokens=(64,), output_tokens=1)
    options: dict[str, Any] = {
        "num_prompts": 300,
        "request_rate": 3 / step_s(64),
        "burstiness": inf,
        "max_num_batched_tokens": 64,
        "slo": Slo(ttft_ms=500),
    }
    limited = only(run(recipe, admission=AdmissionConfig(ttft_slo_ms=500), **options)).summary
    assert 100 <= limited.good <= 110  # those that are served while the others come
    assert limited.errors == {"overloaded": 300 - limited.good}
    assert limited.ttft_ms is not None
    assert 400 < limited.ttft_ms.p90 <= limited.ttft_ms.max < 550
    unlimited = only(run(recipe, **options)).summary
    assert (unlimited.good, unlimited.errors) == (300, {})
    assert limited.goodput_share is not None
    assert unlimited.goodput_share is not None
    assert limited.goodput_share > 5 * unlimited.goodput_share


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_closed_loop_keeps_so_many_open(concurrency: int) -> None:
    report = run(
        Fixed(prompt_tokens=(32,), output_tokens=5), num_prompts=12, max_concurrency=concurrency
    )
    found = records(report)
    open_at = [
        sum((r.sent_s or 0.0) <= (each.sent_s or 0.0) < r.ended_s for r in found) for each in found
    ]
    assert max(open_at) == concurrency
    assert min(open_at[concurrency:]) == concurrency


@dataclass(frozen=True)
class Case:
    options: dict[str, Any]
    told: str


@pytest.mark.parametrize(
    "case",
    [
        Case({"replicas": 0}, "replicas: must be at least 1, not 0"),
        Case({"num_prompts": 0}, "num_prompts: must be at least 1, not 0"),
        Case({"max_concurrency": 0}, "max_concurrency: must be at least 1"),
        Case({"router": "best"}, "router: 'best' is none of round-robin, least-loaded"),
        Case({"request_rate": -1.0}, "request_rate: must be above 0"),
        Case({"request_rate": float("nan")}, "request_rate: must be above 0"),
        Case({"policies": ("fcfs", "lifo")}, "scheduling_policy: must be one of"),
        Case({"policies": ()}, "scheduling_policy: name at least one"),
        Case({"max_num_batched_tokens": 0}, "max_num_batched_tokens: must be a whole number"),
        Case({"num_blocks": 0}, "num_blocks: must be a whole number"),
    ],
    ids=lambda case: case.told.split(",")[0],
)
def test_what_cannot_be_is_refused(case: Case) -> None:
    with pytest.raises(ConfigError, match=case.told):
        run(Chat(), **{"num_prompts": 2, **case.options})
