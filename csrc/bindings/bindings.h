// Each part of the core binds itself in a file of its own.
#pragma once

#include <nanobind/nanobind.h>

namespace foreword {

struct TokenLogprob;

// (token_id, logprob, rank, top): the arguments of `foreword.core.step.TokenLogprob`, in order.
nanobind::tuple to_tuple(const TokenLogprob& logprob);

void bind_executor(nanobind::module_& m);
void bind_kernels(nanobind::module_& m);
void bind_kv(nanobind::module_& m);
void bind_machine(nanobind::module_& m);
void bind_sampler(nanobind::module_& m);
void bind_text(nanobind::module_& m);
void bind_weights(nanobind::module_& m);

}  // namespace foreword
