#include "diagnostics/ras/service.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <thread>

#include "bootstrap/closed_descriptors_testing.h"

namespace nitinol::ras {
namespace {

TEST(Service, StopsThoughTheProgramHasClosedItsDescriptors) {
  for (const char* const kind : {"anon_inode:[eventfd]", "anon_inode:[eventpoll]"}) {
    const UniqueFd dumps(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    const auto before = nitinol::testing::open_descriptors();
    Registry registry;
    ServiceOptions options;
    options.enabled = false;
    options.dump_descriptor = dumps.get();
    Service service(std::move(options), registry);
    pollfd unread{dumps.get(), POLLIN, 0};
    while (poll(&unread, 1, 0) != 0) std::this_thread::yield();  // until the thread runs
    ASSERT_EQ(1, nitinol::testing::close_new_descriptors(before, kind));
    ASSERT_TRUE(service.stop());
  }
}

}  // namespace
}  // namespace nitinol::ras
