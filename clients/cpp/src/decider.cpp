#include "decider.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace penstock {

Decider::Decider(const Description& description, const Tensors& tensors, Version version, double epsilon)
    : description_(description), network_(description, tensors), version_(version), epsilon_(epsilon) {}

void Decider::prepare(Desk& desk) const {
  network_.prepare(desk.scratch);
  desk.outputs.resize(description_.width());
  desk.weights.resize(description_.choices());
}

bool Decider::decide(const float* observation, const std::uint8_t* mask, Desk& desk, Chosen action,
                     float& log_prob) const {
  network_.outputs(&observation, desk.outputs.data(), desk.scratch);
  float sum = 0.0f;
  for (const float number : desk.outputs) sum += number;
  // the sum of finite numbers may overflow, so only a suspicion is looked into
  if (!std::isfinite(sum) &&
      !std::all_of(desk.outputs.begin(), desk.outputs.end(), [](float number) { return std::isfinite(number); }))
    return false;
  log_prob = sample(description_, desk.outputs.data(), mask, epsilon_, desk.random, desk.weights, action);
  return std::isfinite(log_prob);
}

double Decider::trial() const {
  Desk desk;
  prepare(desk);
  const std::vector<float> observation(description_.columns[0].size());
  std::vector<std::int32_t> choices(description_.parts());
  std::vector<float> box(description_.parts());
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const auto started = std::chrono::steady_clock::now();
    float log_prob = 0.0f;
    decide(observation.data(), nullptr, desk, {choices.data(), box.data()}, log_prob);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  }
  return best;
}

}  // namespace penstock
