// Moments and spans of the threads beside the application.
#pragma once

#include <chrono>

#include "figures.hpp"

namespace penstock {

constexpr double kTickSeconds = 0.5;  // how often a thread with nothing to do looks around

inline std::chrono::duration<double> seconds_of(double seconds) { return std::chrono::duration<double>(seconds); }

inline Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds_of(seconds));
}

}  // namespace penstock
