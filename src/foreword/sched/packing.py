"""How much a step takes in: what it may cost those who wait for its end."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from foreword.sched.batch import Batch
from foreword.sched.cost import CostModel, StepLoad
from foreword.sched.policy import Policy
from foreword.sched.sequence import Sequence

_LEAST_CHUNK = 16  # tokens that a prompt gets in a step whatever the streams' target: it must end

# A prompt that has waited `_PATIENCE` times what it still needs, and longer than all others, gets
# one in `_AGED_SHARE` tokens of each step.
_PATIENCE = 2.0
_AGED_SHARE = 4


class Packing:
    """Bounds how many tokens of which prompts go into one step.

    * **Streams.** A step in which sequences decode takes no longer than their target, as predicted.
    * **Prompts that end with the step.** All of them wait for everything in it. Another prompt is
      packed in only where that costs them less time in sum than it saves those in line, who wait
      for one step less. So two equal prompts that arrive together end after 1x and 2x, not both
      after 2x, while many short ones share a step.
    * **Whoever comes meanwhile.** They wait for the step to end. Where it ends no prompt it takes
      half the tokens that it may: a prompt of many steps loses little by smaller ones.
    * **Ageing.** The prompt that has waited longest gets a share of each step, ahead of the order,
      once it has waited a multiple of what it still needs. So with a cost of W seconds it has its
      first token within (`_PATIENCE` + `_AGED_SHARE`) * W, and steps' fixed costs, after those that
      had aged before it, whatever arrives; and prompts ahead of it lose no more than that share.

    Args:
        policy: whose order is packed.
        cost: predicts steps.
        max_num_batched_tokens: tokens that a step may have.
        tpot_slo_ms: milliseconds that a step with running streams may take; None: no limit.
    """

    def __init__(
        self,
        policy: Policy,
        cost: CostModel,
        max_num_batched_tokens: int,
        tpot_slo_ms: float | None,
    ) -> None:
        self._budget = max_num_batched_tokens
        self._budget = max_num_batched_tokens
        self._most_unfinished = -(-max_num_batched_tokens // 2)
        self._fills_steps = policy.fills_steps
        self._cost = cost
        self._tpot_slo_s = None if tpot_slo_ms is None else tpot_slo_ms / 1000

    def most_tokens(self, batch: Batch, seq: Sequence, limit: int, num_behind: int) -> int:
        """Tokens of ``seq`` that the step takes at most; 0: it is better off without.

        Args:
            limit: tokens that it may have in any case.
            num_behind: prompts in line, itself included.
        """
        start = len(seq.token_ids) - seq.num_uncached
        if batch.num_decodes and self._tpot_slo_s is not None:
            room_s = self._tpot_slo_s - self._cost.predict(batch.load)
            least = 0 if batch.chunks else _LEAST_CHUNK
            limit = min(limit, max(least, self._cost.tokens_within(room_s, start)))
        if self._fills_steps or limit == 0:
            return limit
        if limit < seq.num_uncached:  # it needs another step all the same
            room = 0 if batch.num_ending else self._most_unfinished - batch.load.prompt_tokens
            return max(0, min(limit, room))
        cost_s = batch.num_ending * self._cost.prompt_s(seq.num_uncached, start)
        return limit if cost_s <= num_behind * self._cost.base_s(batch.load) else 0

    def aged(self, oldest: Iterable[Sequence], now: float) -> Sequence | None:
        """The oldest of some prompts, if it has waited too long."""
        if self._fills_steps:
            return None  # older ones go first anyway
        seq = min(oldest, key=lambda each: each.rank, default=None)
        if seq is None:
            return None
        needed_s = self._cost.prompt_s(seq.num_uncached, len(seq.token_ids) - seq.num_uncached)
        return seq if now - seq.tracked.queued_s > _PATIENCE * needed_s else None

    def num_ending(
        self, base_s: float, each: StepLoad, num_in_line: int, num_decodes: int
    ) -> float:
        """About how many of many equal prompts end with a step; below 1 where one takes several.

        Args:
            base_s: what each further step costs.
            each: the work of one of the prompts.
            num_in_line: prompts in line, these included.
            num_decodes: streams that take part in the step.
        """
        work_s, num_tokens = self._cost.work_s(each), each.num_tokens
        most: float = max(1, self._budget - num_decodes)
        if num_decodes and self._tpot_slo_s is not None:
            fitting = num_tokens * (self._tpot_slo_s - base_s) / work_s
            most = min(most, max(_LEAST_CHUNK, fitting))
        if self._fills_steps:
            return most / num_tokens
        if num_tokens > most:
            return 1 / (1 + ceil((num_tokens - most) / min(most, self._most_unfinished)))
        return min(most // num_tokens, 1 + num_in_line * base_s // (work_s + base_s))

    @property
    def most_shared(self) -> int:
        """Tokens of any step that are an aged prompt's at most."""
        return self.share(self._budget)

    def share(self, budget: int) -> int:
        """Tokens of a step with ``budget`` tokens that are an aged prompt's."""
        return -(-budget // _AGED_SHARE)
