// Named tensors and their bytes; the same rules as src/penstock/model/tensors.py.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct Tensor {
  std::string dtype;  // as NumPy writes it: "<f4", "|u1"
  std::vector<std::int64_t> shape;
  std::vector<unsigned char> bytes;

  std::size_t count() const;
  bool is_float32() const { return dtype == "<f4"; }
  // The numbers of a float32 tensor; throws Damaged for others.
  std::vector<float> floats() const;
};

// Sorted by name, as the hash and deltas need it.
using Tensors = std::map<std::string, Tensor>;

struct Safetensors {
  Tensors tensors;
  std::map<std::string, std::string> metadata;
};

// Throws Damaged where the bytes do not hold together. Nothing is allocated that the bytes do not back.
Safetensors read_safetensors(std::string_view content);

// Hash of the sorted tensors (name, type, shape, bytes) and nothing else.
std::string weights_sha256(const Tensors& tensors);

bool all_finite(const Tensors& tensors);

}  // namespace penstock
