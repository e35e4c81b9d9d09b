#include "figures.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

namespace penstock {
namespace {

constexpr auto kQuiet = std::chrono::seconds(10);
constexpr std::size_t kLongest = 2000;  // of a sentence; a pipe with room takes that much at once

// False for a pipe that nobody reads: who writes to it waits, and closing would too.
bool stderr_has_room() {
  pollfd target{STDERR_FILENO, POLLOUT, 0};
  return poll(&target, 1, 0) == 1 && target.revents == POLLOUT;
}

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t whole = 0, resident = 0;
  if (!(file >> whole >> resident)) return 0;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void Counters::drop(const std::string& reason, std::size_t count) {
  if (count == 0) return;
  const std::lock_guard<std::mutex> guard(mutex_);
  dropped_[reason] += count;
}

void Counters::trouble(const std::string& kind, const std::string& sentence) {
  const std::lock_guard<std::mutex> guard(mutex_);
  ++troubles_[kind];
  const auto now = Clock::now();
  const auto last = said_.find(kind);
  if (last != said_.end() && now - last->second < kQuiet) return;
  said_[kind] = now;
  put_aside(sentence);
}

void Counters::note(const std::string& sentence) {
  if (!debug_) return;
  const std::lock_guard<std::mutex> guard(mutex_);
  put_aside(sentence);
}

void Counters::put_aside(const std::string& sentence) {
  if (unsaid_.size() == kUnsaid) unsaid_.pop_front();
  unsaid_.push_back(sentence.substr(0, kLongest));
}

void Counters::say() {
  while (stderr_has_room()) {
    std::string sentence;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (unsaid_.empty()) return;
      sentence = std::move(unsaid_.front());
      unsaid_.pop_front();
    }
    std::fprintf(stderr, "penstock: %s\n", sentence.c_str());
  }
}

std::map<std::string, std::uint64_t> Counters::fallbacks() const {
  static const char* names[] = {"previous", "heuristic", "safe"};
  std::map<std::string, std::uint64_t> result;
  for (std::size_t i = 0; i < fallbacks_.size(); ++i)
    if (const auto count = fallbacks_[i].load(std::memory_order_relaxed)) result[names[i]] = count;
  return result;
}

std::map<std::string, std::uint64_t> Counters::dropped() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return dropped_;
}

std::map<std::string, std::uint64_t> Counters::troubles() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return troubles_;
}

std::pair<double, double> Counters::percentiles() const {
  std::vector<float> taken(std::min<std::uint64_t>(decisions(), kKept));
  for (std::size_t i = 0; i < taken.size(); ++i) taken[i] = times_[i].load(std::memory_order_relaxed);
  if (taken.empty()) return {0.0, 0.0};
  std::sort(taken.begin(), taken.end());
  const auto at = [&](double share) {
    return 1e6 * static_cast<double>(taken[static_cast<std::size_t>(share * static_cast<double>(taken.size() - 1))]);
  };
  return {at(0.5), at(0.99)};
}

Reporter::Reporter(const Counters& counters)
    : counters_(counters), host_(256, '\0'), before_(Clock::now()), used_before_(processor_seconds()) {
  if (gethostname(host_.data(), host_.size() - 1) != 0) host_.clear();
  host_.resize(host_.find_first_of('\0') == std::string::npos ? host_.size() : host_.find_first_of('\0'));
}

v1::Figures Reporter::report(Waiting waiting) {
  v1::Figures figures;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto now = Clock::now();
    const double used = processor_seconds();
    const double passed = std::chrono::duration<double>(now - before_).count();
    figures.set_cpu_share((used - used_before_) / std::max(passed, 1e-3));
    if (passed >= 1.0) before_ = now, used_before_ = used;
  }
  const auto [p50, p99] = counters_.percentiles();
  figures.set_host(host_);
  figures.set_pid(static_cast<std::uint32_t>(getpid()));
  figures.set_memory_bytes(resident_bytes());
  figures.set_decisions(counters_.decisions());
  for (const auto& [reason, count] : counters_.fallbacks()) (*figures.mutable_fallbacks())[reason] = count;
  for (const auto& [reason, count] : counters_.dropped()) (*figures.mutable_dropped())[reason] = count;
  figures.set_waiting_trajectories(waiting.trajectories);
  figures.set_waiting_bytes(waiting.bytes);
  figures.set_decision_p50_us(p50);
  figures.set_decision_p99_us(p99);
  return figures;
}

}  // namespace penstock
