#include "tensors.hpp"

#include <openssl/evp.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "penstock/errors.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kMaxHeader = 1u << 20;

struct Kind {
  const char* numpy;
  std::size_t bytes;
};

Kind kind_of(const std::string& name) {
  static const std::map<std::string, Kind> kinds = {{"F32", {"<f4", 4}}, {"F64", {"<f8", 8}}, {"I32", {"<i4", 4}},
                                                    {"I64", {"<i8", 8}}, {"U8", {"|u1", 1}},  {"BOOL", {"|b1", 1}}};
  const auto found = kinds.find(name);
  if (found == kinds.end()) throw Damaged("these are not safetensors: unknown type " + name);
  return found->second;
}

void append_int64(std::string& text, std::int64_t number) {
  for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i)));
}

Tensor tensor_of(std::string_view data, const std::string& name, const nlohmann::json& facts) {
  const Kind kind = kind_of(facts.at("dtype").get<std::string>());
  Tensor result{kind.numpy, facts.at("shape").get<std::vector<std::int64_t>>(), {}};
  const auto& offsets = facts.at("data_offsets");
  const auto begin = offsets.at(0).get<std::uint64_t>();
  const auto end = offsets.at(1).get<std::uint64_t>();
  if (begin > end || end > data.size()) throw Damaged("the tensor " + name + " lies outside its file");
  std::uint64_t wanted = kind.bytes;
  for (const auto size : result.shape) {
    if (size < 0) throw Damaged("the tensor " + name + " lies outside its file");
    // the file backs every tensor, so a product beyond its size is wrong before it can overflow
    if (size > 0 && wanted > data.size() / static_cast<std::uint64_t>(size) + kind.bytes)
      throw Damaged("the tensor " + name + " is larger than its file");
    wanted *= static_cast<std::uint64_t>(size);
  }
  if (end - begin != wanted) throw Damaged("the tensor " + name + " has other bytes than its shape says");
  result.bytes.assign(data.begin() + static_cast<std::ptrdiff_t>(begin), data.begin() + static_cast<std::ptrdiff_t>(end));
  return result;
}

}  // namespace

std::size_t Tensor::count() const {
  std::size_t product = 1;
  for (const auto size : shape) product *= static_cast<std::size_t>(size);
  return product;
}

std::vector<float> Tensor::floats() const {
  if (!is_float32()) throw Damaged("a tensor is " + dtype + " where float32 is needed");
  std::vector<float> result(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

Safetensors read_safetensors(std::string_view content) {
  if (content.size() < 8) throw Damaged("these are not safetensors: too short");
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(content[static_cast<std::size_t>(i)]);
  if (length > kMaxHeader || length > content.size() - 8)
    throw Damaged("a safetensors header claims " + std::to_string(length) + " bytes");
  try {
    const auto header = nlohmann::json::parse(content.substr(8, length));
    if (!header.is_object()) throw Damaged("these are not safetensors: the header is not an object");
    Safetensors result;
    for (const auto& [name, facts] : header.items()) {
      if (name == "__metadata__")
        result.metadata = facts.get<std::map<std::string, std::string>>();
      else
        result.tensors.emplace(name, tensor_of(content.substr(8 + length), name, facts));
    }
    return result;
  } catch (const nlohmann::json::exception& error) {
    throw Damaged(std::string("these are not safetensors: ") + error.what());
  }
}

std::string weights_sha256(const Tensors& tensors) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
  for (const auto& [name, tensor] : tensors) {
    std::string head = name;
    head.push_back('\0');
    head += tensor.dtype;
    append_int64(head, static_cast<std::int64_t>(tensor.shape.size()));
    for (const auto size : tensor.shape) append_int64(head, size);
    EVP_DigestUpdate(digest.get(), head.data(), head.size());
    EVP_DigestUpdate(digest.get(), tensor.bytes.data(), tensor.bytes.size());
  }
  unsigned char raw[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(digest.get(), raw, &size);
  static const char* digits = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text.push_back(digits[raw[i] >> 4]);
    text.push_back(digits[raw[i] & 15]);
  }
  return text;
}

bool all_finite(const Tensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_float32()) continue;
    for (const float number : tensor.floats())
      if (!std::isfinite(number)) return false;
  }
  return true;
}

}  // namespace penstock
