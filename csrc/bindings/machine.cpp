// What the machine is and what it can do at most.
#include "bindings.h"
#include "foreword/features.h"
#include "foreword/kernels.h"
#include "foreword/probes.h"

#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

namespace nb = nanobind;
using namespace nb::literals;

namespace foreword {
namespace {

nb::dict features() {
  nb::dict all;
  for (const Feature& feature : cpu_features()) all[nb::cast(feature.name)] = feature.usable;
  return all;
}

nb::list builds() {
  nb::list all;
  for (const KernelBuild& build : kernel_builds()) all.append(nb::make_tuple(build.kernels->isa, build.missing));
  return all;
}

void check(unsigned threads, double seconds) {
  if (threads == 0 || !(seconds > 0)) throw std::invalid_argument("a probe needs a thread and time");
}

nb::list arithmetic_rates(unsigned threads, double seconds) {
  check(threads, seconds);
  nb::list rates;
  for (const ArithmeticProbe& probe : arithmetic_probes()) {
    double rate;
    {
      nb::gil_scoped_release unlocked;
      rate = arithmetic_rate(probe, threads, seconds);
    }
    const char* name = probe.arithmetic == Arithmetic::kInt8Dot ? "int8" : "float32";
    rates.append(nb::make_tuple(name, probe.isa, rate));
  }
  return rates;
}

double read_rate(ReadProbe& self, unsigned threads, double seconds) {
  check(threads, seconds);
  nb::gil_scoped_release unlocked;
  return self.rate(threads, seconds);
}

}  // namespace

void bind_machine(nb::module_& m) {
  m.def("cpu_features", features);
  m.def("kernel_builds", builds);
  m.def("arithmetic_rates", arithmetic_rates, "threads"_a, "seconds"_a);
  nb::class_<ReadProbe>(m, "ReadProbe").def(nb::init<size_t>(), "num_bytes"_a).def("rate", read_rate, "threads"_a, "seconds"_a);
}

}  // namespace foreword
