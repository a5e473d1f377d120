#include "diagnostics/ras/service.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "bootstrap/closed_descriptors_testing.h"
#include "bootstrap/waker.h"

namespace nitinol::ras {
namespace {

TEST(Service, StopsThoughTheProgramHasClosedItsDescriptors) {
  for (const char* const kind : {"anon_inode:[timerfd]", "anon_inode:[eventpoll]"}) {
    const Waker dumps;
    dumps.wake();
    const auto before = nitinol::testing::open_descriptors();
    Registry registry;
    ServiceOptions options;
    options.enabled = false;
    options.dump_descriptor = dumps.fd();
    Service service(std::move(options), registry);
    pollfd unread{dumps.fd(), POLLIN, 0};
    while (poll(&unread, 1, 0) != 0) std::this_thread::yield();  // until the thread runs
    ASSERT_EQ(1, nitinol::testing::close_new_descriptors(before, kind));
    ASSERT_TRUE(service.stop());
  }
}

}  // namespace
}  // namespace nitinol::ras
