// Trajectories that wait on disk while the gateway is away: bounded, oldest dropped first, delivered once.
//
//   <folder>/<source>/lock          held by the process that fills or empties this source
//   <folder>/<source>/<sequence>-<count>.batch
//
// The same files as the Python client's (src/penstock/client/spool.py), so either adopts what the other left.
// A source belongs to one process; (source, sequence) names a trajectory for ever, so a second delivery is seen as
// one. A batch is written beside and renamed: whole or absent. Not thread-safe: it belongs to the sender.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

// Sequence and the trajectory's message.
using Numbered = std::pair<std::uint64_t, std::string>;

struct Batch {
  std::filesystem::path path;
  std::string source;
  std::size_t count = 0;
  std::size_t size = 0;  // in whole blocks of 4096 bytes, as the disk has it
};

class Spool {
 public:
  Spool(std::filesystem::path folder, std::size_t max_bytes);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  const std::string& source() const { return source_; }
  // What waits: running totals, because there may be very many batches.
  std::size_t trajectories() const { return trajectories_; }
  std::size_t bytes() const { return bytes_; }
  bool empty() const { return batches_.empty(); }
  // The next to deliver; there must be one.
  const Batch& oldest() const { return batches_.front(); }

  // Throws DiskError where nothing could be written here now; leaves nothing behind but the folder.
  void check();
  // Write them down as one batch; return how many older ones had to go. Throws DiskError where the disk fails.
  std::size_t put(const std::vector<Numbered>& trajectories);
  // What is in the oldest batch; throws Damaged where it does not hold, DiskError where it cannot be read now.
  std::vector<Numbered> read_oldest() const;
  // Only these of the oldest batch are still to be delivered; none means it is done.
  void keep_of_oldest(const std::vector<Numbered>& remaining);
  // Take over what dead processes left; return how many trajectories had to go to stay within bounds.
  std::size_t adopt();
  // Let go of every lock; what is left is for whoever comes next, and the totals still say how much.
  void close();

 private:
  void own();
  bool lock(const std::string& source);
  void release(const std::string& source);
  std::size_t drop_oldest();
  void count_in(const Batch& batch);
  void count_out(const Batch& batch);
  void make_folder(const std::filesystem::path& folder) const;

  std::filesystem::path folder_;
  std::size_t max_bytes_, trajectories_ = 0, bytes_ = 0;
  std::string source_;
  std::map<std::string, int> locks_;
  std::deque<Batch> batches_;
};

}  // namespace penstock
