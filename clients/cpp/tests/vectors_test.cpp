// The numbers of Python's policies, for every body and head: clients/cpp/tests/vectors.py wrote them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "description.hpp"
#include "heads.hpp"
#include "network.hpp"
#include "tensors.hpp"

namespace penstock {
namespace {

constexpr float kClose = 1e-5f;

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(VECTORS))
    if (file.path().stem() != "delta") names.push_back(file.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

struct Recorded {
  Description description;
  Tensors all, policy;
  std::string sha256;

  explicit Recorded(const std::string& name) {
    std::ifstream file(std::string(VECTORS) + "/" + name + ".safetensors", std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    auto read = read_safetensors(content);
    all = std::move(read.tensors);
    description = description_of(read.metadata.at("description"));
    sha256 = read.metadata.at("weights_sha256");
    for (const auto& [key, tensor] : all)
      if (key.rfind("policy/", 0) == 0 || key.rfind("normalizer/", 0) == 0) policy.emplace(key, tensor);
  }

  std::vector<float> numbers(const std::string& name) const {
    const Tensor& tensor = all.at(name);
    if (tensor.is_float32()) return tensor.floats();
    if (tensor.dtype == "|u1") return {tensor.bytes.begin(), tensor.bytes.end()};
    std::vector<float> result;
    for (std::size_t i = 0; i < tensor.bytes.size(); i += 4) {
      std::int32_t number;
      std::copy_n(&tensor.bytes[i], 4, reinterpret_cast<unsigned char*>(&number));
      result.push_back(static_cast<float>(number));
    }
    return result;
  }
  std::size_t rows() const { return static_cast<std::size_t>(all.at("actions").shape[0]); }
};

class Vectors : public testing::TestWithParam<std::string> {};

TEST_P(Vectors, OutputsEqualPythons) {
  const Recorded recorded(GetParam());
  const Network network(recorded.description, recorded.policy);
  Scratch scratch;
  network.prepare(scratch);
  std::vector<std::vector<float>> columns;
  for (const auto& column : recorded.description.columns) columns.push_back(recorded.numbers("seen/" + column.name));
  const auto expected = recorded.numbers("expected/outputs");
  std::vector<float> outputs(recorded.description.width());
  for (std::size_t row = 0; row < recorded.rows(); ++row) {
    std::vector<const float*> at;
    for (std::size_t i = 0; i < columns.size(); ++i)
      at.push_back(columns[i].data() + row * recorded.description.columns[i].size());
    network.outputs(at.data(), outputs.data(), scratch);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      // means, log deviations and Q-values; logits of any size count as probabilities, below
      EXPECT_NEAR(outputs[i], expected[row * outputs.size() + i],
                  kClose * std::max(1.0f, std::abs(expected[row * outputs.size() + i])));
  }
}

TEST_P(Vectors, ProbabilitiesOfTheWholeWayEqualPythons) {
  const Recorded recorded(GetParam());
  const Description& description = recorded.description;
  if (description.box()) return;
  const Network network(description, recorded.policy);
  Scratch scratch;
  network.prepare(scratch);
  const auto expected = recorded.numbers("expected/probabilities");
  const auto& masks = recorded.all.at("masks").bytes;
  const std::size_t width = description.choices();
  std::vector<float> outputs(width), found(width);
  for (std::size_t row = 0; row < recorded.rows(); ++row) {
    std::vector<std::vector<float>> kept;
    std::vector<const float*> at;
    for (const auto& column : description.columns) {
      kept.push_back(recorded.numbers("seen/" + column.name));
      at.push_back(kept.back().data() + row * column.size());
    }
    network.outputs(at.data(), outputs.data(), scratch);
    probabilities(description, outputs.data(), &masks[row * width], found.data());
    for (std::size_t i = 0; i < width; ++i) {
      EXPECT_NEAR(found[i], expected[row * width + i], kClose);
      if (!masks[row * width + i]) {
        EXPECT_EQ(found[i], 0.0f);
      }
    }
  }
}

TEST_P(Vectors, LogProbabilitiesAndBestActionsEqualPythons) {
  const Recorded recorded(GetParam());
  const Description& description = recorded.description;
  const auto outputs = recorded.numbers("expected/outputs");
  const auto log_probs = recorded.numbers("expected/log_probs");
  const auto best = recorded.numbers("expected/greedy");
  const auto actions = recorded.numbers("actions");
  const std::size_t parts = description.parts();
  for (std::size_t row = 0; row < recorded.rows(); ++row) {
    const float* out = &outputs[row * description.width()];
    const std::uint8_t* mask =
        description.box() ? nullptr : &recorded.all.at("masks").bytes[row * description.choices()];
    std::vector<float> box(actions.begin() + static_cast<long>(row * parts),
                           actions.begin() + static_cast<long>((row + 1) * parts));
    std::vector<std::int32_t> choices(box.begin(), box.end());
    const float expected = log_probs[row];
    EXPECT_NEAR(log_prob(description, out, mask, {choices.data(), box.data()}), expected,
                kClose * std::max(1.0f, std::abs(expected)));
    greedy(description, out, mask, {choices.data(), box.data()});
    for (std::size_t i = 0; i < parts; ++i) {
      const float found = description.box() ? box[i] : static_cast<float>(choices[i]);
      EXPECT_NEAR(found, best[row * parts + i], kClose);
    }
  }
}

TEST_P(Vectors, HashEqualsPythons) {
  const Recorded recorded(GetParam());
  EXPECT_EQ(weights_sha256(recorded.policy), recorded.sha256);
}

TEST_P(Vectors, ATensorThatIsMissingIsSeen) {
  const Recorded recorded(GetParam());
  for (const auto& [name, tensor] : recorded.policy) {
    Tensors fewer = recorded.policy;
    fewer.erase(name);
    EXPECT_THROW(Network(recorded.description, fewer), std::exception) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Vectors, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Vectors, AreThere) { EXPECT_GE(cases().size(), 24u); }

}  // namespace
}  // namespace penstock
