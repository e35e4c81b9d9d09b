#include "outbox.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace penstock {
namespace {

constexpr std::size_t kMemoryBytes = std::size_t{64} << 20;  // of whole trajectories; more drops the oldest
constexpr std::size_t kReadyBytes = kMemoryBytes / 2;          // of packed ones; more goes to the spool
constexpr std::size_t kBatchBytes = 3 << 20;
constexpr std::size_t kBatchCount = 256;
constexpr std::size_t kPool = 16;
constexpr double kSendSeconds = 10.0;

}  // namespace

Outbox::Outbox(const Configuration& configuration, Counters& counters)
    : configuration_(configuration),
      counters_(counters),
      max_bytes_(kBatchBytes),
      spool_(configuration.spool_folder, configuration.spool_bytes) {}

bool Outbox::put(std::unique_ptr<Rows> rows) {
  std::vector<std::unique_ptr<Rows>> dropped;
  bool enough = false;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (whole_.empty()) oldest_since_ = Clock::now();
    whole_bytes_ += rows->bytes();
    whole_.push_back(std::move(rows));
    while (whole_bytes_ > kMemoryBytes && whole_.size() > 1) {
      whole_bytes_ -= whole_.front()->bytes();
      dropped.push_back(std::move(whole_.front()));
      whole_.pop_front();
    }
    enough = whole_.size() >= configuration_.send_frequency;
  }
  lose("memory_full", dropped.size(), "trajectories end faster than they can be packed; the oldest were dropped");
  return enough;
}

std::unique_ptr<Rows> Outbox::room() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (pool_.empty()) return nullptr;
  auto rows = std::move(pool_.back());
  pool_.pop_back();
  return rows;
}

Waiting Outbox::waiting() const {
  const Waiting lately = ended_lately_.waiting();
  const std::lock_guard<std::mutex> guard(mutex_);
  return {lately.trajectories + whole_.size() + ready_count_.load() + stored_count_.load(),
          lately.bytes + whole_bytes_ + ready_bytes_.load() + stored_bytes_.load()};
}

void Outbox::set_run(const std::string& run) {
  const std::lock_guard<std::mutex> guard(mutex_);
  run_ = run;
}

std::string Outbox::run_now() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return run_;
}

bool Outbox::due() {
  auto left = ended_lately_.take_paid(nullptr, configuration_.flush_seconds);
  for (auto& rows : left) put(std::move(rows));
  if (!left.empty() || !ready_.empty() || !spool_.empty()) return true;
  const std::lock_guard<std::mutex> guard(mutex_);
  if (whole_.size() >= configuration_.send_frequency) return true;
  return !whole_.empty() &&
         std::chrono::duration<double>(Clock::now() - oldest_since_).count() >= configuration_.flush_seconds;
}

std::unique_ptr<Rows> Outbox::next_whole() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (whole_.empty()) return nullptr;
  auto rows = std::move(whole_.front());
  whole_.pop_front();
  whole_bytes_ -= rows->bytes();
  return rows;
}

void Outbox::pack_all() {
  std::size_t left = 0;  // not more, or an application that is faster than the disk would keep us here
  const std::string run = run_now();
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    left = whole_.size();
  }
  for (; left > 0; --left) {
    auto rows = next_whole();
    if (!rows) break;
    Packed packed = pack(*rows, max_bytes_.load());
    if (packed.unfit != nullptr) counters_.drop(packed.unfit);
    for (auto& message : packed.messages) {
      message.set_sequence(++sequence_);
      message.set_run(run);
      ready_.emplace_back(sequence_, message.SerializeAsString());
      ready_bytes_ += ready_.back().second.size();
    }
    rows->reset();
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (pool_.size() < kPool) pool_.push_back(std::move(rows));
    }
    if (ready_bytes_.load() > kReadyBytes) store();
  }
  count_ready();
}

void Outbox::check() {
  try {
    spool_.check();
  } catch (const DiskError& error) {
    unwritable(error);
  }
}

void Outbox::store(bool last) {
  // a batch is dropped as one, so a small spool gets small ones
  const std::size_t most = std::min(max_bytes_.load(), configuration_.spool_bytes / 8);
  while (!ready_.empty()) {
    const auto batch = next_batch(most);
    try {
      spool_was_full(spool_.put(batch));
      forget(batch.size());
    } catch (const DiskError& error) {
      unwritable(error);
      if (!last && ready_bytes_.load() <= kMemoryBytes) break;
      make_room(batch.size(), error);
    }
  }
  count_ready();
  count_stored();
}

// Neither disk nor memory takes more: the oldest goes. On a full disk that lies in the spool.
void Outbox::make_room(std::size_t newest, const DiskError& error) {
  if (error.full && !spool_.empty()) {
    counters_.drop("disk", spool_.oldest().count);
    spool_.keep_of_oldest({});
  } else {
    counters_.drop("disk", newest);
    forget(newest);
  }
}

