// A gateway inside the test: it speaks the messages of penstock.v1, keeps what it is given, and can be told to fail.
// The real gateway is met in tests/integration/test_cpp_client.py.
#pragma once

#include <zlib.h>

#include <atomic>
#include <cstring>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway.hpp"
#include "penstock/version.hpp"
#include "random.hpp"
#include "tensors.hpp"

namespace penstock {

inline Tensor tensor_of(std::vector<std::int64_t> shape, const std::vector<float>& numbers) {
  Tensor tensor{"<f4", std::move(shape), std::vector<unsigned char>(numbers.size() * 4)};
  if (!numbers.empty()) std::memcpy(tensor.bytes.data(), numbers.data(), tensor.bytes.size());
  return tensor;
}

// Fresh tensors of a 64×64 policy over `in` numbers.
inline Tensors fresh_policy(std::size_t in, std::size_t out, std::uint64_t seed) {
  Random random(seed);
  Tensors tensors;
  const auto dense = [&](const std::string& place, std::size_t rows, std::size_t columns) {
    std::vector<float> weight(rows * columns);
    for (auto& number : weight) number = 0.2f * random.normal();
    tensors[place + "/weight"] =
        tensor_of({static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)}, weight);
    tensors[place + "/bias"] = tensor_of({static_cast<std::int64_t>(columns)}, std::vector<float>(columns, 0.1f));
  };
  dense("policy/body/0", in, 64);
  dense("policy/body/1", 64, 64);
  dense("policy/output", 64, out);
  return tensors;
}

