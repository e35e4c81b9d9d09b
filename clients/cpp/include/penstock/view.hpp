// A look at numbers that somebody else keeps; C++17 has no std::span.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <vector>

namespace penstock {

template <typename T>
class View {
 public:
  View() = default;
  View(const T* data, std::size_t size) : data_(data), size_(size) {}
  View(const std::vector<T>& all) : data_(all.data()), size_(all.size()) {}  // NOLINT: meant to convert
  template <std::size_t N>
  View(const std::array<T, N>& all) : data_(all.data()), size_(N) {}  // NOLINT: meant to convert

  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  const T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace penstock
