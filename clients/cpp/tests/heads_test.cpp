// Sampling cannot be compared number by number (Python's noise is another); its distribution can.
#include "heads.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock {
namespace {

constexpr int kDraws = 200000;

Description choices(Head head, std::vector<std::size_t> sizes) {
  Description description;
  description.head = head;
  description.sizes = std::move(sizes);
  return description;
}

Description box(Head head) {
  Description description;
  description.head = head;
  description.low = {-2.0f, -1.0f};
  description.high = {2.0f, 3.0f};
  return description;
}

TEST(Sampling, FollowsTheProbabilitiesAndNeverTakesWhatIsMasked) {
  const Description description = choices(Head::categorical, {4});
  const float logits[] = {0.0f, 1.0f, 3.0f, -1.0f};
  const std::uint8_t mask[] = {1, 1, 0, 1};
  float expected[4];
  probabilities(description, logits, mask, expected);
  Random random(1);
  std::vector<float> room(4);
  int counts[4] = {};
  for (int i = 0; i < kDraws; ++i) {
    std::int32_t choice = -1;
    const float found = sample(description, logits, mask, 0.0, random, room, {&choice, nullptr});
    ASSERT_NEAR(found, std::log(expected[choice]), 1e-5f);
    ++counts[choice];
  }
  EXPECT_EQ(counts[2], 0);
  // five standard deviations of the rarest count are below 0.6 %
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(static_cast<float>(counts[i]) / kDraws, expected[i], 0.006f);
}

TEST(Sampling, PartsAreIndependent) {
  const Description description = choices(Head::multi_categorical, {3, 2});
  const float logits[] = {0.0f, 1.0f, -1.0f, 0.5f, -0.5f};
  float expected[5];
  probabilities(description, logits, nullptr, expected);
  Random random(2);
  std::vector<float> room(5);
  int both[3][2] = {};
  for (int i = 0; i < kDraws; ++i) {
    std::int32_t parts[2];
    const float found = sample(description, logits, nullptr, 0.0, random, room, {parts, nullptr});
    ASSERT_NEAR(found, log_prob(description, logits, nullptr, {parts, nullptr}), 1e-5f);
    ++both[parts[0]][parts[1]];
  }
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 2; ++b)
      EXPECT_NEAR(static_cast<float>(both[a][b]) / kDraws, expected[a] * expected[3 + b], 0.006f);
}

TEST(Sampling, EpsilonIsTheShareOfAnyAllowedAction) {
  const Description description = choices(Head::q, {4});
  const float values[] = {1.0f, 5.0f, 2.0f, 3.0f};
  const std::uint8_t mask[] = {1, 0, 1, 1};
  Random random(3);
  std::vector<float> room(4);
  int counts[4] = {};
  for (int i = 0; i < kDraws; ++i) {
    std::int32_t choice = -1;
    EXPECT_EQ(sample(description, values, mask, 0.3, random, room, {&choice, nullptr}), 0.0f);
    ++counts[choice];
  }
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(static_cast<float>(counts[0]) / kDraws, 0.1f, 0.006f);
  EXPECT_NEAR(static_cast<float>(counts[3]) / kDraws, 0.8f, 0.006f);
}

TEST(Sampling, GaussiansHaveTheirMeanAndDeviation) {
  const Description description = box(Head::gaussian);
  const float outputs[] = {0.5f, -1.0f, 0.0f, -1.0f};
  Random random(4);
  std::vector<float> room;
  double sum[2] = {}, squares[2] = {};
  for (int i = 0; i < kDraws; ++i) {
    float action[2];
    sample(description, outputs, nullptr, 0.0, random, room, {nullptr, action});
    for (int k = 0; k < 2; ++k) sum[k] += action[k], squares[k] += double(action[k]) * double(action[k]);
  }
  for (int k = 0; k < 2; ++k) {
    const double mean = sum[k] / kDraws;
    EXPECT_NEAR(mean, outputs[k], 0.015);
    EXPECT_NEAR(std::sqrt(squares[k] / kDraws - mean * mean), std::exp(outputs[2 + k]), 0.015);
  }
}

TEST(Sampling, SquashedActionsStayWithinTheirBounds) {
  const Description description = box(Head::squashed_gaussian);
  const float outputs[] = {3.0f, -3.0f, 2.0f, 2.0f};
  Random random(5);
  std::vector<float> room;
  for (int i = 0; i < 10000; ++i) {
    float action[2];
    ASSERT_TRUE(std::isfinite(sample(description, outputs, nullptr, 0.0, random, room, {nullptr, action})));
    for (std::size_t k = 0; k < 2; ++k) {
      ASSERT_GE(action[k], description.low[k]);
      ASSERT_LE(action[k], description.high[k]);
    }
  }
}

TEST(Random, TheSameSeedGivesTheSameNumbers) {
  Random one(9), two(9), other(10);
  EXPECT_EQ(one.bits(), two.bits());
  EXPECT_NE(one.bits(), other.bits());
}

}  // namespace
}  // namespace penstock
