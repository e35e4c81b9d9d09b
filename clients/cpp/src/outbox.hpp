// The way out: ended trajectories, in order, from memory or spool to the gateway.
//
// Memory first: in ordinary times nothing touches the disk. While the gateway is away, is full, or the process ends,
// what waits goes to the spool. Order holds per source, also through the spool.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "figures.hpp"
#include "gateway.hpp"
#include "penstock/configuration.hpp"
#include "rows.hpp"
#include "spool.hpp"

namespace penstock {

// `put`, `room` and `waiting` may be called by any thread; everything else belongs to the sender's.
class Outbox {
 public:
  Outbox(const Configuration& configuration, Counters& counters);

  // Take an ended trajectory; return whether there is enough to send.
  bool put(std::unique_ptr<Rows> rows);
  // Memory of a trajectory that was sent, to be used again; or none.
  std::unique_ptr<Rows> room();
  Waiting waiting() const;

  // Whether something should be packed or sent now.
  bool due();
  // Turn what has ended by now into numbered messages; where they become too many for memory they go to the spool.
  void pack_all();
  // Move what is packed to the spool.
  void store();
  // Take over what dead processes left.
  void adopt();
  // Deliver all that waits, oldest first. `pause`: seconds to wait where the gateway is full, else 0.
  // Where the answer is not ok nothing is lost and the next call goes on.
  Answer send(Gateway& gateway, Reporter& reporter, Clock::time_point until, double& pause);
  void close();

  void set_max_bytes(std::size_t bytes) { max_bytes_.store(bytes); }
  // Who learns the policy now; each message says so, because it may reach the gateway when that run is gone.
  void set_run(const std::string& run);
  std::string run_now() const;

 private:
  Answer deliver(Gateway& gateway, Reporter& reporter, const std::string& source, std::vector<Numbered>& batch,
                 Clock::time_point until, double& pause);
  std::vector<Numbered> next_batch(std::size_t max_bytes) const;
  std::vector<Numbered> stored_batch();
  std::unique_ptr<Rows> next_ended();
  void count_stored();
  void count_ready();

  const Configuration& configuration_;
  Counters& counters_;
  std::atomic<std::size_t> max_bytes_;

  mutable std::mutex mutex_;  // held for a few pointers only
  std::deque<std::unique_ptr<Rows>> ended_;
  std::size_t ended_bytes_ = 0;
  Clock::time_point oldest_since_{};
  std::vector<std::unique_ptr<Rows>> pool_;
  std::string run_;

  Spool spool_;
  std::deque<Numbered> ready_;
  std::uint64_t sequence_ = 0;
  // what other threads may know about the sender's own
  std::atomic<std::size_t> ready_count_{0}, ready_bytes_{0}, stored_count_{0}, stored_bytes_{0};
};

}  // namespace penstock
