#include "keys.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "key_table.hpp"
#include "penstock/errors.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr double kMany = 1099511627776.0;                  // 2^40: no upper end worth saying
constexpr std::uint64_t kGreatestWhole = 0x7FFFFFFFFFFFFFFFu;
constexpr double kBeyondWhole = 9223372036854775808.0;     // 2^63, which no whole number here reaches

bool in_range(const json& value, const Key& key, bool is_whole) {
  if (!value.is_number()) return false;
  const double given = value.get<double>();
  if (is_whole) {
    // as a double the greatest integer, 2^63 - 1, looks like 2^63
    if (value.is_number_float() && (given != std::floor(given) || given >= kBeyondWhole)) return false;
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > kGreatestWhole) return false;
  }
  return (key.above ? key.low < given : key.low <= given) && given <= key.high;
}

bool fits(const json& value, const Key& key) {
  if (key.kind == Kind::any || (value.is_null() && key.null)) return true;
  switch (key.kind) {
    case Kind::text: {
      if (!value.is_string() || value.get_ref<const std::string&>().empty()) return false;
      return key.choices.empty() ||
             std::find(key.choices.begin(), key.choices.end(), value.get<std::string>()) != key.choices.end();
    }
    case Kind::flag: return value.is_boolean();
    case Kind::group: return value.is_object();
    case Kind::shape:
      return value.is_array() && !value.empty() && value.size() <= 8 &&
             std::all_of(value.begin(), value.end(), [&](const json& entry) { return in_range(entry, key, true); });
    default: return in_range(value, key, key.kind == Kind::whole);
  }
}

std::string plain(double value) {
  char text[40];
  const bool small = value < 1e6 && value != std::floor(value);
  std::snprintf(text, sizeof text, small ? "%g" : "%.0f", value);
  return text;
}

std::string wanted(const Key& key) {
  if (key.kind == Kind::flag) return "true or false";
  if (key.kind == Kind::group) return "an object";
  if (key.kind == Kind::text) {
    std::string list;
    for (const auto& choice : key.choices) list += (list.empty() ? "one of " : ", ") + choice;
    return list.empty() ? "a text" : list;
  }
  const std::string what = key.kind == Kind::whole   ? "a whole number"
                           : key.kind == Kind::shape ? "a list of whole numbers"
                                                     : "a number";
  return what + (key.above ? " above " : " from ") + plain(key.low) +
         (key.high >= kMany ? "" : " to " + plain(key.high)) + (key.null ? " or null" : "");
}

std::string shown(const std::string& name, const json& value) {
  if (name == "token") return "what stands there";  // a secret does not belong into an error
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

void check_group(const json& raw, const Table& table, const std::string& where, const std::string& prefix) {
  for (const auto& [name, value] : raw.items()) {
    const auto found = table.find(name);
    if (found == table.end()) {
      std::vector<std::string> known;
      for (const auto& [key, unused] : table) known.push_back(key);
      throw ConfigError(where + ": there is no key " + prefix + name + nearest(name, known));
    }
    if (!fits(value, found->second))
      throw ConfigError(where + ": " + prefix + name + " must be " + wanted(found->second) + ", not " + shown(name, value));
  }
}

// A stranger's algorithm names its own parameters, and the gateway checks them; what is read here is checked here.
void check_parameters(const json& raw, const std::string& algorithm, const std::string& where) {
  const auto& known = known_algorithms();
  if (std::find(known.begin(), known.end(), algorithm) != known.end())
    return check_group(raw, parameter_keys(), where, "algorithm_parameters.");
  json shapes = json::object();
  for (const auto& name : shape_parameters())
    if (raw.contains(name)) shapes[name] = raw.at(name);
  check_group(shapes, parameter_keys(), where, "algorithm_parameters.");
}

// Levenshtein's distance.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t before = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t now = std::min({row[j] + 1, row[j - 1] + 1, before + (a[i - 1] == b[j - 1] ? 0 : 1)});
      before = row[j];
      row[j] = now;
    }
  }
  return row[b.size()];
}

}  // namespace

void check_keys(const json& raw, const std::string& where) {
  if (!raw.is_object())
    throw ConfigError(where + " must hold one object with keys such as 'client_id', not " + shown("", raw));
  check_group(raw, top_keys(), where, "");
  for (const auto& [group, table] : group_keys())
    if (raw.contains(group)) check_group(raw.at(group), table, where, group + ".");
  if (raw.contains("algorithm_parameters"))
    check_parameters(raw.at("algorithm_parameters"), lower_case(raw.value("algorithm_name", "ppo")), where);
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

std::string nearest(const std::string& word, std::vector<std::string> known) {
  std::sort(known.begin(), known.end());
  const auto best = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return distance(word, a) < distance(word, b);
  });
  if (best != known.end() && 2 * distance(word, *best) <= std::max(word.size(), best->size()))
    return "; did you mean '" + *best + "'?";
  if (known.empty() || known.size() > 12) return "";
  std::string list;
  for (const auto& name : known) list += (list.empty() ? "; known: " : ", ") + name;
  return list;
}

}  // namespace penstock
