#include "tensors.hpp"

#include <gtest/gtest.h>

#include "penstock/errors.hpp"

namespace penstock {
namespace {

std::string with_header(const std::string& header, std::size_t data = 0) {
  std::string whole;
  for (int i = 0; i < 8; ++i) whole.push_back(static_cast<char>(header.size() >> (8 * i)));
  return whole + header + std::string(data, '\0');
}

TEST(Safetensors, AreRead) {
  const auto file = read_safetensors(with_header(
      R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"n":{"dtype":"U8","shape":[0],"data_offsets":[8,8]},)"
      R"("__metadata__":{"k":"v"}})", 8));
  EXPECT_EQ(file.tensors.at("a").floats(), (std::vector<float>{0.0f, 0.0f}));
  EXPECT_EQ(file.tensors.at("a").shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(file.tensors.at("n").dtype, "|u1");
  EXPECT_EQ(file.metadata.at("k"), "v");
}

class NotSafetensors : public testing::TestWithParam<std::string> {};

TEST_P(NotSafetensors, AreRefused) { EXPECT_THROW(read_safetensors(GetParam()), Damaged); }

INSTANTIATE_TEST_SUITE_P(
    Every, NotSafetensors,
    testing::Values(
        "", std::string(8, '\xff'), with_header("[]"), with_header("null"), with_header("{"),
        with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
        with_header(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}})"),
        with_header(R"({"a":{"dtype":"X","shape":[1],"data_offsets":[0,4]}})", 4),
        with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
        with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4),
        with_header(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
        with_header(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), with_header(R"({"__metadata__":3})")));

TEST(Tensors, WhatIsNotFiniteIsSeen) {
  Tensors tensors;
  tensors["a"] = {"<f4", {1}, {0, 0, 0x80, 0x3f}};
  EXPECT_TRUE(all_finite(tensors));
  tensors["b"] = {"<f4", {1}, {0, 0, 0x80, 0x7f}};
  EXPECT_FALSE(all_finite(tensors));
}

}  // namespace
}  // namespace penstock
