#include "ckpt/tensor_file_set.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/ckpt/temp_folder.h"

namespace pando {
namespace {

// Writes f32 tensors, all elements of which are `value`.
void WriteConstant(const std::string& path, const std::vector<std::string>& names, float value) {
  std::vector<TensorDecl> tensors;
  tensors.reserve(names.size());
  for (const std::string& name : names) tensors.push_back({name, DType::kF32, {2, 2}});
  ASSERT_OK(WriteSafetensorsFile(path, tensors, {},
                                 [&](const TensorDecl&, int64_t, int64_t count, void* out) {
                                   std::fill_n(static_cast<float*>(out), count, value);
                                   return absl::OkStatus();
                                 }));
}

float ReadOne(TensorFileSet* set, const std::string& name) {
  float value = -1;
  EXPECT_OK(set->Read(name, 3, absl::MakeSpan(&value, 1)));
  return value;
}

TEST(TensorFileSet, OpensFileOrFolder) {
  const TempFolder folder;
  WriteConstant(folder.File("model.safetensors"), {"b", "a"}, 1);
  for (const std::string& path : {folder.path(), folder.File("model.safetensors")}) {
    auto set = TensorFileSet::Open(path);
    ASSERT_OK(set);
    EXPECT_EQ(set->Names(), (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(set->Find("a")->elements, 4);
    EXPECT_EQ(set->Find("c"), nullptr);
    EXPECT_EQ(ReadOne(&*set, "b"), 1);
    float value;
    EXPECT_TRUE(absl::IsNotFound(set->Read("c", 0, absl::MakeSpan(&value, 1))));
  }
}

TEST(TensorFileSet, OpensShards) {
  const TempFolder folder;
  // "a" is in both files: the index decides.
  WriteConstant(folder.File("model-00001-of-00002.safetensors"), {"a"}, 1);
  WriteConstant(folder.File("model-00002-of-00002.safetensors"), {"a", "b"}, 2);
  WriteBytes(folder.File("model.safetensors.index.json"),
             R"({"metadata": {"total_size": 32}, "weight_map": {
                 "a": "model-00001-of-00002.safetensors",
                 "b": "model-00002-of-00002.safetensors"}})");
  auto set = TensorFileSet::Open(folder.path());
  ASSERT_OK(set);
  EXPECT_EQ(set->Names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(set->readers().size(), 2u);
  EXPECT_EQ(ReadOne(&*set, "a"), 1);
  EXPECT_EQ(ReadOne(&*set, "b"), 2);
}

TEST(TensorFileSet, RefusesBadIndexes) {
  const TempFolder folder;
  WriteConstant(folder.File("one.safetensors"), {"a"}, 1);
  const std::string index = folder.File("model.safetensors.index.json");
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})",
        R"({"weight_map": {"a": ""}})", R"({"weight_map": {"a": "../one.safetensors"}})",
        R"({"weight_map": {"a": "/one.safetensors"}})",
        R"({"weight_map": {"a": "two.safetensors"}})",
        R"({"weight_map": {"b": "one.safetensors"}})",
        R"({"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}})"}) {
    WriteBytes(index, text);
    EXPECT_FALSE(TensorFileSet::Open(folder.path()).ok()) << text;
  }
  WriteBytes(index, R"({"weight_map": {"a": "one.safetensors"}})");
  EXPECT_OK(TensorFileSet::Open(folder.path()));
}

TEST(TensorFileSet, NamesWhatIsMissing) {
  const TempFolder folder;
  const absl::Status empty = TensorFileSet::Open(folder.path()).status();
  EXPECT_TRUE(absl::IsNotFound(empty)) << empty;
  EXPECT_TRUE(absl::IsNotFound(TensorFileSet::Open(folder.File("none")).status()));
}

TEST(TensorFileSet, ReadersMayNotShareNames) {
  const TempFolder folder;
  WriteConstant(folder.File("1"), {"a"}, 1);
  WriteConstant(folder.File("2"), {"a"}, 2);
  std::vector<SafetensorsReader> readers;
  readers.push_back(*SafetensorsReader::Open(folder.File("1")));
  readers.push_back(*SafetensorsReader::Open(folder.File("2")));
  EXPECT_TRUE(absl::IsInvalidArgument(TensorFileSet::FromReaders(std::move(readers)).status()));
}

}  // namespace
}  // namespace pando
