#include "penstock/configuration.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "key_table.hpp"
#include "keys.hpp"
#include "penstock/errors.hpp"
#include "token.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kMaxFile = 1 << 20;
constexpr std::size_t kMaxObservation = 1 << 20;  // numbers in one, as input_size has it
constexpr int kMaxDepth = 32;                     // of objects and lists; a deeper file would exhaust the stack

json group(const json& raw, const char* name) { return raw.value(name, json::object()); }

// More than kMaxObservation where it is more; never so many that they do not fit into a number.
std::size_t product(const std::vector<std::size_t>& shape) {
  std::size_t result = 1;
  for (const auto size : shape)
    if (result <= kMaxObservation) result *= size;
  return result;
}

std::vector<std::size_t> sizes_of(const json& list) {
  std::vector<std::size_t> result;
  for (const auto& entry : list) result.push_back(static_cast<std::size_t>(entry.get<double>()));
  return result;
}

std::optional<std::string> text_of(const json& raw, const char* name) {
  if (!raw.contains(name)) return std::nullopt;
  return raw.at(name).get<std::string>();
}

bool made_of(const std::string& text, const char* also, const std::function<int(int)>& kind) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char letter) {
    return letter < 128 && (kind(letter) != 0 || std::strchr(also, letter) != nullptr);
  });
}

// [A-Za-z0-9][A-Za-z0-9._-]{0,63}
bool is_policy_name(const std::string& name) {
  return name.size() <= 64 && made_of(name, "._-", isalnum) && std::isalnum(static_cast<unsigned char>(name[0]));
}

// HOST:PORT or [ADDRESS]:PORT
bool is_address(const std::string& address) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || address.size() > 300) return false;
  const std::string host = address.substr(0, colon), port = address.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool is_port = port.size() <= 5 && made_of(port, "", isdigit) && std::stoi(port) >= 1 && std::stoi(port) <= 65535;
  return is_port &&
         (bracketed ? made_of(host.substr(1, host.size() - 2), ":", isxdigit) : made_of(host, "._-", isalnum));
}

std::optional<Shape> shape_of(const json& raw, const std::string& where) {
  const json parameters = group(raw, "algorithm_parameters");
  const bool has_size = parameters.contains("input_size"), has_shape = raw.contains("observation_shape");
  const bool has_actions = parameters.contains("act_dim");
  Shape shape;
  if (has_shape)
    shape.observation = sizes_of(raw.at("observation_shape"));
  else if (has_size)
    shape.observation = {static_cast<std::size_t>(parameters.at("input_size").get<double>())};
  if (product(shape.observation) > kMaxObservation)
    throw ConfigError(where + ": observation_shape must have at most " + std::to_string(kMaxObservation) +
                      " entries in all, not " + raw.at("observation_shape").dump());
  if (has_size && has_shape && parameters.at("input_size").get<double>() != static_cast<double>(product(shape.observation)))
    throw ConfigError(where + ": algorithm_parameters.input_size is " + parameters.at("input_size").dump() +
                      ", but observation_shape has " + std::to_string(product(shape.observation)) +
                      " entries; leave one out");
  if (!(has_size || has_shape) != !has_actions)
    throw ConfigError(where + ": algorithm_parameters." + (has_actions ? "input_size" : "act_dim") +
                      " is missing; it says what the policy sees and does");
  if (!has_actions) return std::nullopt;
  const bool sac = lower_case(raw.value("algorithm_name", "")) == "sac";
  shape.continuous = raw.value("continuous", sac);
  if (sac && !shape.continuous)
    throw ConfigError(where + ": SAC acts with numbers; leave continuous out or write true");
  shape.masked = raw.value("masked", false);
  if (shape.continuous && shape.masked)
    throw ConfigError(where + ": masked is for choices; with continuous actions leave it out");
  shape.actions = static_cast<std::size_t>(parameters.at("act_dim").get<double>());
  shape.limit = static_cast<float>(raw.value("act_limit", 1.0));
  return shape;
}

std::string plain(float number) {
  char text[40];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(number));
  return text;
}

bool safe_fits(const json& action, const std::vector<double>& numbers, const Shape& shape) {
  if (!shape.continuous)
    return action.is_number_integer() && numbers[0] >= 0 && numbers[0] < static_cast<double>(shape.actions);
  return numbers.size() == shape.actions &&
         std::all_of(numbers.begin(), numbers.end(), [&](double number) { return std::abs(number) <= shape.limit; });
}

std::vector<float> safe_action_of(const json& raw, const std::optional<Shape>& shape, const std::string& where) {
  const json action = group(raw, "fallback").value("action", json());
  if (action.is_null()) return {};
  std::vector<double> numbers;
  bool fits = action.is_number() || (action.is_array() && !action.empty());
  for (const auto& entry : action.is_array() ? action : json::array({action})) {
    fits = fits && entry.is_number();
    if (fits) numbers.push_back(entry.get<double>());
  }
  if (fits && shape) fits = safe_fits(action, numbers, *shape);
  if (fits) return {numbers.begin(), numbers.end()};
  std::string wanted = "a number or a list of numbers";
  if (shape && shape->continuous)
    wanted = std::to_string(shape->actions) + " numbers within ±" + plain(shape->limit) + " (act_limit)";
  else if (shape)
    wanted = "a whole number from 0 to " + std::to_string(shape->actions - 1);
  throw ConfigError(where + ": fallback.action must be " + wanted + ", not " + action.dump());
}

