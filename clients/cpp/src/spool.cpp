#include "spool.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "penstock/errors.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMagic = "PSB1";
constexpr std::size_t kMaxBatch = 8 << 20;
constexpr std::size_t kBlock = 4096;

// What a file takes of the disk: whole blocks. The Python client counts the same.
std::size_t on_disk(std::size_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

std::string random_source() {
  static const char* digits = "0123456789abcdef";
  std::random_device device;
  std::string text;
  for (int i = 0; i < 32; ++i) text.push_back(digits[device() & 15]);
  return text;
}

template <typename T>
void append(std::string& to, T number) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to.push_back(static_cast<char>(number >> (8 * i)));
}

template <typename T>
T number_at(const std::string& from, std::size_t at) {
  T result = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) result = static_cast<T>(result << 8 | static_cast<unsigned char>(from[at + i]));
  return result;
}

std::uint32_t checksum(const char* data, std::size_t size) {
  return static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(data), static_cast<uInt>(size)));
}

DiskError disk_error(const std::string& what, int number) {
  return DiskError(what + ": " + std::strerror(number), number == ENOSPC || number == EDQUOT);
}

std::size_t write_batch(const fs::path& path, const std::vector<Numbered>& trajectories) {
  std::string body;
  for (const auto& [sequence, content] : trajectories) {
    append<std::uint64_t>(body, sequence);
    append<std::uint32_t>(body, static_cast<std::uint32_t>(content.size()));
    body += content;
  }
  std::string whole = kMagic;
  append<std::uint32_t>(whole, checksum(body.data(), body.size()));
  whole += body;
  fs::path beside = path;
  beside.replace_extension(".part");
  errno = 0;
  std::ofstream file(beside, std::ios::binary | std::ios::trunc);
  file.write(whole.data(), static_cast<std::streamsize>(whole.size()));
  file.close();
  if (!file || ::rename(beside.c_str(), path.c_str()) != 0) {
    const int number = errno;
    std::error_code ignored;
    fs::remove(beside, ignored);
    throw disk_error("the spool cannot write " + path.string(), number);
  }
  return on_disk(whole.size());
}

// The whole file. Only what is gone is Damaged: any other error may pass, and the batch is whole.
std::string read_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) throw Damaged(path + " was removed by somebody else");
  if (file < 0) throw disk_error("the spool cannot read " + path, errno);
  std::string content;
  char part[1 << 14];
  ssize_t count = 0;
  while (content.size() <= kMaxBatch && (count = ::read(file, part, sizeof part)) > 0)
    content.append(part, static_cast<std::size_t>(count));
  const int number = errno;
  ::close(file);
  if (count < 0) throw disk_error("the spool cannot read " + path, number);
  if (content.size() > kMaxBatch) throw Damaged(path + " is too large for a batch");
  return content;
}

std::vector<Numbered> read_batch(const std::string& content, const std::string& path) {
  if (content.size() < 8 || content.compare(0, 4, kMagic) != 0 ||
      number_at<std::uint32_t>(content, 4) != checksum(content.data() + 8, content.size() - 8))
    throw Damaged(path + " is not a whole batch");
  std::vector<Numbered> found;
  std::size_t at = 8;
  while (at < content.size()) {
    if (content.size() - at < 12) throw Damaged(path + " ends in the middle of a trajectory");
    const auto sequence = number_at<std::uint64_t>(content, at);
    const std::size_t length = number_at<std::uint32_t>(content, at + 8);
    at += 12;
    if (length > content.size() - at) throw Damaged(path + " ends in the middle of a trajectory");
    found.emplace_back(sequence, content.substr(at, length));
    at += length;
  }
  return found;
}

bool made_of(const std::string& text, const char* letters) {
  return text.find_first_not_of(letters) == std::string::npos;
}

// The count in <20 digits>-<1 to 6 digits>.batch, or 0 for any other name.
std::size_t named_count(const std::string& name) {
  const std::string ending = ".batch";
  if (name.size() < 22 + ending.size() || name.size() > 27 + ending.size() || name[20] != '-') return 0;
  if (name.compare(name.size() - ending.size(), ending.size(), ending) != 0) return 0;
  const std::string count = name.substr(21, name.size() - 21 - ending.size());
  if (!made_of(name.substr(0, 20), "0123456789") || !made_of(count, "0123456789")) return 0;
  return std::stoul(count);
}

