// Python's view of the sampler: tests call `sample` and `score` directly, the executor calls them inside its step.
#include "bindings.h"
#include "foreword/random.h"
#include "foreword/sampler.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace foreword {
namespace {

using Logits = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = std::vector<int32_t>;

nb::tuple sample_row(Logits logits, const SamplingSpec& spec, uint64_t seed, const Ids& draws, uint64_t position,
                     const Ids& history, size_t num_prompt_tokens, const Ids& banned, SamplerScratch& scratch) {
  SampleResult result;
  {
    nb::gil_scoped_release release;
    result = sample({logits.data(), logits.size()},
                    {&spec, seed, draws, position, history, num_prompt_tokens, banned}, scratch);
  }
  nb::list logprobs;
  for (const TokenLogprob& logprob : result.logprobs) logprobs.append(to_tuple(logprob));
  return nb::make_tuple(result.token_ids, logprobs);
}

nb::tuple score_row(Logits logits, int32_t token_id, int32_t top, SamplerScratch& scratch) {
  return to_tuple(score({logits.data(), logits.size()}, token_id, top, scratch));
}

}  // namespace

nb::tuple to_tuple(const TokenLogprob& logprob) {
  nb::list top;
  for (const auto& [id, value] : logprob.top) top.append(nb::make_tuple(id, value));
  return nb::make_tuple(logprob.token_id, logprob.logprob, logprob.rank, nb::tuple(top));
}

void bind_sampler(nb::module_& m) {
  nb::class_<SamplingSpec>(m, "SamplingSpec")
      .def(
          "__init__",
          [](SamplingSpec* self, float temperature, int32_t top_k, float top_p, float min_p, float presence_penalty,
             float frequency_penalty, float repetition_penalty, std::vector<std::pair<int32_t, float>> logit_bias,
             int32_t logprobs, int32_t prompt_logprobs) {
            new (self) SamplingSpec{temperature, top_k, top_p, min_p, presence_penalty, frequency_penalty,
                                    repetition_penalty, std::move(logit_bias), logprobs, prompt_logprobs};
          },
          nb::kw_only(), "temperature"_a = 1.0f, "top_k"_a = 0, "top_p"_a = 1.0f, "min_p"_a = 0.0f,
          "presence_penalty"_a = 0.0f, "frequency_penalty"_a = 0.0f, "repetition_penalty"_a = 1.0f,
          "logit_bias"_a = nb::list(), "logprobs"_a = -1, "prompt_logprobs"_a = -1);
  nb::class_<SamplerScratch>(m, "SamplerScratch").def(nb::init<>());
  m.def("sample", sample_row, "logits"_a, "spec"_a, nb::kw_only(), "seed"_a, "draws"_a, "position"_a,
        "history"_a = Ids{}, "num_prompt_tokens"_a = 0, "banned"_a = Ids{}, "scratch"_a);
  m.def("score", score_row, "logits"_a, "token_id"_a, "top"_a, "scratch"_a);
  m.def("philox4x32", philox4x32, "counter"_a, "key"_a);
}

}  // namespace foreword
