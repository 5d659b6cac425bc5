// Python's view of a model and its executor. Built by `foreword.backends.cpu`, which knows the model's names.
#include "bindings.h"
#include "foreword/executor.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace foreword {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatMatrix = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

template <typename T>
std::span<const T> view(const nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>& array) {
  return {array.data(), array.size()};
}

std::vector<float> copy(const Floats& array) { return {array.data(), array.data() + array.size()}; }

void make_matrix(Matrix* self, const Bytes& data, uint32_t ggml_type, size_t rows, size_t cols,
                 const std::optional<Bytes>& panels) {
  const DTypeInfo* info = dtype_info(ggml_type);
  if (!info || rows == 0 || cols == 0 || cols % info->block_elements != 0) {
    throw std::invalid_argument("no such matrix");
  }
  const size_t row_bytes = cols / info->block_elements * info->block_bytes;
  if (data.size() % rows != 0 || data.size() / rows != row_bytes) {
    throw std::invalid_argument("data does not hold the matrix");
  }
  const auto type = static_cast<DType>(ggml_type);
  if (panels && panels->size() != panels_of(rows) * panel_bytes(type, cols)) {
    throw std::invalid_argument("panels do not hold the matrix");
  }
  new (self) Matrix{data.data(), type, rows, cols, row_bytes, panels ? panels->data() : nullptr};
}

