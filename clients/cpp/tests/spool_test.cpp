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

TEST(Spool, DropsTheOldestAndSaysHowMany) {
  const ScratchFolder folder;
  Spool spool(folder.path, 1000);
  EXPECT_EQ(spool.put(batch(1, 3)), 0u);
  EXPECT_EQ(spool.put(batch(4, 4)), 0u);
  EXPECT_EQ(spool.put(batch(8, 4)), 3u);
  EXPECT_LE(spool.bytes(), 1000u);
  EXPECT_EQ(spool.read_oldest(), batch(4, 4));
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
  EXPECT_THROW(spool.put(batch(1, 1)), Error);
}

}  // namespace
}  // namespace penstock
