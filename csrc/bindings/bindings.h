// Each part of the core binds itself in a file of its own.
#pragma once

#include <nanobind/nanobind.h>

namespace foreword {

void bind_sampler(nanobind::module_& m);
void bind_weights(nanobind::module_& m);

}  // namespace foreword
