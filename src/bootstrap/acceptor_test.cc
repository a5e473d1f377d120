#include "bootstrap/acceptor.h"

#include <gtest/gtest.h>

#include "failing_allocation.h"

namespace nitinol {
namespace {

/// It also returns: the lock of the table is not taken twice.
TEST(ServiceTable, HasNothingOfAServiceThatItGotNoMemoryFor) {
  ensure_crypto();
  ServiceTable table;
  const Secret key = random_secret();
  testing::fail_each_allocation_of([&] {
    try {
      EXPECT_NE(table.add({key, {}}), nullptr);
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(table.find(key_id(key)), nullptr);
    }
    EXPECT_EQ(table.find(key_id(key)), nullptr);
  });
}

TEST(ServiceTable, KeepsTheFirstServiceOfAKey) {
  ensure_crypto();
  ServiceTable table;
  const Secret key = random_secret();
  const auto first = table.add({key, {}});
  EXPECT_EQ(table.add({key, {}}), nullptr);
  EXPECT_NE(table.find(key_id(key)), nullptr);
}

}  // namespace
}  // namespace nitinol
