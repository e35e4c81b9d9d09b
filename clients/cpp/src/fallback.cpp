#include "fallback.hpp"

#include <algorithm>

#include "penstock/errors.hpp"

namespace penstock {

Fallback::Fallback(std::shared_ptr<const Layout> layout, Heuristic heuristic, std::vector<float> safe,
                   Counters& counters)
    : layout_(std::move(layout)),
      heuristic_(std::move(heuristic)),
      safe_(safe.empty() ? std::vector<float>(layout_->discrete ? 1 : layout_->choices, 0.0f) : std::move(safe)),
      counters_(counters) {
  try {
    layout_->check_action(safe_);
  } catch (const UsageError& error) {
    throw ConfigError(std::string("fallback.action does not fit this policy: ") + error.what());
  }
}

const std::vector<float>& Fallback::decide(const float* observation, const std::uint8_t* mask) {
  if (heuristic_ && heuristic_decides(observation, mask)) {
    counters_.fell_back(FellBack::heuristic);
    return chosen_;
  }
  counters_.fell_back(FellBack::safe);
  chosen_ = safe_;
  if (mask != nullptr && mask[static_cast<std::size_t>(chosen_[0])] == 0)
    chosen_[0] = static_cast<float>(std::find_if(mask, mask + layout_->choices, [](auto flag) { return flag != 0; }) - mask);
  return chosen_;
}

bool Fallback::heuristic_decides(const float* observation, const std::uint8_t* mask) {
  try {
    chosen_ = heuristic_({observation, layout_->size}, {mask, mask == nullptr ? 0 : layout_->choices});
    layout_->check_action(chosen_);
    if (mask == nullptr || mask[static_cast<std::size_t>(chosen_[0])] != 0) return true;
    counters_.trouble("heuristic", "the heuristic chose a masked action");
  } catch (const std::exception& error) {
    counters_.trouble("heuristic", std::string("the heuristic failed: ") + error.what());
  } catch (...) {  // user code: anything may come out of it
    counters_.trouble("heuristic", "the heuristic failed");
  }
  return false;
}

}  // namespace penstock
