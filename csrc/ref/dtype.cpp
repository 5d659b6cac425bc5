#include "foreword/dtype.h"

namespace foreword {

const DTypeInfo* dtype_info(uint32_t) { return nullptr; }

}  // namespace foreword
