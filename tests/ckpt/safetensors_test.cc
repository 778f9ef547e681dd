#include "ckpt/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/convert.h"
#include "tests/ckpt/temp_folder.h"

namespace pando {
namespace {

constexpr char kGolden[] = "tests/ckpt/testdata/golden.safetensors";
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string FileOf(const std::string& json, const std::string& data) {
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + json + data;
}

// Opens a file of this header and data_bytes zeros.
absl::Status OpenStatus(const std::string& json, size_t data_bytes) {
  const TempFolder folder;
  WriteBytes(folder.File("f"), FileOf(json, std::string(data_bytes, '\0')));
  return SafetensorsReader::Open(folder.File("f")).status();
}

template <typename T>
std::vector<T> ReadAll(SafetensorsReader* reader, const std::string& name) {
  std::vector<T> values(static_cast<size_t>(reader->Find(name)->elements));
  EXPECT_OK(reader->Read(name, 0, absl::MakeSpan(values)));
  return values;
}

// The file was written by the reference implementation: tools/golden/safetensors_file.py.
TEST(Safetensors, ReadsWhatTheReferenceWrote) {
  auto reader = SafetensorsReader::Open(kGolden);
  ASSERT_OK(reader);
  EXPECT_EQ(reader->tensors().size(), 10u);
  EXPECT_EQ(reader->metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"note", "golden"}}));
  EXPECT_EQ(
      ReadAll<float>(&*reader, "f32"),
      (std::vector<float>{0.0f, -1.5f, 3.25f, 1e-45f, std::numeric_limits<float>::max(), kInf}));
  EXPECT_EQ(reader->Find("f32")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(ReadAll<float>(&*reader, "bf16"), (std::vector<float>{1.0f, -2.0f, 0.15625f}));
  EXPECT_EQ(ReadAll<float>(&*reader, "f16"), (std::vector<float>{1.0f, -65504.0f, 0x1p-24f}));
  EXPECT_EQ(ReadAll<double>(&*reader, "f64"), (std::vector<double>{0.1, -1e300}));
  EXPECT_EQ(ReadAll<float>(&*reader, "f64"), (std::vector<float>{0.1f, -kInf}));
  EXPECT_EQ(ReadAll<int32_t>(&*reader, "i32"),
            (std::vector<int32_t>{std::numeric_limits<int32_t>::min(), 7}));
  EXPECT_EQ(ReadAll<int64_t>(&*reader, "i64"), (std::vector<int64_t>{9007199254740993, -1}));
  EXPECT_EQ(ReadAll<float>(&*reader, "scalar"), (std::vector<float>{2.5f}));
  EXPECT_TRUE(reader->Find("scalar")->shape.empty());
  EXPECT_EQ(ReadAll<float>(&*reader, "empty"), std::vector<float>{});
  EXPECT_EQ(ReadAll<float>(&*reader, "n\u00e4m\u00e9 \"q\""), (std::vector<float>{5.0f}));
}

TEST(Safetensors, ListsTypesThatItCannotRead) {
  auto reader = SafetensorsReader::Open(kGolden);
  ASSERT_OK(reader);
  const TensorEntry* u8 = reader->Find("u8");
  ASSERT_NE(u8, nullptr);
  EXPECT_EQ(u8->dtype_name, "U8");
  EXPECT_FALSE(u8->dtype.has_value());
  std::vector<float> out(3);
  const absl::Status status = reader->Read("u8", 0, absl::MakeSpan(out));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_OK(OpenStatus(R"({"a":{"dtype":"Q3_WHAT","shape":[9],"data_offsets":[0,5]}})", 5));
}

TEST(Safetensors, ReadsParts) {
  auto reader = SafetensorsReader::Open(kGolden);
  ASSERT_OK(reader);
  std::vector<BFloat16> part(2);
  EXPECT_OK(reader->Read("f32", 1, absl::MakeSpan(part)));
  EXPECT_EQ(ToFloat(part[0]), -1.5f);
  EXPECT_EQ(ToFloat(part[1]), 3.25f);
  std::vector<float> none;
  EXPECT_OK(reader->Read("f32", 6, absl::MakeSpan(none)));
  EXPECT_TRUE(absl::IsOutOfRange(reader->Read("f32", 5, absl::MakeSpan(part))));
  EXPECT_TRUE(absl::IsOutOfRange(reader->Read("f32", -1, absl::MakeSpan(part))));
  EXPECT_TRUE(absl::IsOutOfRange(
      reader->Read("f32", std::numeric_limits<int64_t>::max(), absl::MakeSpan(part))));
  EXPECT_TRUE(absl::IsNotFound(reader->Read("g32", 0, absl::MakeSpan(part))));
  EXPECT_TRUE(absl::IsInvalidArgument(reader->Read("i32", 0, absl::MakeSpan(part))));
}

