// How a client is doing: counters that cost the application nearly nothing, and a report of them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "penstock_v1.pb.h"

namespace penstock {

using Clock = std::chrono::steady_clock;

// Who decided where the newest policy did not.
enum class FellBack { previous, heuristic, safe };

// The application's thread counts decisions and fallbacks; any thread may count the rest or read.
class Counters {
 public:
  explicit Counters(bool debug = false) : debug_(debug) {}

  void decided(float seconds) {
    const auto count = decisions_.load(std::memory_order_relaxed);
    times_[count % kKept].store(seconds, std::memory_order_relaxed);
    decisions_.store(count + 1, std::memory_order_relaxed);
  }
  void fell_back(FellBack how) { fallbacks_[static_cast<std::size_t>(how)].fetch_add(1, std::memory_order_relaxed); }
  void was_late() { late_.fetch_add(1, std::memory_order_relaxed); }
  void sent() { sent_.fetch_add(1, std::memory_order_relaxed); }
  void swapped() { swaps_.fetch_add(1, std::memory_order_relaxed); }
  // Trajectories that were let go.
  void drop(const std::string& reason, std::size_t count = 1);
  // Count what went wrong and put aside a sentence about it, each kind at most once in ten seconds. Waits for nobody:
  // it is called while the application decides.
  void trouble(const std::string& kind, const std::string& sentence);
  // Put aside what goes well, where `debug` was asked for.
  void note(const std::string& sentence);
  // Write what was put aside to stderr, as far as stderr takes it now. For a thread beside the application.
  void say();

  std::uint64_t decisions() const { return decisions_.load(std::memory_order_relaxed); }
  std::uint64_t late() const { return late_.load(std::memory_order_relaxed); }
  std::uint64_t sent_count() const { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t swaps() const { return swaps_.load(std::memory_order_relaxed); }
  std::map<std::string, std::uint64_t> fallbacks() const;
  std::map<std::string, std::uint64_t> dropped() const;
  std::map<std::string, std::uint64_t> troubles() const;
  // Microseconds: median and 99th percentile of the last decisions.
  std::pair<double, double> percentiles() const;

 private:
  static constexpr std::size_t kKept = 2048, kUnsaid = 64;

  void put_aside(const std::string& sentence);  // under the lock

  const bool debug_;
  std::atomic<std::uint64_t> decisions_{0}, late_{0}, sent_{0}, swaps_{0};
  std::array<std::atomic<std::uint64_t>, 3> fallbacks_{};
  std::array<std::atomic<float>, kKept> times_{};
  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t> dropped_, troubles_;
  std::map<std::string, Clock::time_point> said_;
  std::deque<std::string> unsaid_;  // the oldest go where there are too many
};

struct Waiting {
  std::size_t trajectories = 0, bytes = 0;
};

// Turns counters into the message that gateways read. Thread-safe.
class Reporter {
 public:
  explicit Reporter(const Counters& counters);
  v1::Figures report(Waiting waiting);

 private:
  const Counters& counters_;
  std::string host_;
  std::mutex mutex_;
  Clock::time_point before_;
  double used_before_;
};

}  // namespace penstock
