// Trajectories that have ended, while their last reward may still be said: until the next request, or for a while.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "figures.hpp"
#include "penstock/agent.hpp"
#include "rows.hpp"

namespace penstock {

// The application adds and takes; the sender takes what nobody came for.
class Ended {
 public:
  using Taken = std::vector<std::unique_ptr<Rows>>;

  void add(const TrajectoryPtr& trajectory);
  // Those (or `only` that one) whose last reward has come and that ended `seconds` ago.
  Taken take_paid(const Trajectory* only = nullptr, double seconds = 0.0);
  // Let go of the rest of those; how many.
  std::size_t drop(const Trajectory* only = nullptr);
  Waiting waiting() const;

 private:
  using Held = std::pair<TrajectoryPtr, Clock::time_point>;

  static std::unique_ptr<Rows> take(Trajectory& trajectory, bool also_unpaid);

  mutable std::mutex mutex_;
  std::vector<Held> held_;
};

}  // namespace penstock
