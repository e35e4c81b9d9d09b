// What a policy sees and does, and the shape of its network: PolicyDescription of src/penstock/model/policy.py.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace penstock {

enum class Head { categorical, multi_categorical, gaussian, squashed_gaussian, q };
enum class Body { mlp, cnn, items };

struct Column {
  std::string name;
  std::vector<std::size_t> shape;
  bool bytes = false;  // uint8 instead of float32

  std::size_t size() const;
  bool image() const { return shape.size() == 3; }
  bool matrix() const { return shape.size() == 2; }
};

struct Convolution {
  std::size_t channels, kernel, stride;
};

struct Description {
  Head head = Head::categorical;
  Body body = Body::mlp;
  bool duelling = false;
  std::vector<Column> columns;           // in their order, which the network depends on
  std::vector<std::size_t> sizes;        // categories of each part; empty for a Box
  std::vector<int> start;                // what the environment adds to choice 0
  std::vector<float> low, high;          // of each entry of a Box
  bool masked = false;
  std::vector<std::size_t> hidden;
  bool tanh = true;
  std::vector<Convolution> convolutions;
  bool normalize = false;

  bool box() const { return sizes.empty(); }
  // Numbers of one action: parts, or entries of the Box.
  std::size_t parts() const { return box() ? low.size() : sizes.size(); }
  // Width of a mask or of the logits.
  std::size_t choices() const;
  // Numbers the network gives: logits, Q-values, or means and log deviations.
  std::size_t width() const { return box() ? 2 * low.size() : choices(); }
  bool normalized(const Column& column) const { return normalize && !column.image(); }
};

// Throws Damaged where the text is not a description or its parts do not fit together.
Description description_of(const std::string& json);

}  // namespace penstock
