#include "ops/strided.h"

#include <gtest/gtest.h>

#include "engine/error.h"
#include "tests/ops/naive.h"

namespace pando {
namespace {

TEST(Collapse, ContiguousBecomesFlat) {
  const Sizes dims = {2, 3, 4, 5};
  const StridedIndex<2> index = Collapsed(BroadcastIndex<2>(dims, {Dims(dims), Dims(dims)}));
  EXPECT_EQ(index.rank, 1);
  EXPECT_EQ(index.size[0], 120);
  EXPECT_EQ(index.stride[0][0], 1);
  EXPECT_EQ(index.stride[1][0], 1);
}

TEST(Collapse, StopsWhereOneOperandDiffers) {
  const Sizes a = {2, 3, 4, 5};
  const Sizes bias = {4, 5};
  const StridedIndex<2> index = Collapsed(BroadcastIndex<2>(a, {Dims(a), Dims(bias)}));
  ASSERT_EQ(index.rank, 2);
  EXPECT_EQ(index.size[0], 6);
  EXPECT_EQ(index.size[1], 20);
  EXPECT_EQ(index.stride[0][0], 20);
  EXPECT_EQ(index.stride[1][0], 0);
  EXPECT_EQ(index.stride[1][1], 1);
}

TEST(Collapse, ScalarsAndEmpty) {
  const StridedIndex<1> scalar = Collapsed(BroadcastIndex<1>({}, {Dims()}));
  EXPECT_EQ(scalar.rank, 1);
  EXPECT_EQ(Count(scalar), 1);
  const Sizes ones = {1, 1, 1};
  EXPECT_EQ(Collapsed(BroadcastIndex<1>(ones, {Dims(ones)})).rank, 1);
  const Sizes empty = {3, 0, 2};
  const StridedIndex<1> none = Collapsed(BroadcastIndex<1>(empty, {Dims(empty)}));
  EXPECT_EQ(none.rank, 1);
  EXPECT_EQ(Count(none), 0);
}

TEST(Broadcast, FollowsNumPy) {
  int64_t out[kMaxDims];
  const Sizes a = {3, 1, 5};
  const Sizes b = {4, 1};
  ASSERT_EQ(BroadcastDims(a, b, out), 3);
  EXPECT_EQ(Sizes(out, out + 3), (Sizes{3, 4, 5}));
  const Sizes zero = {0};
  const Sizes one = {1};
  ASSERT_EQ(BroadcastDims(zero, one, out), 1);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(BroadcastDims({}, {}, out), 0);
}

TEST(Broadcast, RefusesWhatDoesNotFit) {
  int64_t out[kMaxDims];
  const Sizes a = {3, 4};
  const Sizes b = {3};
  const Sizes long_shape(kMaxDims + 1, 1);
  EXPECT_THROW(BroadcastDims(a, b, out), InvalidArgument);
  EXPECT_THROW(BroadcastDims(a, long_shape, out), InvalidArgument);
  EXPECT_THROW(BroadcastIndex<1>(a, {Dims(b)}), InvalidArgument);
  EXPECT_THROW(BroadcastIndex<1>(b, {Dims(a)}), InvalidArgument);
  EXPECT_THROW(BroadcastIndex<1>(long_shape, {Dims(b)}), InvalidArgument);
}

TEST(Arguments, OutOfRangeIsRefused) {
  const Sizes dims = {3, 4};
  EXPECT_THROW(ReduceOver(dims, {2}), InvalidArgument);
  EXPECT_THROW(ReduceOver(dims, {-1}), InvalidArgument);
  EXPECT_THROW(ReduceOver(dims, {1, 1}), InvalidArgument);
  EXPECT_THROW(PermuteIndex(dims, {0}), InvalidArgument);
  EXPECT_THROW(PermuteIndex(dims, {0, 0}), InvalidArgument);
  EXPECT_THROW(PermuteIndex(dims, {0, 2}), InvalidArgument);
  EXPECT_THROW(MakeSliceIndex(dims, 1, 2, 3), InvalidArgument);
  EXPECT_THROW(MakeSliceIndex(dims, 1, -1, 2), InvalidArgument);
  EXPECT_THROW(MakeSliceIndex(dims, 2, 0, 1), InvalidArgument);
  EXPECT_NO_THROW(MakeSliceIndex(dims, 1, 4, 0));
}

}  // namespace
}  // namespace pando
