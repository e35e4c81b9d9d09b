// The thread that brings policies: opens ours at the gateway, fetches versions, and makes them ready.
#include "clock.hpp"
#include "courier.hpp"
#include "penstock/errors.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kProtocol = 1;
constexpr const char* kSoftware = "penstock-client/" PENSTOCK_RELEASE " c++/17";
constexpr double kOpenSeconds = 60.0;  // a new policy is made by a process of its own first
constexpr double kFetchSeconds = 30.0;  // beyond the long poll, for a large version on a slow link
constexpr std::size_t kBatchBytes = 3 << 20;

}  // namespace

void Courier::bring() {
  Pause pause;
  bool going = true;
  while (going) {
    Answer answer;
    try {
      if (!opened()) answer = open();
      if (answer.kind == Answer::ok) {
        if (!configuration_.remote)
          answer = fetch();
        else
          rest(kTickSeconds);
      }
      if (answer.kind != Answer::ok) {
        note_trouble(answer);
        // refused: a person may have mended it at the gateway since
        if (answer.kind != Answer::unavailable) set_opened(false);
      }
    } catch (const NotThisDelta& error) {
      counters_.trouble("delta", std::string(error.what()) + "; the whole version is asked for");
      fetch_whole_ = true;
      answer.kind = Answer::unavailable;
    } catch (const std::exception& error) {
      counters_.trouble("damaged", error.what());
      answer.kind = Answer::unavailable;
    }
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      // without shapes the application cannot begin, so a gateway that is away is not an answer yet
      if (answer.kind != Answer::unavailable || layout_) answered_ = true;
    }
    changed_.notify_all();
    if (answer.kind == Answer::ok) pause.after_success();
    going = rest(answer.kind == Answer::ok ? 0.0 : pause.after_failure());
  }
}

Answer Courier::open() {
  v1::OpenRequest request;
  request.set_protocol(kProtocol);
  request.set_policy(configuration_.policy);
  request.set_configuration(configuration_.trained);
  request.set_software(kSoftware);
  v1::OpenReply reply;
  Answer answer = gateway_->open(request, reply, kOpenSeconds);
  if (answer.kind == Answer::ok) {
    std::string sentence;
    if (reply.protocol() != kProtocol)
      sentence = "the gateway at " + configuration_.address + " speaks protocol " + std::to_string(reply.protocol()) +
                 ", this client " + std::to_string(kProtocol) + "; bring both to the same release";
    else
      try {
        const Layout there = layout_of(description_of(reply.description()));
        const std::lock_guard<std::mutex> guard(mutex_);
        if (!layout_) layout_ = std::make_shared<const Layout>(there);
        sentence = disagreement(*layout_, there);
        if (!sentence.empty()) sentence += "; correct the configuration or choose another client_id";
      } catch (const ConfigError& error) {
        sentence = error.what();
      }
    if (!sentence.empty()) answer = {Answer::refused, sentence};
  }
  if (answer.kind == Answer::refused) refuse(answer.text);
  if (answer.kind != Answer::ok) return answer;
  refuse("");
  if (!reply.note().empty()) counters_.trouble("otherwise", reply.note());
  if (reply.max_message_bytes() != 0)
    outbox_.set_max_bytes(std::min<std::size_t>(kBatchBytes, std::size_t{reply.max_message_bytes()} * 3 / 4));
  if (reply.run() != run_) run_ = reply.run(), held_.reset();  // another run counts its versions anew
  outbox_.set_run(run_);
  counters_.note("the run " + run_ + " learns the policy " + configuration_.policy);
  set_opened(true);
  return answer;
}

Answer Courier::fetch() {
  v1::FetchRequest request;
  request.set_policy(configuration_.policy);
  request.set_wait_seconds(fetch_whole_ ? 0.0 : configuration_.poll_seconds);
  *request.mutable_figures() = reporter_.report(outbox_.waiting());
  if (held_ && !fetch_whole_) {
    request.mutable_have()->set_epoch(held_->version.epoch);
    request.mutable_have()->set_step(held_->version.step);
    request.set_have_sha256(held_->sha256);
  }
  const auto asked = Clock::now();
  Arrival arrival;
  std::string damage;  // no exception may pass through the RPC library
  const Answer answer = gateway_->fetch(
      request,
      [&](v1::FetchReply& reply) {
        try {
          return arrival.take(reply);
        } catch (const Damaged& error) {
          damage = error.what();
          return false;
        }
      },
      configuration_.poll_seconds + kFetchSeconds);
  if (answer.kind != Answer::ok) return answer;
  if (!damage.empty()) throw Damaged(damage);
  auto arrived = arrival.finish(held_);
  fetch_whole_ = false;
  // within a run versions never go back, so ask which run this is; `open` lets go of what is held where it is another
  const std::string run = run_;
  if (arrival.older_than(held_)) {
    const Answer reopened = open();
    if (reopened.kind != Answer::ok || run_ != run) return reopened;
  }
  if (arrived)
    use(std::move(*arrived));
  else if (Clock::now() - asked < std::chrono::milliseconds(50))
    rest(0.2);  // a gateway that does not wait must not be asked without end
  return answer;
}

// Make it ready here, then let the application have it by one pointer.
void Courier::use(Held arrived) {
  const auto here = layout();
  const std::string sentence = here ? disagreement(*here, layout_of(arrived.description)) : "it came before its policy was opened";
  if (!sentence.empty())
    throw Damaged("version " + arrived.version.text() + " is of another shape and is not used: " + sentence);
  auto decider =
      std::make_shared<const Decider>(arrived.description, arrived.tensors, arrived.version, arrived.epsilon);
  const double taken = decider->trial();
  held_ = std::move(arrived);
  if (taken > configuration_.deadline_seconds) {
    counters_.trouble("slow_version", "version " + held_->version.text() + " needs " + std::to_string(taken * 1e3) +
                                          " ms a decision, more than deadline_ms allows; the version before it stays");
    return;
  }
  swap_.lay(std::move(decider));
  counters_.swapped();
  counters_.note("version " + held_->version.text() + " decides");
}

}  // namespace penstock
