// From network outputs to actions and their probabilities: the same as src/penstock/policy/heads.py.
#pragma once

#include <cstdint>
#include <vector>

#include "description.hpp"
#include "random.hpp"

namespace penstock {

// Where one action goes: choices counted from 0, or entries of a Box before clipping.
struct Chosen {
  std::int32_t* choices;
  float* box;
};

// `mask` has Description::choices() entries, or is nullptr where everything is allowed.

// Softmax of each part side by side; what is masked is exactly 0. For choices only.
void probabilities(const Description& description, const float* outputs, const std::uint8_t* mask, float* result);

// Log-probability (density, for a Box) of an action; 0 for q, whose policy is greedy.
float log_prob(const Description& description, const float* outputs, const std::uint8_t* mask, Chosen action);

// The best allowed logit or Q-value, or the mean.
void greedy(const Description& description, const float* outputs, const std::uint8_t* mask, Chosen action);

// An action of the policy and its log-probability. `weights` is room for Description::choices() numbers.
float sample(const Description& description, const float* outputs, const std::uint8_t* mask, double epsilon,
             Random& random, std::vector<float>& weights, Chosen action);

}  // namespace penstock
