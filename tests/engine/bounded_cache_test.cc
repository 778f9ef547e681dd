#include "engine/bounded_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace pando {
namespace {

std::string MakeName(int key) { return "value " + std::to_string(key); }

TEST(BoundedCacheTest, MakesEachValueOnce) {
  BoundedCache<int, std::string> cache(4);
  EXPECT_EQ(*cache.Get(1, MakeName), "value 1");
  EXPECT_EQ(*cache.Get(2, MakeName), "value 2");
  EXPECT_EQ(*cache.Get(1, [](int) -> std::string { throw std::logic_error("made again"); }),
            "value 1");
  EXPECT_EQ(cache.stats().creations, 2);
  EXPECT_EQ(cache.stats().hits, 1);
  EXPECT_EQ(cache.stats().size, 2);
}

TEST(BoundedCacheTest, DropsTheOneUnusedForLongest) {
  BoundedCache<int, std::string> cache(2);
  cache.Get(1, MakeName);
  cache.Get(2, MakeName);
  cache.Get(1, MakeName);  // now 2 is the older
  cache.Get(3, MakeName);
  EXPECT_EQ(cache.stats().size, 2);
  EXPECT_EQ(cache.stats().evictions, 1);
  const int64_t before = cache.stats().creations;
  cache.Get(1, MakeName);
  EXPECT_EQ(cache.stats().creations, before);
  cache.Get(2, MakeName);
  EXPECT_EQ(cache.stats().creations, before + 1);
}

TEST(BoundedCacheTest, AValueInUseOutlivesItsEviction) {
  BoundedCache<int, std::string> cache(1);
  const std::shared_ptr<const std::string> held = cache.Get(1, MakeName);
  cache.Get(2, MakeName);
  cache.Clear();
  EXPECT_EQ(*held, "value 1");
  EXPECT_EQ(cache.stats().size, 0);
}

TEST(BoundedCacheTest, AFailureIsNotKept) {
  BoundedCache<int, std::string> cache(4);
  const auto fail = [](int) -> std::string { throw std::runtime_error("no"); };
  EXPECT_THROW(cache.Get(1, fail), std::runtime_error);
  EXPECT_EQ(cache.stats().creations, 0);
  EXPECT_EQ(*cache.Get(1, MakeName), "value 1");
}

TEST(BoundedCacheTest, CountsCreationsOfAllCaches) {
  const int64_t before = bounded_cache_creations.load();
  BoundedCache<int, std::string> names(4);
  BoundedCache<int, int> squares(4);
  names.Get(1, MakeName);
  squares.Get(3, [](int key) { return key * key; });
  squares.Get(3, [](int key) { return key * key; });
  EXPECT_EQ(bounded_cache_creations.load() - before, 2);
}

TEST(BoundedCacheTest, ThreadsThatWantOneValueMakeItOnce) {
  constexpr int kKeys = 8;
  constexpr int kRounds = 500;
  BoundedCache<int, std::string> cache(kKeys);
  std::atomic<int> made{0};
  std::atomic<int> wrong{0};
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        const auto value = cache.Get(i % kKeys, [&](int key) {
          ++made;
          return MakeName(key);
        });
        if (*value != MakeName(i % kKeys)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made.load(), kKeys);
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(cache.stats().hits, kThreads * kRounds - kKeys);
}

}  // namespace
}  // namespace pando
