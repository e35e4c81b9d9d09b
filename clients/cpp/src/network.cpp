#include "network.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "penstock/errors.hpp"

namespace penstock {
namespace {

using Eigen::Index;
using Matrix = Eigen::MatrixXf;
using Vector = Eigen::VectorXf;
using MatrixMap = Eigen::Map<Matrix>;
using ConstMatrixMap = Eigen::Map<const Matrix>;
using VectorMap = Eigen::Map<Vector>;
using ConstVectorMap = Eigen::Map<const Vector>;

constexpr float kClip = 10.0f;       // deviations at which normalised observations are cut
constexpr float kEpsilon = 1e-8f;    // added to a variance before its root
constexpr float kLowest = -20.0f, kHighest = 2.0f;  // a squashed gaussian's log deviation

Index at(std::size_t number) { return static_cast<Index>(number); }

// Python's row-major [in, out] is a column-major (out × in) here: y = W x + b without a transposition.
struct Dense {
  Matrix weight;
  Vector bias;

  void apply(const float* x, float* y) const {
    VectorMap result(y, bias.size());
    result = bias;
    result.noalias() += weight * ConstVectorMap(x, weight.cols());
  }
  void apply(const float* x, float* y, std::size_t rows) const {
    if (rows == 1) return apply(x, y);
    MatrixMap result(y, bias.size(), at(rows));
    result.noalias() = weight * ConstMatrixMap(x, weight.cols(), at(rows));
    result.colwise() += bias;
  }
  std::size_t out() const { return static_cast<std::size_t>(bias.size()); }
};

struct Normalizer {
  Vector mean, factor;

  void apply(float* x, std::size_t rows) const {
    for (std::size_t row = 0; row < rows; ++row) {
      VectorMap values(x + row * static_cast<std::size_t>(mean.size()), mean.size());
      values = ((values - mean).cwiseProduct(factor)).cwiseMax(-kClip).cwiseMin(kClip);
    }
  }
};

struct Filter {
  Dense dense;
  std::size_t height, width, channels, kernel, stride, out_height, out_width;

  std::size_t patch() const { return kernel * kernel * channels; }
  std::size_t places() const { return out_height * out_width; }

  // A VALID convolution of [height, width, channels], as one product of patches and weights, then relu.
  void apply(const float* x, float* y, float* patches) const {
    float* to = patches;
    for (std::size_t row = 0; row < out_height; ++row)
      for (std::size_t column = 0; column < out_width; ++column)
        for (std::size_t i = 0; i < kernel; ++i, to += kernel * channels)
          std::memcpy(to, x + ((row * stride + i) * width + column * stride) * channels,
                      kernel * channels * sizeof(float));
    dense.apply(patches, y, places());
    VectorMap result(y, at(places() * dense.out()));
    result = result.cwiseMax(0.0f);
  }
};

const Tensor& tensor_of(const Tensors& tensors, const std::string& name, const std::vector<std::int64_t>& shape) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw Damaged("the policy has no tensor " + name);
  if (found->second.shape != shape) throw Damaged("the tensor " + name + " has another shape than the description says");
  return found->second;
}

Vector vector_of(const Tensors& tensors, const std::string& name, const std::vector<std::int64_t>& shape) {
  const auto numbers = tensor_of(tensors, name, shape).floats();
  return ConstVectorMap(numbers.data(), at(numbers.size()));
}

Dense dense_of(const Tensors& tensors, const std::string& place, std::size_t in, std::size_t out,
               std::vector<std::int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<std::int64_t>(in), static_cast<std::int64_t>(out)};
  const auto weight = tensor_of(tensors, place + "/weight", shape).floats();
  return {ConstMatrixMap(weight.data(), at(out), at(in)),
          vector_of(tensors, place + "/bias", {static_cast<std::int64_t>(out)})};
}

