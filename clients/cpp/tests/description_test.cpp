#include "description.hpp"

#include <gtest/gtest.h>

#include "layout.hpp"
#include "penstock/errors.hpp"
#include "served.hpp"

namespace penstock {
namespace {

std::string changed(const std::string& from, const std::string& to) {
  std::string text = description_text(8, 4);
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Description, IsRead) {
  const Description description = description_of(description_text(8, 4, true));
  EXPECT_EQ(description.head, Head::categorical);
  EXPECT_EQ(description.body, Body::mlp);
  EXPECT_EQ(description.width(), 4u);
  EXPECT_TRUE(description.masked);
  EXPECT_EQ(layout_of(description).size, 8u);
}

TEST(Description, ThatDoesNotHoldIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), changed("categorical", "diffusion"),
        changed("\"mlp\"", "\"transformer\""), changed("[8]", "[0]"), changed("[8]", "[-1]"),
        changed("[8]", "[1000000,1000000]"), changed("<f4", "<c8"), changed("discrete", "box"),
        changed("[4]", "[]"), changed("\"duelling\":false", "\"duelling\":true"), changed("tanh", "gelu"),
        changed("\"mlp\"", "\"items\""), changed("[64,64]", "[-64]")})
    EXPECT_THROW(description_of(text), Damaged) << text;
}

TEST(Layout, SaysWhereConfigurationAndPolicyDiffer) {
  const Layout there = layout_of(description_of(description_text(8, 4)));
  Shape shape{{8}, 4, false, false, 1.0f};
  EXPECT_EQ(disagreement(layout_of(shape), there), "");
  shape.actions = 5;
  EXPECT_EQ(disagreement(layout_of(shape), there),
            "the configuration says number of actions 5, the policy at the gateway has 4");
  shape = {{2, 4}, 4, false, false, 1.0f};
  EXPECT_EQ(disagreement(layout_of(shape), there),
            "the configuration says observations of shape [2, 4], the policy at the gateway has [8]");
}

}  // namespace
}  // namespace penstock
