#include "rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers travel little-endian; this machine's need turning");

constexpr std::size_t kFirstRows = 256;
constexpr std::size_t kWholeBytes = 1 << 18;  // a trajectory that fits into this gets all its rows at once
constexpr std::size_t kFrame = 4096;          // of a message, around its columns
constexpr const char* kColumn = "observations";

template <typename T>
std::string raw(const std::vector<T>& column, std::size_t begin, std::size_t end) {
  return {reinterpret_cast<const char*>(column.data() + begin), (end - begin) * sizeof(T)};
}

bool finite(const std::vector<float>& column, std::size_t count) {
  return std::all_of(column.begin(), column.begin() + static_cast<std::ptrdiff_t>(count),
                     [](float number) { return std::isfinite(number); });
}

// Cut off without a word of what came next: then the last observation is what came after the row before.
void take_final_from_last_row(Rows& rows) {
  if (rows.terminated || !rows.final.empty() || rows.length == 0) return;
  --rows.length;
  const float* last = rows.observation(rows.length);
  rows.final.assign(last, last + rows.layout->size);
  if (const std::uint8_t* mask = rows.mask(rows.length)) rows.final_mask.assign(mask, mask + rows.layout->choices);
}

v1::Trajectory message_of(const Rows& rows, std::size_t begin, std::size_t end) {
  const Layout& layout = *rows.layout;
  const bool last = end == rows.length;
  v1::Trajectory message;
  const Version version = rows.version.value_or(Version{});
  message.mutable_version()->set_epoch(version.epoch);
  message.mutable_version()->set_step(version.step);
  message.set_length(static_cast<std::uint32_t>(end - begin));
  (*message.mutable_observations())[kColumn] = raw(rows.observations, begin * layout.size, end * layout.size);
  message.set_actions(layout.discrete ? raw(rows.choices, begin, end)
                                      : raw(rows.box, begin * layout.choices, end * layout.choices));
  message.set_log_probs(raw(rows.log_probs, begin, end));
  message.set_rewards(raw(rows.rewards, begin, end));
  if (layout.masked) message.set_masks(raw(rows.masks, begin * layout.choices, end * layout.choices));
  const std::string foreign = raw(rows.foreign, begin, end);
  if (foreign.find('\1') != std::string::npos) message.set_foreign(foreign);
  message.set_terminated(last && rows.terminated);
  message.set_offset(static_cast<std::uint32_t>(begin));
  double earlier = 0;
  for (std::size_t i = 0; i < begin; ++i) earlier += static_cast<double>(rows.rewards[i]);
  message.set_earlier_reward(earlier);
  message.set_continues(!last);
  if (message.terminated()) return message;
  (*message.mutable_final_observations())[kColumn] =
      last ? raw(rows.final, 0, layout.size) : raw(rows.observations, end * layout.size, (end + 1) * layout.size);
  if (layout.masked) {
    if (!last)
      message.set_final_masks(raw(rows.masks, end * layout.choices, (end + 1) * layout.choices));
    else
      message.set_final_masks(rows.final_mask.empty() ? std::string(layout.choices, '\1')
                                                      : raw(rows.final_mask, 0, layout.choices));
  }
  return message;
}

}  // namespace

Rows::Rows(std::shared_ptr<const Layout> shapes, std::size_t most) : layout(std::move(shapes)), limit(most) {
  resize(limit * layout->row_bytes() <= kWholeBytes ? limit : std::min(limit, kFirstRows));
}

void Rows::grow() { resize(std::min(2 * capacity, limit)); }

void Rows::reset() {
  length = 0;
  version.reset();
  terminated = false;
  final.clear();
  final_mask.clear();
}

void Rows::resize(std::size_t rows) {
  capacity = rows;
  observations.resize(rows * layout->size);
  (layout->discrete ? choices.resize(rows) : box.resize(rows * layout->choices));
  log_probs.resize(rows);
  rewards.resize(rows, std::numeric_limits<float>::quiet_NaN());
  foreign.resize(rows);
  requests.resize(rows);
  if (layout->masked) masks.resize(rows * layout->choices, 1);
}

Packed pack(Rows& rows, std::size_t max_bytes) {
  take_final_from_last_row(rows);
  if (rows.length == 0) return {{}, "empty"};
  for (std::size_t i = 0; i < rows.length; ++i) {
    if (std::isnan(rows.rewards[i])) return {{}, "no_reward"};
    if (rows.foreign[i]) rows.log_probs[i] = 0.0f;
  }
  const bool sound = finite(rows.observations, rows.length * rows.layout->size) && finite(rows.rewards, rows.length) &&
                     finite(rows.log_probs, rows.length) && finite(rows.final, rows.final.size()) &&
                     (rows.layout->discrete || finite(rows.box, rows.length * rows.layout->choices));
  if (!sound) return {{}, "not_finite"};
  const std::size_t room = max_bytes > 2 * kFrame ? max_bytes - kFrame : kFrame;
  const std::size_t step = std::max<std::size_t>(1, room / rows.layout->row_bytes());
  Packed packed;
  for (std::size_t begin = 0; begin < rows.length; begin += step)
    packed.messages.push_back(message_of(rows, begin, std::min(begin + step, rows.length)));
  return packed;
}

}  // namespace penstock
