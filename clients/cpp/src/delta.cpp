#include "delta.hpp"

#include <zlib.h>

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "penstock/errors.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kSign = 0x80000000u;

// Integers in the order of the numbers: negative ones have all bits turned, others only the sign.
std::uint32_t ordered(std::uint32_t bits) { return bits & kSign ? ~bits : bits | kSign; }
std::uint32_t number(std::uint32_t order) { return order & kSign ? order & ~kSign : ~order; }
std::uint32_t unfolded(std::uint32_t folded) { return folded >> 1 ^ (folded & 1 ? 0xFFFFFFFFu : 0u); }
std::size_t exponent(std::uint32_t bits) { return bits >> 23 & 0xFFu; }

std::uint32_t bits_at(const Tensor& tensor, std::size_t place) {
  std::uint32_t bits;
  std::memcpy(&bits, &tensor.bytes[place], 4);
  return bits;
}

// Differences lie in the order of the exponents of what they change: where those of each exponent begin.
std::array<std::size_t, 256> first_places(const Tensors& base) {
  std::array<std::size_t, 256> places{};
  for (const auto& [name, tensor] : base)
    for (std::size_t i = 0; i < tensor.bytes.size(); i += 4) ++places[exponent(bits_at(tensor, i))];
  std::size_t sum = 0;
  for (auto& place : places) sum += std::exchange(place, sum);
  return places;
}

}  // namespace

std::string inflate_exactly(std::string_view squeezed, std::size_t size) {
  constexpr auto kMost = std::numeric_limits<uInt>::max();
  if (squeezed.size() >= kMost || size >= kMost) throw Damaged("squeezed data is larger than 4 GiB");
  // one byte more than wanted, so that too much is seen as such and not cut off
  std::string result(size + 1, '\0');
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) throw Damaged("zlib does not start");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(squeezed.data()));
  stream.avail_in = static_cast<uInt>(squeezed.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  const int code = inflate(&stream, Z_FINISH);
  const std::size_t made = result.size() - stream.avail_out;
  const bool whole = code == Z_STREAM_END && stream.avail_in == 0 && made == size;
  inflateEnd(&stream);
  if (!whole)
    throw Damaged("squeezed data gives " + std::to_string(made) + " bytes where " + std::to_string(size) + " belong");
  result.resize(size);
  return result;
}

Tensors apply_delta(const Tensors& base, std::string_view delta) {
  std::size_t total = 0;
  for (const auto& [name, tensor] : base) {
    if (!tensor.is_float32()) throw Damaged("a delta needs float32 tensors, " + name + " is " + tensor.dtype);
    total += tensor.bytes.size() / 4;
  }
  const std::string planes = inflate_exactly(delta, total * 4);
  const auto plane = [&](std::size_t which, std::size_t at) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(planes[which * total + at]));
  };
  Tensors result = base;
  auto next = first_places(base);
  for (auto& [name, tensor] : result) {
    for (std::size_t i = 0; i < tensor.bytes.size(); i += 4) {
      std::uint32_t bits = bits_at(tensor, i);
      const std::size_t at = next[exponent(bits)]++;
      const std::uint32_t folded = plane(0, at) << 24 | plane(1, at) << 16 | plane(2, at) << 8 | plane(3, at);
      bits = number(ordered(bits) + unfolded(folded));
      std::memcpy(&tensor.bytes[i], &bits, 4);
    }
  }
  return result;
}

}  // namespace penstock
