#include "comm/group.h"

#include <gtest/gtest.h>

#include <memory>

#include "comm/communicator.h"

namespace nitinol {
namespace {

TEST(Group, KeepsTheCommunicatorsOfItsTasksUntilItEnds) {
  auto communicator = std::make_shared<Communicator>(0, Config{});
  const std::weak_ptr<Communicator> watched = communicator;
  group::start();
  group::start();  // as a call inside the group does
  group::add_task({*communicator, nullptr, MessageWork{}});
  EXPECT_EQ(group::end(), ncclSuccess);
  communicator.reset();
  EXPECT_FALSE(watched.expired());
  group::note_error(ncclInvalidArgument, "as one of its calls is");
  EXPECT_THROW(group::simulate(), Error);
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace nitinol