std::vector<Filter> filters_of(const Description& description, const Tensors& tensors, const Column& column) {
  std::vector<Filter> result;
  std::size_t height = column.shape[0], width = column.shape[1], channels = column.shape[2], i = 0;
  for (const auto& [out, kernel, stride] : description.convolutions) {
    if (height < kernel || width < kernel) throw Damaged("the image " + column.name + " is too small for its convolutions");
    const auto place = "policy/conv/" + column.name + "/" + std::to_string(i++);
    const auto k = static_cast<std::int64_t>(kernel);
    const std::vector<std::int64_t> shape = {k, k, static_cast<std::int64_t>(channels), static_cast<std::int64_t>(out)};
    Filter filter{dense_of(tensors, place, kernel * kernel * channels, out, shape),
                  height, width, channels, kernel, stride, (height - kernel) / stride + 1, (width - kernel) / stride + 1};
    height = filter.out_height, width = filter.out_width, channels = out;
    result.push_back(std::move(filter));
  }
  return result;
}

}  // namespace

struct Network::Layers {
  // How one column becomes part of the network's input.
  struct Entry {
    const Column column;
    std::size_t size;
    bool rows;  // the matrix whose rows are items
    float scale;
    std::vector<Filter> filters;
    std::unique_ptr<Normalizer> normalizer;
    std::size_t out;  // numbers it adds to the input of one item
  };

  Description description;
  std::vector<Entry> entries;
  std::vector<Dense> hidden;
  Dense output, state;
  Vector log_std;
  std::size_t items = 1, in = 0, largest = 0, patches = 0;
  bool plain = false;  // one float column straight into dense layers

  Layers(const Description& described, const Tensors& tensors) : description(described) {
    for (const auto& column : description.columns) add(column, tensors);
    plain = entries.size() == 1 && entries[0].filters.empty() && !entries[0].normalizer && entries[0].scale == 1.0f;
    std::size_t width = in;
    for (std::size_t i = 0; i < description.hidden.size(); ++i) {
      hidden.push_back(dense_of(tensors, "policy/body/" + std::to_string(i), width, description.hidden[i]));
      width = description.hidden[i];
      largest = std::max(largest, width * items);
    }
    std::size_t out = description.width();
    if (description.body == Body::items) out = 1;
    if (description.head == Head::gaussian) {
      out /= 2;
      log_std = vector_of(tensors, "policy/log_std", {static_cast<std::int64_t>(out)});
    }
    output = dense_of(tensors, "policy/output", width, out);
    if (description.duelling) state = dense_of(tensors, "policy/state", width, 1);
    largest = std::max({largest, width, in * items});
  }

  void add(const Column& column, const Tensors& tensors) {
    const bool rows = description.body == Body::items && column.matrix();
    Entry entry{column, column.size(), rows, column.image() && column.bytes ? 1.0f / 255.0f : 1.0f, {}, nullptr, 0};
    if (rows) items = column.shape[0];
    if (description.body == Body::cnn && column.image()) entry.filters = filters_of(description, tensors, column);
    if (description.normalized(column)) entry.normalizer = normalizer_of(column, rows, tensors);
    entry.out = rows ? column.shape[1] : entry.size;
    for (const auto& filter : entry.filters) {
      entry.out = filter.places() * filter.dense.out();
      patches = std::max(patches, filter.patch() * filter.places());
      largest = std::max(largest, entry.out);
    }
    largest = std::max(largest, entry.size);
    in += entry.out;
    entries.push_back(std::move(entry));
  }

  static std::unique_ptr<Normalizer> normalizer_of(const Column& column, bool rows, const Tensors& tensors) {
    std::vector<std::int64_t> shape(column.shape.begin(), column.shape.end());
    if (rows) shape = {shape.back()};
    const auto place = "normalizer/" + column.name;
    auto result = std::make_unique<Normalizer>();
    result->mean = vector_of(tensors, place + "/mean", shape);
    const Vector variance = vector_of(tensors, place + "/variance", shape);
    if (variance.minCoeff() < 0.0f) throw Damaged("the tensor " + place + "/variance is negative");
    result->factor = (variance.array() + kEpsilon).sqrt().inverse();
    return result;
  }

