#include "description.hpp"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "penstock/errors.hpp"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;  // the order of columns is the order of the network's inputs

constexpr std::size_t kMostNumbers = std::size_t{1} << 26;  // of one observation or layer; keeps products in range
constexpr float kUnbounded = 1e38f;

std::size_t product(const std::vector<std::size_t>& shape) {
  std::size_t result = 1;
  for (const auto size : shape) {
    if (size == 0 || size > kMostNumbers / result) throw Damaged("a description has a shape out of range");
    result *= size;
  }
  return result;
}

std::vector<std::size_t> sizes_of(const Json& list) {
  std::vector<std::size_t> result;
  for (const auto& entry : list) {
    const auto size = entry.get<std::int64_t>();
    if (size < 1 || static_cast<std::size_t>(size) > kMostNumbers) throw Damaged("a description has a size out of range");
    result.push_back(static_cast<std::size_t>(size));
  }
  return result;
}

template <typename T>
T named(const std::map<std::string, T>& names, const std::string& name, const char* what) {
  const auto found = names.find(name);
  if (found == names.end()) throw Damaged(std::string("this client knows no ") + what + " " + name + "; update it");
  return found->second;
}

Head head_of(const std::string& name) {
  static const std::map<std::string, Head> names = {{"categorical", Head::categorical},
                                                    {"multi_categorical", Head::multi_categorical},
                                                    {"gaussian", Head::gaussian},
                                                    {"squashed_gaussian", Head::squashed_gaussian},
                                                    {"q", Head::q}};
  return named(names, name, "head");
}

Body body_of(const std::string& name, const std::vector<Column>& columns) {
  static const std::map<std::string, Body> names = {{"mlp", Body::mlp}, {"cnn", Body::cnn}, {"items", Body::items}};
  if (name != "auto") return named(names, name, "network body");
  for (const auto& column : columns)
    if (column.image()) return Body::cnn;
  return Body::mlp;
}

void read_columns(const Json& columns, Description& result) {
  for (const auto& [name, facts] : columns.items()) {
    const auto dtype = facts.at("dtype").get<std::string>();
    if (dtype != "<f4" && dtype != "|u1")
      throw Damaged("this client knows no observations of type " + dtype + "; float32 and uint8 it does");
    result.columns.push_back({name, sizes_of(facts.at("shape")), dtype == "|u1"});
    product(result.columns.back().shape);
  }
  if (result.columns.empty()) throw Damaged("a description has no observation columns");
}

void read_action(const Json& action, Description& result) {
  const auto kind = action.at("kind").get<std::string>();
  result.masked = action.value("masked", false);
  if (kind == "box") {
    result.low = action.at("low").get<std::vector<float>>();
    result.high = action.at("high").get<std::vector<float>>();
    if (result.low.empty() || result.low.size() != result.high.size() ||
        result.low.size() != product(sizes_of(action.at("shape"))))
      throw Damaged("a description has a Box whose bounds do not fit its shape");
    return;
  }
  result.sizes = sizes_of(action.at("sizes"));
  if (result.sizes.empty()) throw Damaged("a description has an action without choices");
  if (kind == "discrete" && result.sizes.size() != 1) throw Damaged("a discrete action has one size");
  result.start = action.value("start", std::vector<int>{});
  result.start.resize(result.sizes.size(), 0);
}

void read_network(const Json& network, Description& result) {
  result.hidden = sizes_of(network.at("hidden"));
  const auto activation = network.at("activation").get<std::string>();
  static const std::map<std::string, bool> names = {{"tanh", true}, {"relu", false}};
  result.tanh = named(names, activation, "activation");
  result.normalize = network.value("normalize_observations", false);
  for (const auto& layer : network.value("convolutions", Json::array())) {
    const auto numbers = sizes_of(layer);
    if (numbers.size() != 3) throw Damaged("a convolution is (channels, kernel, stride)");
    result.convolutions.push_back({numbers[0], numbers[1], numbers[2]});
  }
  result.body = body_of(network.at("body").get<std::string>(), result.columns);
}

void check_items(const Description& description) {
  std::size_t matrices = 0, items = 0;
  bool images = false;
  for (const auto& column : description.columns) {
    images = images || column.image();
    if (column.matrix()) items = column.shape[0], ++matrices;
  }
  if (matrices != 1 || images) throw Damaged("network.body items needs exactly one matrix and no image");
  if (description.sizes != std::vector<std::size_t>{items})
    throw Damaged("network.body items chooses one of " + std::to_string(items) + " items and nothing else");
}

void check(const Description& description, const std::string& kind) {
  static const std::map<Head, std::string> kinds = {{Head::categorical, "discrete"},
                                                    {Head::multi_categorical, "multi_discrete"},
                                                    {Head::gaussian, "box"},
                                                    {Head::squashed_gaussian, "box"},
                                                    {Head::q, "discrete"}};
  if (kinds.at(description.head) != kind) throw Damaged("the policy's head cannot choose " + kind + " actions");
  if (description.duelling && description.head != Head::q) throw Damaged("duelling is for the q head only");
  if (description.head == Head::squashed_gaussian)
    for (std::size_t i = 0; i < description.low.size(); ++i)
      if (std::abs(description.low[i]) >= kUnbounded || std::abs(description.high[i]) >= kUnbounded)
        throw Damaged("a squashed gaussian needs finite bounds");
  if (description.body == Body::items) check_items(description);
}

}  // namespace

std::size_t Column::size() const { return product(shape); }

std::size_t Description::choices() const {
  std::size_t total = 0;
  for (const auto size : sizes) total += size;
  return total;
}

Description description_of(const std::string& text) {
  try {
    const auto json = Json::parse(text);
    const auto& spaces = json.at("spaces");
    Description result;
    result.head = head_of(json.at("head").get<std::string>());
    result.duelling = json.value("duelling", false);
    read_columns(spaces.at("observation").at("columns"), result);
    read_action(spaces.at("action"), result);
    read_network(json.at("network"), result);
    check(result, spaces.at("action").at("kind").get<std::string>());
    return result;
  } catch (const Json::exception& error) {
    throw Damaged(std::string("the policy's description cannot be read: ") + error.what());
  }
}

}  // namespace penstock
