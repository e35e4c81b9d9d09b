#include "ended.hpp"

#include <cmath>

namespace penstock {

void Ended::add(const TrajectoryPtr& trajectory) {
  const std::lock_guard<std::mutex> guard(mutex_);
  held_.emplace_back(trajectory, Clock::now());
}

Ended::Taken Ended::take_paid(const Trajectory* only, double seconds) {
  const auto now = Clock::now();
  Taken taken;
  const std::lock_guard<std::mutex> guard(mutex_);
  std::vector<Held> rest;
  for (auto& held : held_) {
    const bool asked_for = only == nullptr || held.first.get() == only;
    const bool ripe = std::chrono::duration<double>(now - held.second).count() >= seconds;
    auto rows = asked_for && ripe ? take(*held.first, false) : nullptr;
    if (rows)
      taken.push_back(std::move(rows));
    else
      rest.push_back(std::move(held));
  }
  held_ = std::move(rest);
  return taken;
}

std::size_t Ended::drop(const Trajectory* only) {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::vector<Held> rest;
  for (auto& held : held_) {
    if (only == nullptr || held.first.get() == only)
      take(*held.first, true);
    else
      rest.push_back(std::move(held));
  }
  const std::size_t dropped = held_.size() - rest.size();
  held_ = std::move(rest);
  return dropped;
}

// Its rows, after which nothing more can be said about it; none where its last reward has not come.
std::unique_ptr<Rows> Ended::take(Trajectory& trajectory, bool also_unpaid) {
  const std::lock_guard<std::mutex> saying(trajectory.saying_);
  if (!also_unpaid && std::isnan(trajectory.rows_->rewards[trajectory.length_ - 1])) return nullptr;
  trajectory.rows_->length = trajectory.length_;
  return std::move(trajectory.rows_);
}

Waiting Ended::waiting() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  Waiting total;
  for (const auto& held : held_) {
    ++total.trajectories;
    total.bytes += held.first->length_ * held.first->rows_->layout->row_bytes();
  }
  return total;
}

}  // namespace penstock
