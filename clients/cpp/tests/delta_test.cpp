#include "delta.hpp"

#include <gtest/gtest.h>

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
