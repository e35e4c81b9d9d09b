// zlib with a cap, and deltas between versions; the same rules as src/penstock/model/delta.py.
#pragma once

#include <string>
#include <string_view>

#include "tensors.hpp"

namespace penstock {

// Exactly `size` bytes out of `squeezed`, which must end there; throws Damaged otherwise.
std::string inflate_exactly(std::string_view squeezed, std::size_t size);

// The tensors that `delta` turns `base` into, bit for bit; throws Damaged where it does not belong to them.
Tensors apply_delta(const Tensors& base, std::string_view delta);

}  // namespace penstock
