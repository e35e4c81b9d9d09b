#include "spool.hpp"

#include <gtest/gtest.h>

#include "penstock/errors.hpp"
#include "scratch.hpp"

namespace penstock {
namespace {

std::vector<Numbered> batch(std::uint64_t first, std::size_t count, std::size_t size = 100) {
  std::vector<Numbered> result;
  for (std::size_t i = 0; i < count; ++i) result.emplace_back(first + i, std::string(size, static_cast<char>('a' + i)));
  return result;
}

TEST(Spool, GivesBackWhatItWasGivenInOrder) {
  const ScratchFolder folder;
  Spool spool(folder.path, 1 << 20);
  EXPECT_TRUE(spool.empty());
  EXPECT_EQ(spool.put(batch(1, 3)), 0u);
  EXPECT_EQ(spool.put(batch(4, 2)), 0u);
  EXPECT_EQ(spool.trajectories(), 5u);
  EXPECT_EQ(spool.read_oldest(), batch(1, 3));
  spool.keep_of_oldest({batch(1, 3)[2]});
  EXPECT_EQ(spool.read_oldest(), (std::vector<Numbered>{batch(1, 3)[2]}));
  spool.keep_of_oldest({});
  EXPECT_EQ(spool.read_oldest(), batch(4, 2));
  spool.keep_of_oldest({});
  EXPECT_TRUE(spool.empty());
}

// As tests/unit/test_client_spool.py has it for Python.
TEST(Spool, AFullOneDropsTheOldestAndSaysHowMany) {
  const ScratchFolder folder;
  Spool spool(folder.path, 8192);  // two blocks of the disk
  EXPECT_EQ(spool.put(batch(1, 2, 400)), 0u);
  EXPECT_EQ(spool.put(batch(3, 1, 400)), 0u);
  EXPECT_EQ(spool.bytes(), 8192u);
  EXPECT_EQ(spool.put(batch(4, 1, 400)), 2u);
  EXPECT_EQ(spool.bytes(), 8192u);
  EXPECT_EQ(spool.trajectories(), 2u);
  EXPECT_EQ(spool.read_oldest(), batch(3, 1, 400));
}

TEST(Spool, CountsWholeBlocksOfEveryFile) {
  const ScratchFolder folder;
  {
    Spool spool(folder.path, 1 << 20);
    spool.put(batch(1, 1, 4096 - 20));  // with 8 bytes before all and 12 before each it fills one block
    EXPECT_EQ(spool.bytes(), 4096u);
    spool.put(batch(2, 1, 4096 - 19));
    EXPECT_EQ(spool.bytes(), 3 * 4096u);
    spool.put(batch(3, 2, 4000));
    EXPECT_EQ(spool.bytes(), 5 * 4096u);
    spool.keep_of_oldest({});
    spool.keep_of_oldest({});
    spool.keep_of_oldest({batch(3, 2, 4000)[1]});  // half of it is delivered
    EXPECT_EQ(spool.bytes(), 4096u);
    EXPECT_EQ(spool.trajectories(), 1u);
  }
  Spool heir(folder.path, 1 << 20);
  heir.adopt();
  EXPECT_EQ(heir.bytes(), 4096u);
  heir.keep_of_oldest({});
  EXPECT_EQ(heir.bytes(), 0u);
}

TEST(Spool, WhatAnotherLeftIsAdoptedUnderItsSourceButNotWhileItLives) {
  const ScratchFolder folder;
  std::string source;
  Spool heir(folder.path, 1 << 20);
  {
    Spool owner(folder.path, 1 << 20);
    owner.put(batch(7, 2));
    source = owner.source();
    heir.adopt();
    EXPECT_TRUE(heir.empty());
  }
  heir.adopt();
  ASSERT_FALSE(heir.empty());
  EXPECT_EQ(heir.oldest().source, source);
  EXPECT_EQ(heir.read_oldest(), batch(7, 2));
  Spool third(folder.path, 1 << 20);
  third.adopt();
  EXPECT_TRUE(third.empty());
  heir.keep_of_oldest({});
  EXPECT_FALSE(std::filesystem::exists(folder.path / source));
}

TEST(Spool, ADamagedBatchIsSeen) {
  const ScratchFolder folder;
  Spool spool(folder.path, 1 << 20);
  spool.put(batch(1, 2));
  std::fstream file(spool.oldest().path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(30);
  file.put('!');
  file.close();
  EXPECT_THROW(spool.read_oldest(), Damaged);
  std::filesystem::resize_file(spool.oldest().path, 5);
  EXPECT_THROW(spool.read_oldest(), Damaged);
}

TEST(Spool, AFolderThatCannotBeMadeIsAnError) {
  const ScratchFolder folder;
  Spool spool(folder.write("file", "") + "/below", 1 << 20);
  EXPECT_THROW(spool.check(), DiskError);
  EXPECT_THROW(spool.put(batch(1, 1)), DiskError);
}

TEST(Spool, ACheckLeavesNothingBehind) {
  const ScratchFolder folder;
  Spool spool(folder.path / "spool", 1 << 20);
  spool.check();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path / "spool"));
}

// A process without descriptors, as the Python test has it.
TEST(Spool, ABatchThatCannotBeReadNowIsNotDamaged) {
  const ScratchFolder folder;
  Spool spool(folder.path, 1 << 20);
  spool.put(batch(1, 2));
  {
    const NoFilesLeft none;
    EXPECT_THROW(spool.read_oldest(), DiskError);
  }
  EXPECT_EQ(spool.read_oldest(), batch(1, 2));
  std::filesystem::remove(spool.oldest().path);
  EXPECT_THROW(spool.read_oldest(), Damaged);
}

TEST(Spool, AfterTheEndItsTotalsSayWhatIsLeft) {
  const ScratchFolder folder;
  Spool spool(folder.path, 1 << 20);
  spool.put(batch(1, 2));
  spool.close();
  EXPECT_EQ(spool.trajectories(), 2u);
  EXPECT_EQ(spool.bytes(), 4096u);
}

}  // namespace
}  // namespace penstock
