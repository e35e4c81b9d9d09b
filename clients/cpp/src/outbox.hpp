// The way out: ended trajectories, in order, from memory or spool to the gateway.
//
// Memory first: in ordinary times nothing touches the disk. While the gateway is away, is full, or the process ends,
// what waits goes to the spool. Where the disk does not take it, it stays in memory. Order holds per source, also
// through the spool. Whatever is lost is counted and said.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ended.hpp"
#include "figures.hpp"
#include "gateway.hpp"
#include "penstock/configuration.hpp"
#include "penstock/errors.hpp"
#include "rows.hpp"
#include "spool.hpp"

namespace penstock {

// `put`, `ended`, `room` and `waiting` may be called by any thread; everything else belongs to the sender's.
class Outbox {
 public:
  Outbox(const Configuration& configuration, Counters& counters);

  // What the application may still say a reward for; the sender takes it after flush_seconds.
  Ended& ended() { return ended_lately_; }
  // Take a trajectory that nothing more will be said about; return whether there is enough to send.
  bool put(std::unique_ptr<Rows> rows);
  // Memory of a trajectory that was sent, to be used again; or none.
  std::unique_ptr<Rows> room();
  Waiting waiting() const;

  // Whether something should be packed or sent now.
  bool due();
  // Turn what has ended by now into numbered messages; where they become too many for memory they go to the spool.
  void pack_all();
  // Say at the start, not with the first loss, that the spool cannot be written.
  void check();
  // Move what is packed to the spool; what the disk does not take waits in memory, but not after the `last` time.
  void store(bool last = false);
  // Take over what dead processes left.
  void adopt();
  // Deliver all that waits, oldest first. `pause`: seconds to wait where the gateway is full, else 0.
  // Where the answer is not ok nothing is lost and the next call goes on; so too where the spool cannot be read or
  // written, which throws DiskError.
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
  std::unique_ptr<Rows> next_whole();
  void forget(std::size_t count);
  void make_room(std::size_t newest, const DiskError& error);
  void unwritable(const DiskError& error);
  void spool_was_full(std::size_t dropped);
  void lose(const char* reason, std::size_t count, const std::string& sentence);
  void count_stored();
  void count_ready();

  const Configuration& configuration_;
  Counters& counters_;
  std::atomic<std::size_t> max_bytes_;

  Ended ended_lately_;
  mutable std::mutex mutex_;  // held for a few pointers only
  std::deque<std::unique_ptr<Rows>> whole_;
  std::size_t whole_bytes_ = 0;
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
