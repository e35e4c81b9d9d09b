// Everything this library throws on purpose. Once an agent is made, nothing is thrown because of the network.
#pragma once

#include <stdexcept>
#include <string>

namespace penstock {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A setting is wrong; only a person can fix it.
struct ConfigError : Error {
  using Error::Error;
};

// The caller broke a rule of the verbs: an observation of the wrong size, a reward that is missing.
struct UsageError : Error {
  using Error::Error;
};

// The gateway does not answer, and without it a new agent cannot know what its policy sees and does.
struct Unavailable : Error {
  using Error::Error;
};

// Data that fails its check: a weights file, a delta, a spooled file. Handled inside; tests see it.
struct Damaged : Error {
  using Error::Error;
};

// The system cannot read or write a file now; what is in it may be whole. Handled inside; tests see it.
struct DiskError : Error {
  DiskError(const std::string& sentence, bool disk_is_full) : Error(sentence), full(disk_is_full) {}
  bool full;  // giving up something there would help
};

}  // namespace penstock
