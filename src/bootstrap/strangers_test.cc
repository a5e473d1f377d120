// Strangers at the door: they are dropped, and the ranks meet all the same.
#include <sys/socket.h>

#include <atomic>
#include <cstring>

#include "base/unique_fd.h"
#include "bootstrap/connect.h"
#include "bootstrap/handshake.h"
#include "bootstrap/loopback_testing.h"
#include "bootstrap/network.h"
#include "bootstrap/root.h"
#include "bootstrap/testing.h"

namespace nitinol {
namespace {

using testing::error_of;
using testing::join_all;
using testing::quick_options;
using testing::run_threads;

template <typename Bytes>
void send_bytes(const UniqueFd& fd, const Bytes& bytes) {
  // The other side may have hung up already, which is all right.
  [[maybe_unused]] const auto sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

/// Waits for the other side to close; true if it did so without a further byte.
bool closed_silently(const UniqueFd& fd) {
  char byte = 0;
  return ::recv(fd.get(), &byte, 1, 0) <= 0;
}

TEST(Strangers, GarbageAndWrongSecretsAreHungUpOn) {
  const UniqueId id = make_unique_id(quick_options());
  const UniqueFd garbage = connect_to(id.root);
  send_bytes(garbage, std::string(64, 'x'));
  EXPECT_TRUE(closed_silently(garbage));
  const UniqueFd unknown = connect_to(id.root);
  send_bytes(unknown, ClientHandshake(random_secret()).hello());
  EXPECT_TRUE(closed_silently(unknown));
  const UniqueFd request = connect_to(id.root);
  send_bytes(request, std::string("GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nUser-Agent: scanner\r\n\r\n"));
  EXPECT_TRUE(closed_silently(request));
}

TEST(Strangers, AWrongProofOfTheRightLengthIsHungUpOn) {
  const UniqueId id = make_unique_id(quick_options());
  // One that overheard the name of the key, but does not have the key.
  const UniqueFd fd = connect_to(id.root);
  send_bytes(fd, ClientHandshake(root_key(id.secret)).hello());
  AnswerBytes answer{};
  ASSERT_EQ(::recv(fd.get(), answer.data(), answer.size(), MSG_WAITALL), static_cast<ssize_t>(answer.size()));
  ProofBytes reflected;
  std::memcpy(reflected.data(), answer.data() + 32, 32);
  send_bytes(fd, reflected);
  EXPECT_TRUE(closed_silently(fd));
}

TEST(Strangers, ARootThatDoesNotKnowTheSecretIsNotBelieved) {
  BootstrapOptions options = quick_options();
  options.retry_count = 2;
  UniqueId id = make_unique_id(options);
  id.secret = random_secret();
  const Error error = error_of([&] { Bootstrap::join({{id}, 0, 1, options, nullptr}); });
  EXPECT_EQ(error.code(), ncclSystemError);
}

TEST(Strangers, ManyOfThemDoNotDisturbAJoin) {
  const auto options = quick_options();
  const UniqueId id = make_unique_id(options);
  std::vector<UniqueFd> silent;
  std::vector<UniqueFd> half;
  for (int i = 0; i < 700; ++i) silent.push_back(connect_to(id.root));
  for (int i = 0; i < 50; ++i) {
    half.push_back(connect_to(id.root));
    send_bytes(half.back(), std::string(10, 'n'));
  }
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    while (!stop) {
      const UniqueFd fd = connect_to(id.root);
      send_bytes(fd, std::string(200, 'y'));
      std::this_thread::yield();
    }
  });
  std::vector<std::unique_ptr<Bootstrap>> all(12);
  run_threads(12, [&](int rank) {
    auto& mine = all[static_cast<std::size_t>(rank)];
    mine = Bootstrap::join({{id}, rank, 12, options, nullptr});
    EXPECT_EQ(mine->all_gather_value(rank)[11], 11);
  });
  stop = true;
  flood.join();
  for (auto& one : all) EXPECT_FALSE(one->failure().has_value());
}

TEST(Strangers, AMemberThatSendsNonsenseToTheRootChangesNothing) {
  const auto options = quick_options();
  const UniqueId id = make_unique_id(options);
  std::vector<UniqueFd> nonsense;
  for (const FrameType type : {FrameType::kData, FrameType::kRegister, FrameType::kDone, FrameType::kFetch}) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    nonsense.push_back(connect_to_peer({id.root, root_key(id.secret), "the root", options, deadline, {}}));
    send_bytes(nonsense.back(), encode_frame(control_frame(type, std::vector(40, std::byte{0xff}))));
  }
  auto all = join_all(4, {id}, options);
  run_threads(4, [&](int rank) { all[static_cast<std::size_t>(rank)]->barrier(); });
}

}  // namespace
}  // namespace nitinol
