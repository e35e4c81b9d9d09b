// Trajectories and actions as the application holds them.
#include <cmath>

#include "figures.hpp"
#include "penstock/agent.hpp"
#include "rows.hpp"

namespace penstock {
namespace {

constexpr double kLargestReward = 1e9;  // what a gateway takes, either way

}  // namespace

Trajectory::Trajectory(std::unique_ptr<Rows> rows, std::shared_ptr<Counters> counters)
    : rows_(std::move(rows)), counters_(std::move(counters)) {
  if (!rows_->layout->discrete) acted_.resize(rows_->layout->choices);
}

Trajectory::~Trajectory() {
  if (rows_ && length_ > 0) counters_->drop(ended_ ? "no_reward" : "not_ended");
}

View<float> Action::values() const { return trajectory().acted_; }

Trajectory& Action::trajectory() const {
  if (!trajectory_) throw UsageError("this action was not asked for; request_for_action gives one");
  return *trajectory_;
}

std::unique_lock<std::mutex> Action::hold() const {
  Trajectory& mine = trajectory();
  return mine.ended_ ? std::unique_lock<std::mutex>(mine.saying_) : std::unique_lock<std::mutex>();
}

bool Action::owns(const Rows& rows) const { return rows.requests[row_] == request_; }

const Rows* Action::readable() const {
  const Rows* rows = trajectory().rows_.get();
  if (rows != nullptr && !owns(*rows))
    throw UsageError("this action was not added before the next request, so its step is forgotten");
  return rows;
}

Rows& Action::rows(const char* what) const {
  if (readable() == nullptr)
    throw UsageError(std::string("this ") + what + " came too late: its trajectory has ended and is on its way");
  return *trajectory_->rows_;
}

void Action::update_reward(double reward) {
  if (!(std::abs(reward) <= kLargestReward))
    throw UsageError("a reward must be a number within ±1e+09, not " + std::to_string(reward));
  const auto held = hold();
  rows("reward").rewards[row_] = static_cast<float>(reward);
}

std::optional<float> Action::reward() const {
  const auto held = hold();
  const Rows* rows = readable();
  if (rows == nullptr || std::isnan(rows->rewards[row_])) return std::nullopt;
  return rows->rewards[row_];
}

void Action::did(int choice) {
  const float number = static_cast<float>(choice);
  did(View<float>(&number, 1));
}

void Action::did(View<float> values) {
  const auto held = hold();
  Rows& rows = this->rows("action");
  rows.layout->check_action(values);
  if (rows.layout->discrete)
    rows.choices[row_] = static_cast<std::int32_t>(values[0]);
  else
    std::copy(values.begin(), values.end(), rows.box_of(row_));
  rows.foreign[row_] = 1;
  told_ = true;
}

bool Action::foreign() const {
  const auto held = hold();
  const Rows* rows = readable();
  return rows != nullptr && rows->foreign[row_] != 0;
}

}  // namespace penstock
