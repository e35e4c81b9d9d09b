#include "heads.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

constexpr float kLogTwoPi = 1.8378770664093453f;
constexpr float kLogTwo = 0.6931471805599453f;

bool allowed(const std::uint8_t* mask, std::size_t i) { return mask == nullptr || mask[i] != 0; }

// exp(logit − highest) of what is allowed, 0 of what is not.
struct Exponents {
  float highest = -std::numeric_limits<float>::infinity();
  float total = 0.0f;

  Exponents(const float* logits, const std::uint8_t* mask, std::size_t size, float* weights) {
    for (std::size_t i = 0; i < size; ++i)
      if (allowed(mask, i)) highest = std::max(highest, logits[i]);
    for (std::size_t i = 0; i < size; ++i) {
      weights[i] = allowed(mask, i) ? std::exp(logits[i] - highest) : 0.0f;
      total += weights[i];
    }
  }
};

std::int32_t best(const float* scores, const std::uint8_t* mask, std::size_t size) {
  std::size_t found = size;
  for (std::size_t i = 0; i < size; ++i)
    if (allowed(mask, i) && (found == size || scores[i] > scores[found])) found = i;
  return static_cast<std::int32_t>(found == size ? 0 : found);
}

// The inverse of the cumulative weights: the same distribution as Python's Gumbel noise, for one number.
std::int32_t drawn(const float* weights, std::size_t size, float point) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < size; ++i) {
    if (weights[i] <= 0.0f) continue;
    last = i;
    if (point < weights[i]) break;
    point -= weights[i];
  }
  return static_cast<std::int32_t>(last);
}

std::int32_t any_allowed(const std::uint8_t* mask, std::size_t size, Random& random) {
  std::size_t open = 0;
  for (std::size_t i = 0; i < size; ++i) open += allowed(mask, i) ? 1 : 0;
  std::size_t which = random.below(std::max<std::size_t>(open, 1));
  for (std::size_t i = 0; i < size; ++i)
    if (allowed(mask, i) && which-- == 0) return static_cast<std::int32_t>(i);
  return 0;
}

struct Scale {
  float centre, half;
};

Scale scale(const Description& description, std::size_t i) {
  return {(description.low[i] + description.high[i]) / 2, (description.high[i] - description.low[i]) / 2};
}

float box_log_prob(const Description& description, const float* outputs, const float* action) {
  const std::size_t size = description.low.size();
  float total = 0.0f;
  for (std::size_t i = 0; i < size; ++i) {
    const float mean = outputs[i], log_std = outputs[size + i];
    float raw = action[i];
    if (description.head == Head::squashed_gaussian) {
      const Scale to = scale(description, i);
      raw = std::atanh(std::clamp((raw - to.centre) / to.half, -1.0f + 1e-6f, 1.0f - 1e-6f));
      // log |da/du| of a = half · tanh(u) + centre: log(1 − tanh²u) = 2 (log 2 − u − softplus(−2u))
      const float x = -2 * raw;
      const float softplus = std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
      total -= 2 * (kLogTwo - raw - softplus) + std::log(to.half);
    }
    const float distance = (raw - mean) * std::exp(-log_std);
    total += -0.5f * distance * distance - log_std - 0.5f * kLogTwoPi;
  }
  return total;
}

float squashed(const Description& description, std::size_t i, float raw) {
  if (description.head != Head::squashed_gaussian) return raw;
  const Scale to = scale(description, i);
  return std::tanh(raw) * to.half + to.centre;
}

}  // namespace

void probabilities(const Description& description, const float* outputs, const std::uint8_t* mask, float* result) {
  for (const std::size_t size : description.sizes) {
    const Exponents exponents(outputs, mask, size, result);
    for (std::size_t i = 0; i < size; ++i) result[i] /= exponents.total;
    outputs += size, result += size;
    if (mask != nullptr) mask += size;
  }
}

float log_prob(const Description& description, const float* outputs, const std::uint8_t* mask, Chosen action) {
  if (description.head == Head::q) return 0.0f;
  if (description.box()) return box_log_prob(description, outputs, action.box);
  std::vector<float> weights(description.choices());
  float total = 0.0f;
  for (std::size_t part = 0; part < description.sizes.size(); ++part) {
    const std::size_t size = description.sizes[part];
    const Exponents exponents(outputs, mask, size, weights.data());
    total += outputs[action.choices[part]] - exponents.highest - std::log(exponents.total);
    outputs += size;
    if (mask != nullptr) mask += size;
  }
  return total;
}

void greedy(const Description& description, const float* outputs, const std::uint8_t* mask, Chosen action) {
  for (std::size_t i = 0; i < description.low.size(); ++i) action.box[i] = squashed(description, i, outputs[i]);
  for (std::size_t part = 0; part < description.sizes.size(); ++part) {
    const std::size_t size = description.sizes[part];
    action.choices[part] = best(outputs, mask, size);
    outputs += size;
    if (mask != nullptr) mask += size;
  }
}

float sample(const Description& description, const float* outputs, const std::uint8_t* mask, double epsilon,
             Random& random, std::vector<float>& weights, Chosen action) {
  if (description.head == Head::q) {
    const std::size_t size = description.sizes[0];
    const bool explore = static_cast<double>(random.uniform()) < epsilon;
    action.choices[0] = explore ? any_allowed(mask, size, random) : best(outputs, mask, size);
    return 0.0f;
  }
  if (description.box()) {
    const std::size_t size = description.low.size();
    for (std::size_t i = 0; i < size; ++i)
      action.box[i] = squashed(description, i, outputs[i] + std::exp(outputs[size + i]) * random.normal());
    return box_log_prob(description, outputs, action.box);
  }
  float total = 0.0f;
  for (std::size_t part = 0; part < description.sizes.size(); ++part) {
    const std::size_t size = description.sizes[part];
    const Exponents exponents(outputs, mask, size, weights.data());
    const std::int32_t choice = drawn(weights.data(), size, random.uniform() * exponents.total);
    action.choices[part] = choice;
    total += outputs[choice] - exponents.highest - std::log(exponents.total);
    outputs += size;
    if (mask != nullptr) mask += size;
  }
  return total;
}

}  // namespace penstock
