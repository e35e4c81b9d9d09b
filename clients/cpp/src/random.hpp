// Noise of one agent: xoshiro256++ (Blackman and Vigna, 2019), a few nanoseconds a number.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <random>

namespace penstock {

class Random {
 public:
  // Agents that share a policy must not share noise, so the seed is the machine's and not the run's.
  Random() {
    std::random_device device;
    seed(static_cast<std::uint64_t>(device()) << 32 | device());
  }
  explicit Random(std::uint64_t number) { seed(number); }

  std::uint64_t bits() {
    const std::uint64_t result = turned(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = turned(state_[3], 45);
    return result;
  }

  // In [0, 1).
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1.0p-24f; }

  // In 0 … count − 1, all alike (the bias of a 64-bit product is below 1e-9 for any action space).
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>((bits() >> 32) * static_cast<std::uint64_t>(count) >> 32);
  }

  // Standard normal (Box and Muller, 1958).
  float normal() {
    if (spare_) {
      spare_ = false;
      return kept_;
    }
    const double radius = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(uniform())));
    const double angle = 6.283185307179586 * static_cast<double>(uniform());
    kept_ = static_cast<float>(radius * std::sin(angle));
    spare_ = true;
    return static_cast<float>(radius * std::cos(angle));
  }

 private:
  static std::uint64_t turned(std::uint64_t x, int by) { return x << by | x >> (64 - by); }

  void seed(std::uint64_t number) {
    for (auto& word : state_) {  // splitmix64
      std::uint64_t z = number += 0x9E3779B97F4A7C15u;
      z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
      z = (z ^ z >> 27) * 0x94D049BB133111EBu;
      word = z ^ z >> 31;
    }
  }

  std::array<std::uint64_t, 4> state_{};
  bool spare_ = false;
  float kept_ = 0.0f;
};

}  // namespace penstock