// Whether a file holds such a thing in PEM; a long one is looked at only as far as certificates reach.
bool holds(const std::string& file, const std::string& kind) {
  std::ifstream opened(file, std::ios::binary);
  std::string content(kMaxFile, '\0');
  opened.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(opened.gcount()));
  return content.find(kind + "-----") != std::string::npos;
}

std::optional<Tls> tls_of(const json& raw, const std::string& where) {
  if (!raw.contains("tls")) return std::nullopt;
  const json& given = raw.at("tls");
  if (given.contains("cert") != given.contains("key"))
    throw ConfigError(where + ": tls.cert and tls.key belong together; give both or neither");
  Tls tls;
  for (auto [key, file] : {std::pair{"ca", &tls.ca}, std::pair{"cert", &tls.cert}, std::pair{"key", &tls.key}}) {
    if (!given.contains(key)) continue;
    *file = expanded(given.at(key).get<std::string>());
    if (!std::filesystem::is_regular_file(*file))
      throw ConfigError(where + ": tls." + key + " names " + *file + ", which is not a file");
    const std::string kind = file == &tls.key ? "PRIVATE KEY" : "CERTIFICATE";
    if (!holds(*file, kind))
      throw ConfigError(where + ": tls." + key + " names " + *file + ", which holds no " + kind + " in PEM");
  }
  return tls;
}

Mode mode_of(const std::string& name) {
  return name == "shadow" ? Mode::shadow : name == "off" ? Mode::off : Mode::act;
}

Configuration configuration_of(const json& raw, const std::string& where) {
  check_keys(raw, where);
  Configuration result;
  result.policy = raw.value("client_id", "");
  if (!is_policy_name(result.policy))
    throw ConfigError(where + ": client_id must name the policy with 1 to 64 letters, digits, '.', '_' or '-', " +
                      "beginning with a letter or digit, not '" + result.policy.substr(0, 80) + "'");
  result.shape = shape_of(raw, where);
  result.address = raw.value("train_server_address", result.address);
  if (!is_address(result.address))
    throw ConfigError(where + ": train_server_address must be HOST:PORT, not '" + result.address.substr(0, 80) + "'");
  json trained = json::object();
  for (const auto& key : trained_keys())
    if (raw.contains(key)) trained[key] = raw.at(key);
  result.trained = trained.dump();
  result.token = find_token(text_of(raw, "token"), text_of(raw, "token_file"), result.address, where);
  result.tls = tls_of(raw, where);
  result.insecure = raw.value("insecure", false);
  check_secrecy(result, where);
  result.max_traj_length = static_cast<std::size_t>(raw.value("max_traj_length", static_cast<double>(result.max_traj_length)));
  result.send_frequency = static_cast<std::size_t>(raw.value("send_frequency", static_cast<double>(result.send_frequency)));
  result.flush_seconds = raw.value("flush_seconds", result.flush_seconds);
  result.poll_seconds = raw.value("poll_seconds", result.poll_seconds);
  result.deadline_seconds = raw.value("deadline_ms", 1000 * result.deadline_seconds) / 1000;
  result.mode = mode_of(raw.value("mode", "act"));
  result.remote = raw.value("inference", "local") == "remote";
  const json spool = group(raw, "spool");
  const std::string folder = spool.value("folder", home_folder() + "/clients/spool");
  result.spool_folder = expanded(folder) + "/" + result.policy;
  result.spool_bytes = static_cast<std::size_t>(spool.value("max_bytes", static_cast<double>(result.spool_bytes)));
  result.safe_action = safe_action_of(raw, result.shape, where);
  return result;
}

}  // namespace

Configuration load_configuration(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".yaml" || ending == ".yml") throw ConfigError(path + " is YAML; the C++ client reads JSON only");
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw ConfigError(path + " cannot be read: " + error.message());
  if (size > kMaxFile)
    throw ConfigError(path + " is larger than " + std::to_string(kMaxFile) + " bytes; it is not a client's configuration");
  std::ifstream file(path, std::ios::binary);
  return parse_configuration({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, path);
}

Configuration parse_configuration(const std::string& text, const std::string& where) {
  json raw;
  try {
    raw = json::parse(text, [&](int depth, json::parse_event_t, json&) {
      if (depth > kMaxDepth) throw ConfigError(where + " is not JSON: it is nested more than " + std::to_string(kMaxDepth) + " deep");
      return true;
    });
  } catch (const json::exception& error) {
    throw ConfigError(where + " is not JSON: " + error.what());
  }
  return configuration_of(raw, where);
}

}  // namespace penstock