inline std::string safetensors_of(const Tensors& tensors) {
  std::string header = "{", data;
  for (const auto& [name, tensor] : tensors) {
    if (header.size() > 1) header += ",";
    header += "\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) header += (i ? "," : "") + std::to_string(tensor.shape[i]);
    const auto begin = data.size();
    data.append(tensor.bytes.begin(), tensor.bytes.end());
    header += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  std::string whole;
  for (int i = 0; i < 8; ++i) whole.push_back(static_cast<char>(header.size() >> (8 * i)));
  return whole + header + data;
}

inline std::string squeezed(const std::string& content) {
  uLongf size = compressBound(content.size());
  std::string result(size, '\0');
  compress(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(content.data()), content.size());
  result.resize(size);
  return result;
}

inline std::string description_text(std::size_t in, std::size_t out, bool masked = false) {
  return R"({"algorithm":"ppo","head":"categorical","spaces":{"observation":{"columns":{"observations":{"shape":[)" +
         std::to_string(in) + R"(],"dtype":"<f4"}},"leaves":[]},"action":{"kind":"discrete","sizes":[)" +
         std::to_string(out) + R"(],"start":[0],"masked":)" + (masked ? "true" : "false") +
         R"(},"exact":false},"network":{"body":"mlp","hidden":[64,64],"activation":"tanh"},"duelling":false})";
}

// A gaussian policy of two numbers within ±1.
inline std::string box_description_text(std::size_t in) {
  return R"({"algorithm":"ppo","head":"gaussian","spaces":{"observation":{"columns":{"observations":{"shape":[)" +
         std::to_string(in) + R"(],"dtype":"<f4"}},"leaves":[]},"action":{"kind":"box","shape":[2],"low":[-1,-1],)" +
         R"("high":[1,1],"masked":false},"exact":false},"network":{"body":"mlp","hidden":[64,64],"activation":"tanh"}})";
}

inline Tensors fresh_box_policy(std::size_t in, std::uint64_t seed) {
  Tensors tensors = fresh_policy(in, 2, seed);
  tensors["policy/log_std"] = tensor_of({2}, {0.5f, -0.5f});
  return tensors;
}

class ServedGateway : public Gateway {
 public:
  ServedGateway(std::size_t in, std::size_t out, bool masked = false)
      : ServedGateway(description_text(in, out, masked), fresh_policy(in, out, 1)) {}
  ServedGateway(std::string described, const Tensors& tensors) : description(std::move(described)) {
    publish({1, 0}, tensors);
  }

  // Both are read under the lock by the client's threads.
  void publish(Version version, const Tensors& tensors) {
    v1::FetchReply reply;
    const std::string raw = safetensors_of(tensors);
    reply.set_kind(v1::FetchReply::WHOLE);
    reply.mutable_version()->set_epoch(version.epoch);
    reply.mutable_version()->set_step(version.step);
    reply.set_description(description);
    reply.set_weights_sha256(weights_sha256(tensors));
    reply.set_part(squeezed(raw));
    reply.set_payload_bytes(reply.part().size());
    reply.set_raw_bytes(raw.size());
    publish(reply);
  }
  void publish(const v1::FetchReply& reply) {
    const std::lock_guard<std::mutex> guard(mutex_);
    newest_ = reply;
    changed_.notify_all();
  }
  // Hand out this reply to whoever has a version; who has none gets the whole.
  void set_delta(const v1::FetchReply& reply) {
    const std::lock_guard<std::mutex> guard(mutex_);
    delta_ = reply;
    changed_.notify_all();
  }

  Answer open(const v1::OpenRequest& request, v1::OpenReply& reply, double) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (making) changed_.wait(lock, [&] { return stopped_; });
    configuration = request.configuration();
    if (!refusal.empty()) return {Answer::refused, refusal};
    if (away) return {Answer::unavailable, "away"};
    reply.set_protocol(protocol);
    reply.set_run(run_);
    reply.set_note(note);
    ++opens;
    reply.set_description(description);
    return {};
  }

  Answer send(const v1::SendRequest& request, v1::SendReply& reply, double) override {
    std::unique_lock<std::mutex> lock(mutex_);
    ++sends;
    changed_.wait(lock, [&] { return !hanging_; });
    if (away) return {Answer::unavailable, "away"};
    for (const auto& trajectory : request.trajectories()) {
      auto* receipt = reply.add_receipts();
      receipt->set_sequence(trajectory.sequence());
      if (full) {
        receipt->set_outcome(v1::SendReply::LATER);
        receipt->set_reason("the queue is full");
        continue;
      }
      const bool fresh = seen_.emplace(request.source(), trajectory.sequence()).second;
      receipt->set_outcome(fresh ? v1::SendReply::STORED : v1::SendReply::DUPLICATE);
      if (fresh) stored_.push_back(trajectory);
      duplicates += fresh ? 0 : 1;
    }
    changed_.notify_all();
    if (lost_answers > 0) {
      --lost_answers;
      return {Answer::unavailable, "the answer was lost"};
    }
    return {};
  }

  Answer fetch(const v1::FetchRequest& request, const std::function<bool(v1::FetchReply&)>& take,
               double seconds) override {
    v1::FetchReply reply;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      ++fetches;
      wholes += request.has_have() ? 0 : 1;
      const auto news = [&] {
        return stopped_ || away || !request.has_have() || delta_ || newest_.version().step() > request.have().step();
      };
      changed_.wait_for(lock, std::chrono::duration<double>(std::min(seconds, request.wait_seconds())), news);
      if (away || stopped_) return {Answer::unavailable, "away"};
      reply.set_kind(v1::FetchReply::NOTHING);
      *reply.mutable_version() = newest_.version();
      if (!request.has_have() || newest_.version().step() > request.have().step()) reply = newest_;
      if (request.has_have() && delta_) reply = *std::exchange(delta_, std::nullopt);
    }
    take(reply);
    return {};
  }

  Answer act(const v1::ActRequest&, v1::ActReply& reply, double) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    ++acts;
    if (away) return {Answer::unavailable, "away"};
    reply.set_action(remote_action);
    reply.set_log_prob(-0.5f);
    reply.mutable_version()->set_epoch(1);
    return {};
  }

  void stop_bringing() override {
    const std::lock_guard<std::mutex> guard(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  void stop_sending() override { hang(false); }

  // Whether sends wait for as long as this lasts.
  void hang(bool hanging) {
    const std::lock_guard<std::mutex> guard(mutex_);
    hanging_ = hanging;
    changed_.notify_all();
  }
  // The run was deleted, and another one learns this policy.
  void begin_again(const std::string& run, Version version, const Tensors& tensors) {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      run_ = run;
    }
    publish(version, tensors);
  }

  // Wait until this many trajectories are here, or ten seconds have passed.
  std::vector<v1::Trajectory> stored(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return stored_.size() >= count; });
    return stored_;
  }

  const std::string description;
  std::string note;                    // set before a client is made
  bool making = false;                 // the same; a policy that is never ready
  std::string refusal, configuration;  // set `refusal` before a client is made, read the other after
  std::string remote_action = std::string("\1\0\0\0", 4);  // what `act` decides; set before a client is made
  std::atomic<bool> away{false}, full{false};
  std::atomic<int> lost_answers{0}, duplicates{0}, fetches{0}, wholes{0}, opens{0}, sends{0}, acts{0};
  std::atomic<std::uint32_t> protocol{1};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  v1::FetchReply newest_;
  std::optional<v1::FetchReply> delta_;
  std::set<std::pair<std::string, std::uint64_t>> seen_;
  std::vector<v1::Trajectory> stored_;
  std::string run_ = "run-1";
  bool stopped_ = false, hanging_ = false;
};

}  // namespace penstock
