// A policy version: (epoch, step). Versions only grow.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

namespace penstock {

struct Version {
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;

  std::string text() const { return std::to_string(epoch) + "." + std::to_string(step); }
  friend bool operator==(const Version& a, const Version& b) { return a.epoch == b.epoch && a.step == b.step; }
  friend bool operator!=(const Version& a, const Version& b) { return !(a == b); }
  friend bool operator<(const Version& a, const Version& b) {
    return std::tie(a.epoch, a.step) < std::tie(b.epoch, b.step);
  }
};

}  // namespace penstock
