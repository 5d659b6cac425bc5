// The Python module `foreword._core`. Each part of the core binds itself in a file of its own.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_core, m) { m.doc() = "foreword's C++ core"; }
