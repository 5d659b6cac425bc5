// The Python module `foreword._core`.
#include "bindings.h"

NB_MODULE(_core, m) {
  m.doc() = "foreword's C++ core";
  foreword::bind_weights(m);
  foreword::bind_text(m);
  foreword::bind_sampler(m);
  foreword::bind_executor(m);
  foreword::bind_kernels(m);
  foreword::bind_kv(m);
  foreword::bind_machine(m);
}
