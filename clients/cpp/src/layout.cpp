#include "layout.hpp"

#include <algorithm>
#include <cmath>

#include "penstock/errors.hpp"

namespace penstock {
namespace {

std::string text_of(const std::vector<std::size_t>& shape) {
  std::string text;
  for (const auto size : shape) text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return text + "]";
}

std::string text_of(bool flag) { return flag ? "true" : "false"; }

}  // namespace

void Layout::check_observation(View<float> given) const {
  if (given.size() != size)
    throw UsageError("an observation has " + std::to_string(given.size()) + " numbers where this policy sees " +
                     std::to_string(size) + " (input_size or observation_shape of the configuration)");
  for (std::size_t i = 0; i < size; ++i)
    if (!std::isfinite(given[i]))
      throw UsageError("entry " + std::to_string(i) +
                       " of an observation is not a finite number; replace what is missing first");
}

void Layout::check_mask(View<std::uint8_t> mask) const {
  if (!masked) throw UsageError("a mask was given, but the configuration does not say \"masked\": true");
  if (mask.size() != choices)
    throw UsageError("a mask has " + std::to_string(mask.size()) + " flags where there are " + std::to_string(choices) +
                     " actions");
  if (std::none_of(mask.begin(), mask.end(), [](std::uint8_t flag) { return flag != 0; }))
    throw UsageError("a mask allows no action at all; allow at least one");
}

void Layout::check_action(View<float> action) const {
  bool fits = action.size() == (discrete ? 1 : choices);
  for (const float number : action) fits = fits && std::isfinite(number);
  if (fits && discrete)
    fits = action[0] == std::floor(action[0]) && action[0] >= 0 && action[0] < static_cast<float>(choices);
  if (!fits)
    throw UsageError("an action must be " + (discrete ? "a whole number from 0 to " + std::to_string(choices - 1)
                                                      : std::to_string(choices) + " finite numbers"));
}

Layout layout_of(const Shape& shape) {
  Layout result{shape.observation, 1, !shape.continuous, shape.actions, shape.masked};
  for (const auto size : shape.observation) result.size *= size;
  return result;
}

Layout layout_of(const Description& description) {
  if (description.columns.size() != 1 || description.columns[0].bytes || description.columns[0].name != "observations")
    throw ConfigError("this policy sees more than one array of numbers; the client cannot act for it");
  if (description.sizes.size() > 1)
    throw ConfigError("this policy takes multi_discrete actions, which the client does not know");
  const Column& column = description.columns[0];
  return {column.shape, column.size(), !description.box(),
          description.box() ? description.low.size() : description.choices(), description.masked};
}

std::string disagreement(const Layout& here, const Layout& there) {
  const auto differ = [](const char* what, const std::string& mine, const std::string& theirs) {
    return std::string("the configuration says ") + what + " " + mine + ", the policy at the gateway has " + theirs;
  };
  if (here.observation != there.observation)
    return differ("observations of shape", text_of(here.observation), text_of(there.observation));
  if (here.discrete != there.discrete) return differ("discrete actions:", text_of(here.discrete), text_of(there.discrete));
  if (here.choices != there.choices)
    return differ("number of actions", std::to_string(here.choices), std::to_string(there.choices));
  if (here.masked != there.masked) return differ("masked actions:", text_of(here.masked), text_of(there.masked));
  return "";
}

}  // namespace penstock
