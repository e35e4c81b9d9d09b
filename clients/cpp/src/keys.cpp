#include "keys.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "penstock/errors.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr double kMany = 1099511627776.0;  // 2^40: no upper end worth saying

enum class Kind { text, whole, number, flag, shape, group, any };

struct Key {
  Kind kind;
  double low = 0, high = kMany;
  std::vector<std::string> choices = {};
  bool null = false;
  bool above = false;  // whether `low` itself is not allowed
};

Key text(std::vector<std::string> choices = {}) { return {Kind::text, 0, kMany, std::move(choices)}; }
Key whole(double low, double high = kMany) { return {Kind::whole, low, high}; }
Key number(double low, double high) { return {Kind::number, low, high}; }
Key above(double low, double high, bool null = false) { return {Kind::number, low, high, {}, null, true}; }
Key shape() { return {Kind::shape, 1, 1 << 20}; }

using Table = std::map<std::string, Key>;

const Table& parameters() {
  static const Table table = {{"batch_size", whole(1, 1 << 20)},
                              {"act_dim", whole(1, 1 << 16)},
                              {"input_size", whole(1, 1 << 20)},
                              {"seed", whole(0, 9223372036854775807.0)},
                              {"traj_per_epoch", whole(1, 1 << 20)},
                              {"clip_ratio", above(0, 1)},
                              {"gamma", number(0, 1)},
                              {"lam", number(0, 1)},
                              {"pi_lr", above(0, 1)},
                              {"vf_lr", above(0, 1)},
                              {"q_lr", above(0, 1)},
                              {"train_pi_iters", whole(1, 100000)},
                              {"train_v_iters", whole(1, 100000)},
                              {"train_q_iters", whole(1, 100000)},
                              {"target_kl", above(0, 1e3, true)},
                              {"buf_size", whole(1, 1 << 30)},
                              {"epsilon", number(0, 1)},
                              {"epsilon_min", number(0, 1)},
                              {"epsilon_decay_steps", whole(1)},
                              {"polyak", number(0, 1)},
                              {"target_rate", above(0, 1)},
                              {"hidden_sizes", shape()},
                              {"activation", text({"tanh", "relu"})},
                              {"entropy", number(0, 1e3)},
                              {"ent_coef", number(0, 1e3)}};
  return table;
}

const std::map<std::string, Table>& groups() {
  static const std::map<std::string, Table> tables = {
      {"spool", {{"folder", text()}, {"max_bytes", whole(1 << 16)}}},
      {"fallback", {{"action", {Kind::any}}}},
      {"tls", {{"ca", text()}, {"cert", text()}, {"key", text()}}},
      {"network",
       {{"body", text({"auto", "mlp", "items"})}, {"hidden", shape()}, {"activation", text({"tanh", "relu"})}}}};
  return tables;
}

const Table& top() {
  static const Table table = {{"client_id", text()},
                              {"algorithm_name", text()},
                              {"algorithm_parameters", {Kind::group}},
                              {"act_limit", above(0, 1e6)},
                              {"max_traj_length", whole(1, 65536)},
                              {"type", text({"onpolicy", "offpolicy"})},
                              {"train_server_address", text()},
                              {"send_frequency", whole(1, 10000)},
                              {"token", text()},
                              {"token_file", text()},
                              {"tls", {Kind::group}},
                              {"insecure", {Kind::flag}},
                              {"deadline_ms", above(0, 60000)},
                              {"spool", {Kind::group}},
                              {"fallback", {Kind::group}},
                              {"mode", text({"act", "shadow", "off"})},
                              {"inference", text({"local", "remote"})},
                              {"flush_seconds", number(0.05, 3600)},
                              {"poll_seconds", number(0.05, 30)},
                              {"masked", {Kind::flag}},
                              {"network", {Kind::group}},
                              {"observation_shape", shape()},
                              {"continuous", {Kind::flag}}};
  return table;
}

bool in_range(const json& value, const Key& key, bool is_whole) {
  if (!value.is_number()) return false;
  const double given = value.get<double>();
  if (is_whole && (!std::isfinite(given) || given != std::floor(given))) return false;
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
  check_group(raw, top(), where, "");
  for (const auto& [group, table] : groups())
    if (raw.contains(group)) check_group(raw.at(group), table, where, group + ".");
  // a stranger's algorithm names its own parameters, and the gateway checks them
  static const std::set<std::string> ours = {"ppo", "dqn", "sac", "impala", "reinforce"};
  std::string algorithm = raw.value("algorithm_name", "ppo");
  std::transform(algorithm.begin(), algorithm.end(), algorithm.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  if (ours.count(algorithm) && raw.contains("algorithm_parameters"))
    check_group(raw.at("algorithm_parameters"), parameters(), where, "algorithm_parameters.");
}

const std::vector<std::string>& trained_keys() {
  static const std::vector<std::string> keys = {"client_id", "algorithm_name", "algorithm_parameters", "act_limit",
                                                "max_traj_length", "type", "masked", "network",
                                                "observation_shape", "continuous"};
  return keys;
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
