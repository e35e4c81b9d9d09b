#include "fetching.hpp"

#include <algorithm>

#include "delta.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;  // a larger policy is for remote inference
constexpr std::size_t kMaxDescription = 1 << 20;

Version version_of(const v1::Version& version) { return {version.epoch(), version.step()}; }

}  // namespace

bool Arrival::take(v1::FetchReply& reply) {
  if (!first_) {
    const auto largest = std::max(reply.payload_bytes(), reply.raw_bytes());
    if (largest > kMaxBytes)
      throw Damaged("a version of " + std::to_string(largest) + " bytes is too large; use inference: remote");
    payload_ = std::move(*reply.mutable_part());
    reply.clear_part();
    first_ = std::move(reply);
    const bool something = first_->kind() == v1::FetchReply::DELTA || first_->kind() == v1::FetchReply::WHOLE;
    return something && payload_.size() < first_->payload_bytes();
  }
  if (reply.part().empty() || reply.part().size() > first_->payload_bytes() - payload_.size())
    throw Damaged("a version arrived with other bytes than announced");
  payload_ += reply.part();
  return payload_.size() < first_->payload_bytes();
}

std::optional<Held> Arrival::finish(const std::optional<Held>& held) const {
  if (!first_ || (first_->kind() != v1::FetchReply::DELTA && first_->kind() != v1::FetchReply::WHOLE))
    return std::nullopt;
  const Version version = version_of(first_->version());
  if (held && !(held->version < version)) return std::nullopt;
  if (payload_.size() != first_->payload_bytes())
    throw Damaged("a version ended after " + std::to_string(payload_.size()) + " of " +
                  std::to_string(first_->payload_bytes()) + " bytes");
  Held arrived{version, first_->weights_sha256(), tensors(held), {}, 0.0};
  if (weights_sha256(arrived.tensors) != arrived.sha256) {
    const std::string sentence = "version " + version.text() + " arrived with other weights than its hash says";
    if (first_->kind() == v1::FetchReply::DELTA) throw NotThisDelta(sentence);
    throw Damaged(sentence);
  }
  if (!all_finite(arrived.tensors)) throw Damaged("version " + version.text() + " has weights that are not finite");
  if (first_->description().size() > kMaxDescription) throw Damaged("a policy's description is too long");
  arrived.description =
      first_->description().empty() && held ? held->description : description_of(first_->description());
  const auto epsilon = first_->acting().find("epsilon");
  if (epsilon != first_->acting().end()) arrived.epsilon = epsilon->second;
  return arrived;
}

bool Arrival::older_than(const std::optional<Held>& held) const {
  return held && first_ && first_->has_version() && version_of(first_->version()) < held->version;
}

Tensors Arrival::tensors(const std::optional<Held>& held) const {
  if (first_->kind() == v1::FetchReply::WHOLE)
    return read_safetensors(inflate_exactly(payload_, first_->raw_bytes())).tensors;
  const Version base = version_of(first_->base());
  if (!held || held->version != base || held->sha256 != first_->base_sha256())
    throw NotThisDelta("a delta on " + base.text() + " arrived, but " + (held ? held->version.text() : "nothing") +
                       " is here");
  try {
    return apply_delta(held->tensors, payload_);
  } catch (const Damaged& error) {
    throw NotThisDelta(error.what());
  }
}

}  // namespace penstock
