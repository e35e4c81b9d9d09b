#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>

#include "gateway.hpp"
#include "penstock/errors.hpp"
#include "penstock_v1.grpc.pb.h"
#include "token.hpp"

namespace penstock {
namespace {

constexpr int kMaxMessage = 4 << 20;

std::string content_of(const std::string& path) {
  if (path.empty()) return "";
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file && text.empty()) throw ConfigError("tls: " + path + " cannot be read");
  return text;
}

std::shared_ptr<grpc::ChannelCredentials> credentials_of(const std::optional<Tls>& tls) {
  if (!tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = content_of(tls->ca);
  options.pem_cert_chain = content_of(tls->cert);
  options.pem_private_key = content_of(tls->key);
  return grpc::SslCredentials(options);
}

grpc::ChannelArguments arguments_of(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessage);
  arguments.SetMaxSendMessageSize(kMaxMessage);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // each client has a connection of its own; a shared one would outlive `close`
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (is_loopback(address)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

// Calls that can be ended from another thread.
class Calls {
 public:
  // False where they have been ended already.
  bool add(grpc::ClientContext* context) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!ended_) running_.insert(context);
    return !ended_;
  }
  void remove(grpc::ClientContext* context) {
    const std::lock_guard<std::mutex> guard(mutex_);
    running_.erase(context);
  }
  void end() {
    const std::lock_guard<std::mutex> guard(mutex_);
    ended_ = true;
    for (auto* context : running_) context->TryCancel();
  }

 private:
  std::mutex mutex_;
  std::set<grpc::ClientContext*> running_;
  bool ended_ = false;
};

// One call: its deadline, its token, and its place among those that can be ended.
struct Call {
  Call(Calls& calls, const std::string& bearer, double seconds) : all(calls) {
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6)));
    if (!bearer.empty()) context.AddMetadata("authorization", bearer);
    ended = !all.add(&context);
  }
  ~Call() { all.remove(&context); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Calls& all;
  grpc::ClientContext context;
  bool ended = false;
};

class GrpcGateway final : public Gateway {
 public:
  explicit GrpcGateway(const Configuration& configuration)
      : address_(configuration.address),
        bearer_(configuration.token.empty() ? "" : "Bearer " + configuration.token),
        stub_(v1::Gateway::NewStub(grpc::CreateCustomChannel(configuration.address, credentials_of(configuration.tls),
                                                             arguments_of(configuration.address)))) {}

  Answer open(const v1::OpenRequest& request, v1::OpenReply& reply, double seconds) override {
    Call call(bringing_, bearer_, seconds);
    return call.ended ? closing() : translated(stub_->Open(&call.context, request, &reply));
  }

  Answer send(const v1::SendRequest& request, v1::SendReply& reply, double seconds) override {
    Call call(sending_, bearer_, seconds);
    return call.ended ? closing() : translated(stub_->Send(&call.context, request, &reply));
  }

  Answer act(const v1::ActRequest& request, v1::ActReply& reply, double seconds) override {
    Call call(bringing_, bearer_, seconds);
    return call.ended ? closing() : translated(stub_->Act(&call.context, request, &reply));
  }

  Answer fetch(const v1::FetchRequest& request, const std::function<bool(v1::FetchReply&)>& take,
               double seconds) override {
    Call call(bringing_, bearer_, seconds);
    if (call.ended) return closing();
    const auto reader = stub_->Fetch(&call.context, request);
    v1::FetchReply reply;
    bool enough = false;
    while (!enough && reader->Read(&reply)) enough = !take(reply);
    if (enough) call.context.TryCancel();  // what follows is of no use
    const grpc::Status status = reader->Finish();
    return enough ? Answer{} : translated(status);
  }

  void stop_bringing() override { bringing_.end(); }
  void stop_sending() override { sending_.end(); }

 private:
  static Answer closing() { return {Answer::unavailable, "this client is closing"}; }

  Answer translated(const grpc::Status& status) const {
    if (status.ok()) return {};
    std::string details = status.error_message().substr(0, 500);
    std::replace_if(details.begin(), details.end(), [](unsigned char letter) { return letter < ' '; }, ' ');
    const std::string code = std::to_string(status.error_code());
    switch (status.error_code()) {
      case grpc::StatusCode::NOT_FOUND:
        return {Answer::not_found, "the gateway at " + address_ + " does not know this policy: " + details};
      case grpc::StatusCode::INVALID_ARGUMENT:
      case grpc::StatusCode::FAILED_PRECONDITION:
      case grpc::StatusCode::UNAUTHENTICATED:
      case grpc::StatusCode::PERMISSION_DENIED:
      case grpc::StatusCode::UNIMPLEMENTED:
        return {Answer::refused, "the gateway at " + address_ + " refuses: " + (details.empty() ? code : details)};
      default:
        return {Answer::unavailable, "the gateway at " + address_ + " does not answer (status " + code + "): " + details};
    }
  }

  const std::string address_, bearer_;
  const std::unique_ptr<v1::Gateway::Stub> stub_;
  Calls bringing_, sending_;
};

}  // namespace

std::unique_ptr<Gateway> connect_gateway(const Configuration& configuration) {
  check_secrecy(configuration, "the configuration");  // it may have been changed since it was read
  return std::make_unique<GrpcGateway>(configuration);
}

}  // namespace penstock
