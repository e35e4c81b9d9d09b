// The plant: a cart that balances a pole (Barto, Sutton and Anderson, 1983; the numbers of Gymnasium's CartPole-v1).
#pragma once

#include <array>
#include <cmath>
#include <random>

class CartPole {
 public:
  using State = std::array<float, 4>;  // place, speed, angle, turning

  explicit CartPole(unsigned seed) : random_(seed) { reset(); }

  const State& reset() {
    std::uniform_real_distribution<float> small(-0.05f, 0.05f);
    for (auto& number : state_) number = small(random_);
    steps_ = 0;
    return state_;
  }

  // Push to the right (1) or to the left (0) for a fiftieth of a second.
  const State& push(int right) {
    auto& [place, speed, angle, turning] = state_;
    const float force = right == 1 ? 10.0f : -10.0f;
    const float sine = std::sin(angle), cosine = std::cos(angle);
    const float pull = (force + kPoleMoment * turning * turning * sine) / kMass;
    const float bend = (9.8f * sine - cosine * pull) / (kHalfLength * (4.0f / 3.0f - kPole * cosine * cosine / kMass));
    const float push = pull - kPoleMoment * bend * cosine / kMass;
    place += kTick * speed;
    speed += kTick * push;
    angle += kTick * turning;
    turning += kTick * bend;
    ++steps_;
    return state_;
  }

  bool fallen() const { return std::abs(state_[0]) > 2.4f || std::abs(state_[2]) > 0.2095f; }
  bool time_is_up() const { return steps_ >= 500; }

 private:
  static constexpr float kPole = 0.1f, kMass = 1.1f, kHalfLength = 0.5f, kPoleMoment = kPole * kHalfLength, kTick = 0.02f;
  State state_{};
  int steps_ = 0;
  std::mt19937 random_;
};