std::vector<Batch> batches_in(const fs::path& folder, const std::string& source) {
  std::vector<Batch> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const std::size_t count = named_count(name);
    if (count == 0) continue;
    const auto size = entry.file_size(error);
    if (!error) found.push_back({entry.path(), source, count, on_disk(size)});
  }
  std::sort(found.begin(), found.end(), [](const Batch& a, const Batch& b) { return a.path < b.path; });
  return found;
}

}  // namespace

Spool::Spool(fs::path folder, std::size_t max_bytes)
    : folder_(std::move(folder)), max_bytes_(max_bytes), source_(random_source()) {}

Spool::~Spool() { close(); }

void Spool::own() {
  errno = 0;
  if (!locks_.count(source_) && !lock(source_))
    throw disk_error("the spool " + folder_.string() + " cannot be locked", errno);
}

void Spool::check() {
  own();
  if (trajectories_ == 0) release(source_);
}

std::size_t Spool::put(const std::vector<Numbered>& trajectories) {
  own();
  const std::string first = std::to_string(trajectories.front().first);
  const std::string name = std::string(20 - first.size(), '0') + first + "-" + std::to_string(trajectories.size());
  const fs::path path = folder_ / source_ / (name + ".batch");
  const std::size_t size = write_batch(path, trajectories);
  batches_.push_back({path, source_, trajectories.size(), size});
  count_in(batches_.back());
  return drop_oldest();
}

std::vector<Numbered> Spool::read_oldest() const {
  const std::string path = batches_.front().path.string();
  return read_batch(read_file(path), path);
}

void Spool::keep_of_oldest(const std::vector<Numbered>& remaining) {
  Batch& batch = batches_.front();
  if (!remaining.empty()) {
    if (remaining.size() == batch.count) return;
    const std::size_t size = write_batch(batch.path, remaining);
    count_out(batch);
    batch.size = size;
    batch.count = remaining.size();  // the name says what it began as
    count_in(batch);
    return;
  }
  std::error_code ignored;
  count_out(batch);
  fs::remove(batch.path, ignored);
  const std::string source = batch.source;
  batches_.pop_front();
  // the batches of one source lie together
  if (source != source_ && (batches_.empty() || batches_.front().source != source)) release(source);
}

void Spool::count_in(const Batch& batch) {
  trajectories_ += batch.count;
  bytes_ += batch.size;
}

void Spool::count_out(const Batch& batch) {
  trajectories_ -= batch.count;
  bytes_ -= batch.size;
}

std::size_t Spool::adopt() {
  std::error_code error;
  std::vector<std::string> sources;
  for (const auto& entry : fs::directory_iterator(folder_, error)) sources.push_back(entry.path().filename().string());
  for (const auto& source : sources) {
    if (source.size() != 32 || !made_of(source, "0123456789abcdef") || locks_.count(source) || !lock(source)) continue;
    const auto found = batches_in(folder_ / source, source);
    batches_.insert(batches_.begin(), found.begin(), found.end());
    for (const auto& batch : found) count_in(batch);
    if (found.empty()) release(source);
  }
  return drop_oldest();
}

void Spool::close() {
  while (!locks_.empty()) release(std::string(locks_.begin()->first));
  batches_.clear();
}

std::size_t Spool::drop_oldest() {
  std::size_t dropped = 0;
  while (!batches_.empty() && bytes_ > max_bytes_) {
    dropped += batches_.front().count;
    keep_of_oldest({});
  }
  return dropped;
}

void Spool::make_folder(const fs::path& folder) const {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  ::mkdir(folder.c_str(), 0700);  // experience is nobody else's
}

bool Spool::lock(const std::string& source) {
  const fs::path folder = folder_ / source;
  make_folder(folder);
  const std::string path = (folder / "lock").string();
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return false;
  struct stat held {}, there {};
  // whoever held it before may have removed the folder: then this lock guards nothing
  if (::flock(file, LOCK_EX | LOCK_NB) == 0 && ::fstat(file, &held) == 0 && ::stat(path.c_str(), &there) == 0 &&
      held.st_ino == there.st_ino) {
    locks_[source] = file;
    return true;
  }
  ::close(file);
  return false;
}

void Spool::release(const std::string& source) {
  const auto found = locks_.find(source);
  if (found == locks_.end()) return;
  const fs::path folder = folder_ / source;
  std::error_code ignored;
  if (batches_in(folder, source).empty()) {
    for (const auto& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().extension() == ".part") fs::remove(entry.path(), ignored);
    fs::remove(folder / "lock", ignored);
    fs::remove(folder, ignored);
  }
  ::close(found->second);
  locks_.erase(found);
}

}  // namespace penstock