void bind_model(nb::module_& m) {
  nb::enum_<Activation>(m, "Activation")
      .value("SILU", Activation::kSilu)
      .value("GELU_TANH", Activation::kGeluTanh);
  nb::class_<Matrix>(m, "Matrix")
      .def("__init__", make_matrix, "data"_a, "ggml_type"_a, "rows"_a, "cols"_a,
           "panels"_a = nb::none(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 6>());
  nb::class_<Rope>(m, "Rope")
      .def(
          "__init__",
          [](Rope* self, float base, size_t dim, float scale, const Floats& factors, bool interleaved) {
            new (self) Rope(make_rope(base, dim, scale, view(factors), interleaved));
          },
          nb::kw_only(), "base"_a, "dim"_a, "scale"_a, "factors"_a, "interleaved"_a);
  nb::class_<Layer>(m, "Layer")
      .def(
          "__init__",
          [](Layer* self, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& output, const Matrix& gate,
             const Matrix& up, const Matrix& down, const Floats& attention_norm, const Floats& mlp_norm,
             const Floats& q_norm, const Floats& k_norm, const Floats& post_attention_norm,
             const Floats& post_mlp_norm, float attention_scale, int32_t window, size_t rope, Activation activation) {
            new (self) Layer{q,
                             k,
                             v,
                             output,
                             gate,
                             up,
                             down,
                             copy(attention_norm),
                             copy(mlp_norm),
                             copy(q_norm),
                             copy(k_norm),
                             copy(post_attention_norm),
                             copy(post_mlp_norm),
                             attention_scale,
                             window == 0 ? kNoWindow : window,
                             rope,
                             activation};
          },
          nb::kw_only(), "q"_a, "k"_a, "v"_a, "output"_a, "gate"_a, "up"_a, "down"_a, "attention_norm"_a, "mlp_norm"_a,
          "q_norm"_a, "k_norm"_a, "post_attention_norm"_a, "post_mlp_norm"_a, "attention_scale"_a, "window"_a, "rope"_a,
          "activation"_a);
}

void make_executor(Executor* self, std::string_view isa, std::string_view kv_cache_dtype, unsigned num_threads,
                   size_t num_heads, size_t num_kv_heads, size_t head_dim, float norm_eps, float embedding_scale, const Matrix& embedding,
                   const Matrix& output, const Floats& output_norm, std::vector<Rope> ropes, std::vector<Layer> layers,
                   const nb::object&) {
  const Kernels* kernels = find_kernels(isa);
  if (!kernels) throw std::invalid_argument("this machine cannot run " + std::string(isa));
  const std::optional<KVDType> kv = kv_dtype(kv_cache_dtype);
  if (!kv) throw std::invalid_argument("no such type of keys and values: " + std::string(kv_cache_dtype));
  if (num_threads == 0) throw std::invalid_argument("an executor needs a thread");
  new (self) Executor(Model{num_heads, num_kv_heads, head_dim, norm_eps, embedding_scale, embedding, output,
                            copy(output_norm), std::move(ropes), std::move(layers)},
                      *kernels, *kv, num_threads);
}

// The Python-side owner of what a SequenceRequest only views.
struct Sampling {
  size_t sequence;
  const SamplingSpec* spec;
  uint64_t seed, position;
  std::vector<int32_t> draws, history, banned, score_ids;
  size_t num_prompt_tokens;

  SequenceRequest request() const {
    return {sequence, {spec, seed, draws, position, history, num_prompt_tokens, banned}, score_ids};
  }
};

Step make_step(const Ints& token_ids, const Ints& lengths, const Ints& starts, const Ints& block_tables,
               const Ints& table_lengths, const Ints& block_copies) {
  return {view(token_ids), view(lengths), view(starts), view(block_tables), view(table_lengths), view(block_copies),
          {}};
}

nb::tuple execute(Executor& self, const Ints& token_ids, const Ints& lengths, const Ints& starts,
                  const Ints& block_tables, const Ints& table_lengths, const Ints& block_copies,
                  const std::vector<const Sampling*>& samplings) {
  const Step step = make_step(token_ids, lengths, starts, block_tables, table_lengths, block_copies);
  std::vector<SequenceRequest> requests;
  for (const Sampling* sampling : samplings) requests.push_back(sampling->request());
  StepOutput outputs;
  {
    nb::gil_scoped_release unlocked;
    outputs = self.run_and_sample(step, requests);
  }
  const auto tuples = [](const std::vector<TokenLogprob>& logprobs) {
    nb::list list;
    for (const TokenLogprob& logprob : logprobs) list.append(to_tuple(logprob));
    return list;
  };
  nb::list results;
  for (const SequenceOutput& output : outputs.sequences) {
    results.append(
        nb::make_tuple(output.sampled.token_ids, tuples(output.sampled.logprobs), tuples(output.scores)));
  }
  return nb::make_tuple(results, outputs.sampling_s);
}

FloatMatrix logits(Executor& self, const Ints& token_ids, const Ints& lengths, const Ints& starts,
                   const Ints& block_tables, const Ints& table_lengths, const Ints& block_copies,
                   const Ints& logit_rows) {
  Step step = make_step(token_ids, lengths, starts, block_tables, table_lengths, block_copies);
  step.logit_rows = view(logit_rows);
  const size_t width = self.model().vocab_size();
  auto values = std::make_unique<float[]>(logit_rows.size() * width);
  {
    nb::gil_scoped_release unlocked;
    self.run(step, [&](size_t index, std::span<float> row, unsigned) {
      std::copy(row.begin(), row.end(), values.get() + index * width);
    });
  }
  float* data = values.get();
  const nb::capsule owner(values.release(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return {data, {logit_rows.size(), width}, owner};
}

uint8_t* checked_block(Executor& self, size_t block) {
  if (block >= self.kv().num_blocks()) throw std::out_of_range("no such block");
  return self.kv().block(block);
}

nb::bytes read_block(Executor& self, size_t block) {
  return nb::bytes(checked_block(self, block), self.kv().block_bytes());
}

void write_block(Executor& self, size_t block, const nb::bytes& data) {
  uint8_t* to = checked_block(self, block);
  if (data.size() != self.kv().block_bytes()) throw std::invalid_argument("data is not a block");
  std::memcpy(to, data.data(), data.size());
}

}  // namespace

void bind_executor(nb::module_& m) {
  bind_model(m);
  m.def("available_isas", available_isas);
  nb::class_<Sampling>(m, "Sampling")
      .def(
          "__init__",
          [](Sampling* self, size_t sequence, const SamplingSpec* spec, uint64_t seed, uint64_t position,
             std::vector<int32_t> draws, std::vector<int32_t> history, std::vector<int32_t> banned,
             std::vector<int32_t> score_ids, size_t num_prompt_tokens) {
            new (self) Sampling{sequence,           spec,
                                seed,               position,
                                std::move(draws),   std::move(history),
                                std::move(banned),  std::move(score_ids),
                                num_prompt_tokens};
          },
          nb::kw_only(), "sequence"_a, "spec"_a, "seed"_a, "position"_a, "draws"_a, "history"_a, "banned"_a,
          "score_ids"_a, "num_prompt_tokens"_a, nb::keep_alive<1, 3>());
  nb::class_<Executor>(m, "Executor")
      .def("__init__", make_executor, nb::kw_only(), "isa"_a, "kv_cache_dtype"_a, "num_threads"_a, "num_heads"_a, "num_kv_heads"_a,
           "head_dim"_a, "norm_eps"_a, "embedding_scale"_a, "embedding"_a, "output"_a, "output_norm"_a, "ropes"_a,
           "layers"_a, "owner"_a, nb::keep_alive<1, 15>())
      .def_prop_ro("isa", [](const Executor& self) { return self.kernels().isa; })
      .def_prop_ro("num_threads", &Executor::num_threads)
      .def_prop_ro("block_bytes", [](Executor& self) { return self.kv().block_bytes(); })
      .def("allocate", [](Executor& self, size_t blocks) { self.kv().allocate(blocks); }, "num_blocks"_a)
      .def("execute", execute, "token_ids"_a, "lengths"_a, "starts"_a, "block_tables"_a, "table_lengths"_a,
           "block_copies"_a, "samplings"_a)
      .def("logits", logits, "token_ids"_a, "lengths"_a, "starts"_a, "block_tables"_a, "table_lengths"_a,
           "block_copies"_a, "logit_rows"_a)
      .def("read_block", read_block, "block"_a)
      .def("write_block", write_block, "block"_a, "data"_a);
}

}  // namespace foreword
