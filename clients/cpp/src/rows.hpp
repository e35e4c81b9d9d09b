// What an application experienced, one array a column, and how it becomes messages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "layout.hpp"
#include "penstock/version.hpp"
#include "penstock_v1.pb.h"

namespace penstock {

// Belongs to the application's thread until it is handed over, then to the sender's.
struct Rows {
  Rows(std::shared_ptr<const Layout> shapes, std::size_t limit);

  std::shared_ptr<const Layout> layout;
  std::size_t limit, capacity = 0, length = 0;
  std::vector<float> observations, box, log_probs;
  std::vector<float> rewards;  // NaN where none came yet
  std::vector<std::int32_t> choices;
  std::vector<std::uint8_t> masks, foreign;
  std::vector<std::uint64_t> requests;  // whose row it is: a step that is not added leaves its row to the next request
  std::optional<Version> version;  // the oldest that decided
  bool terminated = false;
  std::vector<float> final;  // what came after the last row, where it was cut off
  std::vector<std::uint8_t> final_mask;

  float* observation(std::size_t row) { return &observations[row * layout->size]; }
  std::uint8_t* mask(std::size_t row) { return layout->masked ? &masks[row * layout->choices] : nullptr; }
  float* box_of(std::size_t row) { return layout->discrete ? nullptr : &box[row * layout->choices]; }
  std::size_t bytes() const { return length * layout->row_bytes() + 256; }

  // Twice the rows, up to the limit.
  void grow();
  // Ready for another trajectory; the memory stays.
  void reset();
  void decided_by(const Version& decider) {
    if (!version || decider < *version) version = decider;
  }

 private:
  void resize(std::size_t rows);
};

// Messages without their sequence, each at most about `max_bytes`; or none and the reason why.
struct Packed {
  std::vector<v1::Trajectory> messages;
  const char* unfit = nullptr;
};

Packed pack(Rows& rows, std::size_t max_bytes);

}  // namespace penstock