  // One row of a column, scaled, convolved and normalised; may be `x` itself.
  const float* seen(const Entry& entry, const float* x, Scratch& scratch) const {
    if (entry.filters.empty() && !entry.normalizer && entry.scale == 1.0f) return x;
    float* now = scratch.first.data();
    float* next = scratch.second.data();
    VectorMap(now, at(entry.size)) = ConstVectorMap(x, at(entry.size)) * entry.scale;
    if (entry.normalizer)
      entry.normalizer->apply(now, entry.size / static_cast<std::size_t>(entry.normalizer->mean.size()));
    for (const auto& filter : entry.filters) {
      filter.apply(now, next, scratch.patches.data());
      std::swap(now, next);
    }
    return now;
  }

  // [items, in]: what is not an item is seen beside every item.
  void gather(const float* const* columns, Scratch& scratch) const {
    std::size_t beside = description.body == Body::items ? rows_width() : 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      const float* part = seen(entry, columns[i], scratch);
      const std::size_t place = entry.rows ? 0 : beside;
      for (std::size_t item = 0; item < items; ++item)
        std::memcpy(&scratch.input[item * in + place], part + (entry.rows ? item * entry.out : 0),
                    entry.out * sizeof(float));
      if (!entry.rows) beside += entry.out;
    }
  }

  std::size_t rows_width() const {
    for (const auto& entry : entries)
      if (entry.rows) return entry.out;
    return 0;
  }

  // The mean over items (rows of zeros are empty places and do not count).
  Vector pooled(const float* features, const float* const* columns) const {
    const auto width = output.weight.cols();
    const ConstMatrixMap all(features, width, at(items));
    if (description.body != Body::items) return all.col(0);
    Vector sum = Vector::Zero(width);
    float filled = 0.0f;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (!entries[i].rows) continue;
      const ConstMatrixMap rows(columns[i], at(entries[i].out), at(items));
      for (Index item = 0; item < at(items); ++item)
        if ((rows.col(item).array() != 0.0f).any()) sum += all.col(item), filled += 1.0f;
    }
    return sum / std::max(filled, 1.0f);
  }

  void activate(float* x, std::size_t size) const {
    Eigen::Map<Eigen::ArrayXf> values(x, at(size));
    if (description.tanh)
      values = values.tanh();
    else
      values = values.max(0.0f);
  }
};

Network::Network(const Description& description, const Tensors& tensors)
    : layers_(std::make_unique<const Layers>(description, tensors)) {}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;

void Network::prepare(Scratch& scratch) const {
  scratch.input.resize(layers_->in * layers_->items);
  scratch.first.resize(layers_->largest);
  scratch.second.resize(layers_->largest);
  scratch.patches.resize(layers_->patches);
}

void Network::outputs(const float* const* columns, float* result, Scratch& scratch) const {
  const Layers& layers = *layers_;
  const float* x = columns[0];
  if (!layers.plain) {
    layers.gather(columns, scratch);
    x = scratch.input.data();
  }
  float* next = scratch.first.data();
  float* other = scratch.second.data();
  for (const auto& dense : layers.hidden) {
    dense.apply(x, next, layers.items);
    layers.activate(next, dense.out() * layers.items);
    x = next;
    std::swap(next, other);
  }
  layers.output.apply(x, result, layers.items);
  const Description& description = layers.description;
  if (description.head == Head::gaussian)
    VectorMap(result + layers.log_std.size(), layers.log_std.size()) = layers.log_std;
  if (description.head == Head::squashed_gaussian) {
    VectorMap deviations(result + description.low.size(), at(description.low.size()));
    deviations = deviations.cwiseMax(kLowest).cwiseMin(kHighest);
  }
  if (description.duelling) {
    // Q = V + A − mean(A)   (Wang et al., 2016, eq. 9)
    const float value = layers.state.weight.row(0).dot(layers.pooled(x, columns)) + layers.state.bias(0);
    VectorMap advantages(result, at(description.width()));
    advantages.array() += value - advantages.mean();
  }
}

}  // namespace penstock
