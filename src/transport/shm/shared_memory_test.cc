#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "transport/transport.h"

namespace nitinol {
namespace {

constexpr size_t kBytes = 1 << 20;

TEST(SharedMemory, IsZeroAndSeenThroughEveryMapping) {
  const SharedMemory mine = SharedMemory::create(kBytes, true);
  const MemoryHandle handle = mine.share();
  EXPECT_EQ(handle.bytes, kBytes);
  const SharedMemory theirs = SharedMemory::map(handle, kBytes);
  ASSERT_NE(mine.data(), theirs.data());
  EXPECT_EQ(theirs.data()[kBytes - 1], std::byte{0});
  mine.data()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(theirs.data()[kBytes - 1], std::byte{7});
}

TEST(SharedMemory, OutlivesItsMaker) {
  SharedMemory mine = SharedMemory::create(kBytes, true);
  mine.data()[0] = std::byte{42};
  const SharedMemory theirs = SharedMemory::map(mine.share(), kBytes);
  mine = SharedMemory();
  EXPECT_EQ(theirs.data()[0], std::byte{42});
}

TEST(SharedMemory, CannotShrink) {
  const SharedMemory mine = SharedMemory::create(kBytes, true);
  EXPECT_NE(::ftruncate(mine.share().fd.get(), 0), 0);
}

TEST(SharedMemory, RefusesMemoryThatIsTooSmallOrMayShrink) {
  const SharedMemory mine = SharedMemory::create(kBytes, true);
  EXPECT_THROW(SharedMemory::map(mine.share(), 2 * kBytes), Error);
  EXPECT_THROW(SharedMemory::map(mine.share(), 0), Error);
  MemoryHandle unsealed{UniqueFd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)), kBytes};
  ASSERT_EQ(::ftruncate(unsealed.fd.get(), kBytes), 0);
  EXPECT_THROW(SharedMemory::map(unsealed, kBytes), Error);
  EXPECT_THROW(SharedMemory::map(MemoryHandle{}, kBytes), Error);
}

TEST(SharedMemory, ThatIsLargerThanFilesMayBeIsAnErrorAndNotTheEndOfTheProcess) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit less{kBytes / 2, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &less), 0);
  std::string problem;
  try {
    SharedMemory::create(kBytes, true);
  } catch (const Error& error) {
    problem = error.what();
  }
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(problem.find("ulimit -f"), std::string::npos) << problem;
}

TEST(SharedMemory, PrivateMemoryHasNoHandle) {
  const SharedMemory mine = SharedMemory::create(kBytes, false);
  EXPECT_EQ(mine.data()[5], std::byte{0});
  EXPECT_THROW(static_cast<void>(mine.share()), Error);
}

TEST(SharedMemory, MovesWithItsMapping) {
  SharedMemory first = SharedMemory::create(kBytes, false);
  std::byte* const data = first.data();
  const SharedMemory second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.bytes(), kBytes);
}

}  // namespace
}  // namespace nitinol