void Outbox::unwritable(const DiskError& error) {
  counters_.trouble("disk", std::string(error.what()) + "; what waits stays in memory, up to " +
                                std::to_string(kMemoryBytes >> 20) + " MiB and until the process ends");
}

void Outbox::spool_was_full(std::size_t dropped) {
  lose("spool_full", dropped,
       "the spool " + configuration_.spool_folder +
           " is full, so the oldest trajectories were dropped; raise spool.max_bytes to keep more");
}

void Outbox::lose(const char* reason, std::size_t count, const std::string& sentence) {
  if (count == 0) return;
  counters_.drop(reason, count);
  counters_.trouble(reason, sentence);
}

void Outbox::forget(std::size_t count) {
  for (; count > 0; --count) {
    ready_bytes_ -= ready_.front().second.size();
    ready_.pop_front();
  }
}

void Outbox::adopt() {
  spool_was_full(spool_.adopt());
  count_stored();
}

void Outbox::close() { spool_.close(); }

Answer Outbox::send(Gateway& gateway, Reporter& reporter, Clock::time_point until, double& pause) {
  pause = 0.0;
  Answer answer;
  while (pause == 0.0 && answer.kind == Answer::ok && Clock::now() < until) {
    if (!spool_.empty()) {
      const std::string source = spool_.oldest().source;
      auto batch = stored_batch();
      if (!batch.empty()) answer = deliver(gateway, reporter, source, batch, until, pause);
      if (answer.kind == Answer::ok) spool_.keep_of_oldest(batch);
      count_stored();
    } else if (!ready_.empty()) {
      auto batch = next_batch(max_bytes_.load());
      const auto count = static_cast<std::ptrdiff_t>(batch.size());
      answer = deliver(gateway, reporter, spool_.source(), batch, until, pause);
      if (answer.kind != Answer::ok) break;
      ready_.erase(ready_.begin(), ready_.begin() + count);
      ready_.insert(ready_.begin(), batch.begin(), batch.end());
      count_ready();
    } else {
      break;
    }
  }
  return answer;
}

// One call; `batch` keeps what remains.
Answer Outbox::deliver(Gateway& gateway, Reporter& reporter, const std::string& source, std::vector<Numbered>& batch,
                       Clock::time_point until, double& pause) {
  v1::SendRequest request;
  request.set_policy(configuration_.policy);
  request.set_source(source);
  for (const auto& numbered : batch) request.add_trajectories()->ParseFromString(numbered.second);
  *request.mutable_figures() = reporter.report(waiting());
  const double left = std::chrono::duration<double>(until - Clock::now()).count();
  v1::SendReply reply;
  const Answer answer = gateway.send(request, reply, std::max(0.1, std::min(kSendSeconds, left)));
  if (answer.kind != Answer::ok) return answer;
  std::map<std::uint64_t, const v1::SendReply::Receipt*> receipts;
  for (const auto& receipt : reply.receipts()) receipts[receipt.sequence()] = &receipt;
  std::vector<Numbered> remaining;
  for (auto& numbered : batch) {
    const auto found = receipts.find(numbered.first);
    const auto outcome = found == receipts.end() ? v1::SendReply::UNSPECIFIED : found->second->outcome();
    if (outcome == v1::SendReply::STORED || outcome == v1::SendReply::DUPLICATE) {
      counters_.sent();
    } else if (outcome == v1::SendReply::REFUSED) {
      counters_.drop("refused");
      counters_.trouble("refused", "the gateway refused a trajectory: " + found->second->reason().substr(0, 300));
    } else {
      if (found != receipts.end() && !found->second->reason().empty())
        counters_.trouble("full", "the gateway takes no more for now: " + found->second->reason().substr(0, 300));
      remaining.push_back(std::move(numbered));
    }
  }
  batch = std::move(remaining);
  const double asked = std::isfinite(reply.retry_seconds()) ? reply.retry_seconds() : 0.0;
  pause = batch.empty() ? 0.0 : std::clamp(asked, 0.2, 30.0);
  return answer;
}

std::vector<Numbered> Outbox::next_batch(std::size_t max_bytes) const {
  std::vector<Numbered> batch;
  std::size_t size = 0;
  for (const auto& numbered : ready_) {
    size += numbered.second.size() + 16;
    if (!batch.empty() && (size > max_bytes || batch.size() == kBatchCount)) break;
    batch.push_back(numbered);
  }
  return batch;
}

// The oldest batch of the spool; empty, and counted, where it is damaged.
std::vector<Numbered> Outbox::stored_batch() {
  try {
    return spool_.read_oldest();
  } catch (const Damaged& error) {
    counters_.drop("damaged", spool_.oldest().count);
    counters_.trouble("spool", error.what());
    return {};
  }
}

void Outbox::count_stored() {
  stored_count_.store(spool_.trajectories());
  stored_bytes_.store(spool_.bytes());
}

void Outbox::count_ready() {
  std::size_t bytes = 0;
  for (const auto& numbered : ready_) bytes += numbered.second.size();
  ready_count_.store(ready_.size());
  ready_bytes_.store(bytes);
}

}  // namespace penstock