TEST(Safetensors, AcceptsWhatIsLegal) {
  EXPECT_OK(OpenStatus("{}", 0));
  EXPECT_OK(OpenStatus("{}      ", 0));
  EXPECT_OK(OpenStatus(R"({"__metadata__":{}})", 0));
  EXPECT_OK(OpenStatus(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4));
  EXPECT_OK(OpenStatus(R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,8],)"
                       R"("data_offsets":[0,0]}})",
                       0));
  EXPECT_OK(OpenStatus(R"({"a":{"dtype":"F32","shape":[4611686018427387904,8,0],)"
                       R"("data_offsets":[0,0]}})",
                       0));
  // Any order; an odd start; an empty tensor between two.
  EXPECT_OK(OpenStatus(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},)"
                       R"("c":{"dtype":"F32","shape":[0],"data_offsets":[1,1]},)"
                       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                       5));
}

TEST(Safetensors, RefusesWhatIsNot) {
  struct Case {
    const char* json;
    size_t data_bytes;
  };
  const Case cases[] = {
      {"", 0},
      {" {}", 0},
      {"[]", 0},
      {"{", 0},
      {"{}x", 0},
      {R"({"a":1})", 0},
      {R"({"__metadata__":{"a":1}})", 0},
      {R"({"__metadata__":"a"})", 0},
      {"{\"\xff\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4.0]}})", 4},
      {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3},  // cut short
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5},  // bytes left over
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4},  // wrong size
      {R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})", 5},   // a hole in front
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4},  // outside
      // Products and offsets that are right modulo 2^64.
      {R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[4294967297,4294967297],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0]}})", 4},
      {R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,0]}})", 0},
      // A hole, an overlap, one key twice (tensor, field, metadata).
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[5,9]}})",
       9},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})",
       7},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8},
      {R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0},
      {R"({"a":[[[[[[[[[[]]]]]]]]]]})", 0},
  };
  for (const Case& c : cases) {
    const absl::Status status = OpenStatus(c.json, c.data_bytes);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.json << " " << status;
  }
}

TEST(Safetensors, RefusesBadLengths) {
  const TempFolder folder;
  const std::string path = folder.File("f");
  const std::string good = FileOf("{}", "");
  for (size_t n = 0; n < good.size(); ++n) {
    WriteBytes(path, good.substr(0, n));
    EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsReader::Open(path).status())) << n;
  }
  for (const uint64_t length : {~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 63, uint64_t{3}}) {
    WriteBytes(path, std::string(reinterpret_cast<const char*>(&length), 8) + "{}");
    EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsReader::Open(path).status())) << length;
  }
  // A header above the limit, in a file that is really that long (a sparse one).
  const auto length = static_cast<uint64_t>(kMaxSafetensorsHeaderBytes) + 1;
  WriteBytes(path, std::string(reinterpret_cast<const char*>(&length), 8) + "{}");
  std::filesystem::resize_file(path, length + 8);
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsReader::Open(path).status()));
  EXPECT_TRUE(absl::IsNotFound(SafetensorsReader::Open(folder.File("none")).status()));
  EXPECT_FALSE(SafetensorsReader::Open(folder.path()).ok());
}

class SafetensorsWriting : public ::testing::Test {
 protected:
  absl::StatusOr<SafetensorsWriter> Begin(std::vector<TensorDecl> tensors) {
    auto out = OutputFile::Create(folder_.File(absl::StrCat(files_++)));
    EXPECT_OK(out);
    out_ = std::make_unique<OutputFile>(*std::move(out));
    return SafetensorsWriter::Begin(out_.get(), std::move(tensors), {{"key", "value \"1\""}});
  }

  const TempFolder folder_;
  int files_ = 0;
  std::unique_ptr<OutputFile> out_;
};

TEST_F(SafetensorsWriting, RoundTripsInPieces) {
  auto writer = Begin({{"z", DType::kBF16, {3}},
                       {"empty", DType::kF32, {2, 0}},
                       {"a", DType::kF32, {2, 2}},
                       {"n", DType::kI64, {}}});
  ASSERT_OK(writer);
  const std::vector<float> z = {1, -2, 3};
  const std::vector<float> a = {0.5f, 1.5f, 2.5f, 3.5f};
  const std::vector<int64_t> n = {-5};
  EXPECT_OK(writer->Append(absl::MakeConstSpan(z).subspan(0, 2)));  // converted to bf16
  EXPECT_OK(writer->Append(absl::MakeConstSpan(z).subspan(2)));
  EXPECT_OK(writer->Append(absl::MakeConstSpan(a)));
  EXPECT_OK(writer->Append(absl::MakeConstSpan(n)));
  EXPECT_OK(writer->CheckComplete());
  const auto digest = out_->Finish();
  ASSERT_OK(digest);
  const std::string bytes = ReadBytes(out_->path());
  EXPECT_EQ(digest->size, static_cast<int64_t>(bytes.size()));
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);

  auto reader = SafetensorsReader::Open(out_->path());
  ASSERT_OK(reader);
  EXPECT_EQ(reader->tensors()[0].name, "z");
  EXPECT_EQ(reader->tensors()[3].name, "n");
  EXPECT_EQ(reader->metadata().at("key"), "value \"1\"");
  EXPECT_EQ(ReadAll<float>(&*reader, "z"), z);
  EXPECT_EQ(ReadAll<float>(&*reader, "a"), a);
  EXPECT_EQ(ReadAll<int64_t>(&*reader, "n"), n);
  EXPECT_EQ(reader->Find("empty")->shape, (std::vector<int64_t>{2, 0}));
}

