// What is done when no policy can decide: the user's heuristic, else the safe action. Each is counted.
#pragma once

#include <memory>
#include <vector>

#include "figures.hpp"
#include "layout.hpp"
#include "penstock/agent.hpp"

namespace penstock {

// Never throws once made: whatever the heuristic does, there is an action.
class Fallback {
 public:
  // Throws ConfigError where the safe action does not fit the policy.
  Fallback(std::shared_ptr<const Layout> layout, Heuristic heuristic, std::vector<float> safe, Counters& counters);

  // The numbers of the action, or its choice as one number.
  const std::vector<float>& decide(const float* observation, const std::uint8_t* mask);

 private:
  bool heuristic_decides(const float* observation, const std::uint8_t* mask);

  std::shared_ptr<const Layout> layout_;
  Heuristic heuristic_;
  std::vector<float> safe_;
  Counters& counters_;
  std::vector<float> chosen_;
};

}  // namespace penstock
