#include "delta.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "penstock/errors.hpp"
#include "served.hpp"

namespace penstock {
namespace {

struct RecordedDelta {
  Tensors base, target;
  std::string delta, base_sha256, target_sha256;

  RecordedDelta() {
    std::ifstream file(std::string(VECTORS) + "/delta.safetensors", std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto read = read_safetensors(content);
    for (const auto& [name, tensor] : read.tensors) {
      if (name.rfind("base/", 0) == 0) base[name.substr(5)] = tensor;
      if (name.rfind("target/", 0) == 0) target[name.substr(7)] = tensor;
    }
    const auto& bytes = read.tensors.at("delta").bytes;
    delta.assign(bytes.begin(), bytes.end());
    base_sha256 = read.metadata.at("base_sha256");
    target_sha256 = read.metadata.at("target_sha256");
  }
};

TEST(Delta, OfPythonGivesBackEveryBit) {
  const RecordedDelta recorded;
  EXPECT_EQ(weights_sha256(recorded.base), recorded.base_sha256);
  const Tensors found = apply_delta(recorded.base, recorded.delta);
  EXPECT_EQ(weights_sha256(found), recorded.target_sha256);
  for (const auto& [name, tensor] : recorded.target) EXPECT_EQ(found.at(name).bytes, tensor.bytes) << name;
}

std::vector<std::uint32_t> bits_of(const Tensor& tensor) {
  std::vector<std::uint32_t> bits(tensor.bytes.size() / 4);
  std::memcpy(bits.data(), tensor.bytes.data(), tensor.bytes.size());
  return bits;
}

// As tests/unit/test_delta.py has it for Python.
TEST(Delta, LiesInTheOrderOfTheExponentsItChanges) {
  const Tensors base = {{"a", tensor_of({3}, {4.0f, 0.5f, 4.5f})}, {"b", tensor_of({1}, {0.75f})}};
  // by hand: 0.5 and 0.75 (exponent 126) come before 4.0 and 4.5 (129); folding doubles. Only the last plane is not zero
  const std::string planes = std::string(12, '\0') + std::string({2 * 2, 2 * 4, 2 * 1, 2 * 3});
  const Tensors found = apply_delta(base, squeezed(planes));
  EXPECT_EQ(bits_of(found.at("a")), (std::vector<std::uint32_t>{0x40800000 + 1, 0x3F000000 + 2, 0x40900000 + 3}));
  EXPECT_EQ(bits_of(found.at("b")), std::vector<std::uint32_t>{0x3F400000 + 4});
}

TEST(Delta, OfOneStepGivesTheNextNumberWhateverTheSign) {
  const Tensors base = {{"a", tensor_of({4}, {1.0f, -1.0f, 0.0f, -0.0f})}};
  // by hand, in the order of the exponents: 0 and -0 (0), then 1 and -1 (127). +1 folds to 2, -1 to 1
  const std::string planes = std::string(12, '\0') + std::string({2, 1, 2, 2});
  const Tensors found = apply_delta(base, squeezed(planes));
  EXPECT_EQ(bits_of(found.at("a")),
            (std::vector<std::uint32_t>{0x3F800000 + 1, 0xBF800000 - 1, 0x00000001, 0x80000001}));
}

TEST(Delta, ThatIsDamagedIsRefused) {
  const RecordedDelta recorded;
  const auto& delta = recorded.delta;
  std::size_t numbers = 0;
  for (const auto& [name, tensor] : recorded.base) numbers += tensor.bytes.size();
  for (const std::string& broken :
       {std::string(), std::string("garbage"), delta.substr(0, delta.size() - 1), delta + "x",
        squeezed(std::string(numbers - 1, '\0')), squeezed(std::string(numbers + 1, '\0')),
        squeezed(std::string(1 << 24, '\0'))})
    EXPECT_THROW(apply_delta(recorded.base, broken), Damaged) << broken.size();
}

TEST(Delta, NeedsFloat32) {
  EXPECT_THROW(apply_delta({{"a", {"<f8", {1}, std::vector<unsigned char>(8)}}}, squeezed(std::string(8, '\0'))), Damaged);
}

TEST(Inflate, GivesExactlyWhatWasAnnounced) {
  EXPECT_EQ(inflate_exactly(squeezed("water"), 5), "water");
  EXPECT_THROW(inflate_exactly(squeezed("water"), 4), Damaged);
  EXPECT_THROW(inflate_exactly(squeezed("water"), 6), Damaged);
}

}  // namespace
}  // namespace penstock