TEST_F(SafetensorsWriting, RefusesTooMuchTooLittleAndOtherTypes) {
  auto writer = Begin({{"a", DType::kF32, {2}}, {"b", DType::kI32, {1}}});
  ASSERT_OK(writer);
  const std::vector<float> values = {1, 2, 3};
  EXPECT_TRUE(absl::IsOutOfRange(writer->Append(absl::MakeConstSpan(values))));
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->CheckComplete()));
  EXPECT_OK(writer->Append(absl::MakeConstSpan(values).subspan(0, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(writer->Append(absl::MakeConstSpan(values).subspan(0, 1))));
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->CheckComplete()));
  const std::vector<int32_t> number = {4};
  EXPECT_OK(writer->Append(absl::MakeConstSpan(number)));
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Append(absl::MakeConstSpan(number))));
  EXPECT_OK(writer->CheckComplete());
}

TEST_F(SafetensorsWriting, RefusesBadDeclarations) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_FALSE(Begin({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}).ok());
  EXPECT_FALSE(Begin({{"__metadata__", DType::kF32, {1}}}).ok());
  EXPECT_FALSE(Begin({{"a", DType::kF32, {-1}}}).ok());
  EXPECT_FALSE(Begin({{"a", DType::kF32, {kHuge}}}).ok());
  EXPECT_FALSE(Begin({{"a", DType::kF32, {kHuge, 8}}}).ok());
  EXPECT_FALSE(Begin({{"a", DType::kBF16, {kHuge - 1}}, {"b", DType::kBF16, {kHuge - 1}}}).ok());
  EXPECT_FALSE(Begin({{"\xff", DType::kF32, {1}}}).ok());
}

TEST_F(SafetensorsWriting, AsksTheSourceForSmallPieces) {
  constexpr int64_t kElements = 3'000'000;  // 12 MB: several pieces
  const std::string path = folder_.File("large");
  int64_t calls = 0;
  int64_t expected_first = 0;
  ASSERT_OK(WriteSafetensorsFile(path, {{"a", DType::kF32, {kElements}}}, {},
                                 [&](const TensorDecl&, int64_t first, int64_t count, void* out) {
                                   ++calls;
                                   EXPECT_EQ(first, expected_first);
                                   EXPECT_LE(count * 4, 4 << 20);
                                   expected_first += count;
                                   for (int64_t i = 0; i < count; ++i) {
                                     static_cast<float*>(out)[i] = static_cast<float>(first + i);
                                   }
                                   return absl::OkStatus();
                                 }));
  EXPECT_EQ(calls, 3);
  auto reader = SafetensorsReader::Open(path);
  ASSERT_OK(reader);
  const auto as_double = ReadAll<double>(&*reader, "a");
  for (int64_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(as_double[static_cast<size_t>(i)], static_cast<double>(i));
  }
  // A source that fails leaves nothing behind.
  const absl::Status failed = WriteSafetensorsFile(
      folder_.File("failed"), {{"a", DType::kF32, {1}}}, {},
      [](const TensorDecl&, int64_t, int64_t, void*) { return absl::AbortedError("stop"); });
  EXPECT_EQ(failed, absl::AbortedError("stop"));
  EXPECT_EQ(NamesIn(folder_.path()).size(), 1u);
}

TEST(Convert, RoundsAsTheTypesDo) {
  EXPECT_TRUE(CanConvert(DType::kI32, DType::kI32));
  EXPECT_FALSE(CanConvert(DType::kI32, DType::kI64));
  EXPECT_FALSE(CanConvert(DType::kI32, DType::kF32));
  EXPECT_FALSE(CanConvert(DType::kF32, DType::kI32));
  const std::vector<DType> types = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};
  for (const DType from : types) {
    for (const DType to : types) {
      // 1.25 and -3 are exact in all four types; from an odd address.
      const double values[2] = {1.25, -3};
      std::vector<uint8_t> source(1 + 16);
      std::vector<uint8_t> target(1 + 16);
      ConvertElements(DType::kF64, values, from, source.data() + 1, 2);
      ConvertElements(from, source.data() + 1, to, target.data() + 1, 2);
      double back[2] = {};
      ConvertElements(to, target.data() + 1, DType::kF64, back, 2);
      EXPECT_EQ(back[0], 1.25) << Name(from) << " to " << Name(to);
      EXPECT_EQ(back[1], -3) << Name(from) << " to " << Name(to);
    }
  }
  const float tie = 1.0f + 0x1p-8f;  // halfway between two bf16: to the even one
  BFloat16 rounded;
  ConvertElements(DType::kF32, &tie, DType::kBF16, &rounded, 1);
  EXPECT_EQ(rounded.bits, 0x3F80);
}

}  // namespace
}  // namespace pando
