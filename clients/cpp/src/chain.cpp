#include "chain.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace penstock {
namespace {

constexpr int kLateInARow = 8;
constexpr auto kRest = std::chrono::seconds(1);

}  // namespace

int Chain::decide(Rows& rows, std::size_t row, std::vector<float>& acted) {
  if (off_.load(std::memory_order_relaxed) != 0) return by_fallback(rows, row, acted);
  if (swap_.generation() != picked_up_) {
    picked_up_ = swap_.generation();
    deciders_ = swap_.pick_up();
    deciders_->newest->prepare(desk_);
  }
  const bool resting = resting_until_ != Clock::time_point{} && Clock::now() < resting_until_;
  if (!resting) {
    if (configuration_.remote ? by_gateway(rows, row) : deciders_ && by(*deciders_->newest, rows, row))
      return done(rows, row, acted);
  }
  if (deciders_ && by_previous(rows, row)) {
    counters_.fell_back(FellBack::previous);
    return done(rows, row, acted);
  }
  return by_fallback(rows, row, acted);
}

bool Chain::by(const Decider& decider, Rows& rows, std::size_t row) {
  const Chosen action{layout_->discrete ? &rows.choices[row] : nullptr, rows.box_of(row)};
  if (!decider.decide(rows.observation(row), rows.mask(row), desk_, action, rows.log_probs[row])) {
    counters_.trouble("policy", "version " + decider.version().text() + " gave numbers that are not finite");
    return false;
  }
  rows.decided_by(decider.version());
  return true;
}

bool Chain::by_previous(Rows& rows, std::size_t row) {
  if (!deciders_->before) return false;
  deciders_->before->prepare(desk_);
  const bool decided = by(*deciders_->before, rows, row);
  deciders_->newest->prepare(desk_);
  return decided;
}

bool Chain::by_gateway(Rows& rows, std::size_t row) {
  if (Clock::now() < gateway_rests_until_) return false;
  if (ask_gateway(rows, row)) {
    gateway_rest_ = kFirstRest;
    return true;
  }
  gateway_rests_until_ = Clock::now() + gateway_rest_;
  gateway_rest_ = std::min(2 * gateway_rest_, kLongestRest);
  return false;
}

bool Chain::ask_gateway(Rows& rows, std::size_t row) {
  v1::ActRequest request;
  request.set_policy(configuration_.policy);
  (*request.mutable_observations())["observations"].assign(reinterpret_cast<const char*>(rows.observation(row)),
                                                           layout_->size * sizeof(float));
  if (layout_->masked) request.set_mask(rows.mask(row), layout_->choices);
  v1::ActReply reply;
  const Answer answer = gateway_.act(request, reply, configuration_.deadline_seconds);
  void* to = layout_->discrete ? static_cast<void*>(&rows.choices[row]) : rows.box_of(row);
  const std::size_t size = 4 * (layout_->discrete ? 1 : layout_->choices);
  bool sound = answer.kind == Answer::ok && reply.action().size() == size && std::isfinite(reply.log_prob());
  if (sound) {
    std::memcpy(to, reply.action().data(), size);
    if (layout_->discrete)
      sound = rows.choices[row] >= 0 && static_cast<std::size_t>(rows.choices[row]) < layout_->choices;
    else
      sound = std::all_of(rows.box_of(row), rows.box_of(row) + layout_->choices,
                          [](float number) { return std::isfinite(number); });
  }
  if (!sound) {
    counters_.trouble("remote", answer.kind == Answer::ok ? "the gateway answered with no action of this policy" : answer.text);
    return false;
  }
  rows.log_probs[row] = reply.log_prob();
  rows.decided_by({reply.version().epoch(), reply.version().step()});
  return true;
}

int Chain::by_fallback(Rows& rows, std::size_t row, std::vector<float>& acted) {
  const auto& chosen = fallback_.decide(rows.observation(row), rows.mask(row));
  rows.foreign[row] = 1;
  rows.log_probs[row] = 0.0f;
  if (layout_->discrete) return rows.choices[row] = static_cast<std::int32_t>(chosen[0]);
  std::copy(chosen.begin(), chosen.end(), rows.box_of(row));
  acted = chosen;
  return 0;
}

// What is acted: the recorded action, a Box cut at its bounds.
int Chain::done(const Rows& rows, std::size_t row, std::vector<float>& acted) const {
  if (layout_->discrete) return rows.choices[row];
  const float* raw = &rows.box[row * layout_->choices];
  const float limit = configuration_.shape ? configuration_.shape->limit : std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < layout_->choices; ++i)
    acted[i] = deciders_ ? std::clamp(raw[i], deciders_->newest->description().low[i],
                                      deciders_->newest->description().high[i])
                         : std::clamp(raw[i], -limit, limit);
  return 0;
}

// One late decision is the machine's; many in a row are the policy's, which then rests.
void Chain::was_late() {
  counters_.was_late();
  if (++late_in_a_row_ < kLateInARow) return;
  late_in_a_row_ = 0;
  resting_until_ = Clock::now() + kRest;
  counters_.trouble("late", std::to_string(kLateInARow) + " decisions in a row took longer than deadline_ms");
}

}  // namespace penstock
