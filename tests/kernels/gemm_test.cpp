// kernels/gemm_test.cpp: matrix products: right at every size, and the same bits however they are asked for.
#include <qkv/gemm.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "reference/elements.h"
#include "reference/gemm.h"
#include "support/close.h"
#include "support/covering.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/layout.h"
#include "support/pages.h"
#include "support/random.h"

namespace qkv::test {
namespace {

Tensor product(const View& a, const View& b, int threads = 1) {
  Tensor c({a.extent(0), b.extent(1)}, a.dtype());
  gemm(a, b, c, {.threads = threads});
  return c;
}
Tensor product(const View& a, const PackedMatrix& b, int threads = 1) {
  Tensor c({a.extent(0), b.columns()}, a.dtype());
  gemm(a, b, c, {.threads = threads});
  return c;
}

void expect_product(const View& a, const View& b, const View& got) {
  // Sums of K products of numbers of this size.
  const double magnitude = largest_magnitude(a) * largest_magnitude(b) *
                           std::sqrt(static_cast<double>(std::max<std::int64_t>(1, a.extent(1))));
  EXPECT_TRUE(is_close(got, {reference::gemm<double>(a, b), reference::gemm<float>(a, b), magnitude}))
      << a.shape().text() << " times " << b.shape().text();
}

const std::vector<std::int64_t> around_tiles = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  15, 16, 17,
                                                23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97};

TEST(Gemm, IsRightOnBothSidesOfEveryTile) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      const int levels = static_cast<int>(around_tiles.size());
      for (const auto& row : pairwise_rows({levels, levels, levels})) {
        const auto size = [&](std::size_t which) { return around_tiles[static_cast<std::size_t>(row[which])]; };
        const Tensor a = random_tensor({size(0), size(1)}, 1, dtype), b = random_tensor({size(1), size(2)}, 2, dtype);
        expect_product(a, b, product(a, b));
      }
    }
  });
}

TEST(Gemm, IsRightBeyondEveryBlock) {
  on_every_isa([] {
    for (const std::int64_t K : {127, 128, 129, 255, 256, 257, 511, 513, 1025}) {
      const Tensor a = random_tensor({37, K}, 1), b = random_tensor({K, 70}, 2);
      expect_product(a, b, product(a, b));
    }
    for (const std::int64_t N : {255, 257, 1030, 4100}) {
      const Tensor a = random_tensor({9, 33}, 1), b = random_tensor({33, N}, 2);
      expect_product(a, b, product(a, b));
    }
    for (const std::int64_t M : {255, 257, 1030}) {
      for (const std::int64_t N : {19, 70}) {
        const Tensor a = random_tensor({M, 33}, 1), b = random_tensor({33, N}, 2);
        expect_product(a, b, product(a, b));
      }
    }
  });
}

TEST(Gemm, TransposedFactorsHaveTheBitsOfDenseOnes) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      for (const std::int64_t M : {1, 3, 15, 16, 17, 150}) {
        for (const std::int64_t K : {1, 5, 16, 31, 260}) {
          const std::int64_t N = M + K % 7;
          const Tensor a = random_tensor({K, M}, 1, dtype), b = random_tensor({N, K}, 2, dtype);
          const View at = a.view().swapped(0, 1), bt = b.view().swapped(0, 1);
          EXPECT_TRUE(same_bits(product(at, bt), product(Tensor::copy_of(at), Tensor::copy_of(bt))))
              << at.shape().text() << " times " << bt.shape().text();
        }
      }
    }
  });
}

TEST(Gemm, ABiasIsAddedToEveryRow) {
  on_every_isa([] {
    for (const std::int64_t K : {0, 3, 300}) {
      for (const std::int64_t N : {1, 15, 16, 40, 63, 64, 65, 129}) {
        const Tensor a = random_tensor({7, K}, 1, Dtype::float64), b = random_tensor({K, N}, 2, Dtype::float64);
        const Tensor bias = random_tensor({N}, 3, Dtype::float64), plain = product(a, b);
        Tensor c({7, N}, Dtype::float64);
        for (const int threads : {1, 2}) {
          gemm(a, b, c, {.bias = bias, .threads = threads});
          for (std::int64_t i = 0; i < 7 * N; ++i) {
            const auto at = static_cast<std::size_t>(i);
            EXPECT_NEAR(c.values<double>()[at],
                        plain.values<double>()[at] + bias.values<double>()[static_cast<std::size_t>(i % N)], 1e-13);
          }
        }
      }
    }
  });
}

TEST(Gemm, ABiasThatDoesNotFitIsRefused) {
  const Tensor a({2, 3}), b({3, 4}), bias({4}), narrow({3});
  Tensor c({2, 4});
  expect_error<ShapeError>([&] { gemm(a, b, c, {.bias = narrow}); }, {"gemm", "bias", "[4]", "[3]"});
  expect_error<ShapeError>([&] { gemm(a, b, c, {.bias = Tensor({4}, Dtype::float64)}); }, {"float32", "float64"});
  expect_error<OptionError>([&] { gemm(a, b, c, {.accumulate = true, .bias = bias}); }, {"gemm", "accumulate"});
}

// A matrix as the last two axes of an array that is laid out in some way.
View matrix(const LaidOut& laid) {
  const MutableView x = laid.view();
  return View(x.data(), x.dtype(), {x.extent(2), x.extent(3)}, {x.stride(2), x.stride(3)});
}

TEST(Gemm, TakesAnyStridesOfItsFactors) {
  on_every_isa([] {
    const Tensor a = random_tensor({1, 1, 37, 29}, 1), b = random_tensor({1, 1, 29, 41}, 2);
    for (const Layout left : writable_layouts) {
      for (const Layout right : writable_layouts) {
        const LaidOut x(a, left), y(b, right);
        SCOPED_TRACE(std::string(name_of(left)) + " times " + std::string(name_of(right)));
        expect_product(matrix(x), matrix(y), product(matrix(x), matrix(y)));
      }
    }
  });
}

TEST(Gemm, TakesTransposedAndBroadcastFactors) {
  on_every_isa([] {
    const Tensor a = random_tensor({37, 29}, 1), b = random_tensor({41, 29}, 2), c = random_tensor({29, 37}, 3),
                 row = random_tensor({29}, 4);
    expect_product(a, b.view().swapped(0, 1), product(a, b.view().swapped(0, 1)));
    expect_product(c.view().swapped(0, 1), b.view().swapped(0, 1),
                   product(c.view().swapped(0, 1), b.view().swapped(0, 1)));
    const View same_row(row.values<float>().data(), {37, 29}, {0, 1});
    expect_product(same_row, b.view().swapped(0, 1), product(same_row, b.view().swapped(0, 1)));
  });
}

// Transposed factors are packed by squares and blocks of their own; the numbers are the same.
TEST(Gemm, GivesTheSameBitsForTransposedFactors) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      for (const std::int64_t M : {1, 3, 4, 15, 16, 17, 35, 150}) {
        for (const std::int64_t K : {1, 2, 5, 16, 18, 33, 259}) {
          const Tensor a = random_tensor({M, K}, 1, dtype), b = random_tensor({K, M}, 2, dtype);
          const Tensor a_columns = Tensor::copy_of(a.view().swapped(0, 1)),
                       b_columns = Tensor::copy_of(b.view().swapped(0, 1));
          EXPECT_TRUE(same_bits(product(a_columns.view().swapped(0, 1), b_columns.view().swapped(0, 1)), product(a, b)))
              << a.shape().text();
        }
      }
    }
  });
}

TEST(Gemm, AddsABiasToEveryRow) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      for (const std::int64_t K : {0, 1, 29, 700}) {
        const Tensor a = random_tensor({37, K}, 1, dtype), b = random_tensor({K, 41}, 2, dtype),
                     bias = random_tensor({41}, 3, dtype);
        Tensor c({37, 41}, dtype), packed({37, 41}, dtype);
        gemm(a, b, c, {.bias = bias});
        gemm(a, PackedMatrix(b), packed, {.bias = bias});
        EXPECT_TRUE(same_bits(packed, c));
        auto exact = reference::gemm<double>(a, b);
        auto plain = reference::gemm<float>(a, b);
        const auto added = reference::elements<double>(bias);
        for (std::size_t i = 0; i < exact.size(); ++i) {
          exact[i] += added[i % 41];
          plain[i] += static_cast<float>(added[i % 41]);
        }
        EXPECT_TRUE(is_close(c, {exact, plain, 4 * std::sqrt(static_cast<double>(K + 1))})) << "K = " << K;
      }
    }
  });
}

TEST(Gemm, WritesRowsWithGapsAndLeavesTheGapsAlone) {
  on_every_isa([] {
    for (const std::int64_t N : {1, 7, 8, 17, 49, 64, 65}) {
      const Tensor a = random_tensor({37, 29}, 1), b = random_tensor({29, N}, 2);
      const LaidOut c({1, 1, 37, N}, Dtype::float32, Layout::padded_rows);
      const MutableView x = c.view();
      gemm(a, b, MutableView(x.data(), Dtype::float32, {37, N}, {x.stride(2), 1}));
      expect_product(a, b, matrix(c));
      EXPECT_TRUE(c.gaps_are_untouched());
    }
  });
}

TEST(Gemm, AccumulatesOnRequest) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      for (const std::int64_t K : {0, 1, 29, 700}) {
        const Tensor a = random_tensor({37, K}, 1, dtype), b = random_tensor({K, 41}, 2, dtype),
                     before = random_tensor({37, 41}, 3, dtype);
        Tensor c = before.clone();
        gemm(a, b, c, {.accumulate = true});
        const auto start = reference::elements<double>(before);
        auto exact = reference::gemm<double>(a, b);
        auto plain = reference::gemm<float>(a, b);
        for (std::size_t i = 0; i < exact.size(); ++i) {
          exact[i] += start[i];
          plain[i] += static_cast<float>(start[i]);
        }
        EXPECT_TRUE(is_close(c, {exact, plain, 16 * std::sqrt(static_cast<double>(K) + 1)})) << "K " << K;
      }
    }
  });
}

TEST(Gemm, NoDepthGivesZerosOverWhateverWasThere) {
  on_every_isa([] {
    Tensor c({5, 7});
    std::ranges::fill(c.values<float>(), std::numeric_limits<float>::quiet_NaN());
    gemm(Tensor({5, 0}), Tensor({0, 7}), c);
    for (const float x : c.values<float>()) ASSERT_EQ(x, 0);
  });
}

TEST(Gemm, OverwritesNanThatWasThere) {
  on_every_isa([] {
    const Tensor a = random_tensor({37, 29}, 1), b = random_tensor({29, 41}, 2);
    Tensor c({37, 41});
    std::ranges::fill(c.values<float>(), std::numeric_limits<float>::quiet_NaN());
    gemm(a, b, c);
    expect_product(a, b, c);
  });
}

TEST(Gemm, PackedOnceIsPackedPerCallBitForBit) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      for (const std::int64_t N : {1, 16, 49, 300}) {
        for (const std::int64_t K : {0, 1, 29, 600}) {
          const Tensor b = random_tensor({K, N}, 2, dtype);
          const PackedMatrix packed(b), transposed(Tensor::copy_of(b.view().swapped(0, 1)).view().swapped(0, 1));
          EXPECT_EQ(packed.rows(), K);
          EXPECT_EQ(packed.columns(), N);
          EXPECT_EQ(packed.dtype(), dtype);
          for (const std::int64_t M : {1, 5, 48, 70}) {
            const Tensor a = random_tensor({M, K}, 1, dtype);
            EXPECT_TRUE(same_bits(product(a, packed), product(a, b))) << M << ", " << K << ", " << N;
            EXPECT_TRUE(same_bits(product(a, transposed), product(a, b))) << M << ", " << K << ", " << N;
          }
        }
      }
    }
  });
}

TEST(Gemm, APackedMatrixKeepsItsOwnCopy) {
  Tensor b = random_tensor({29, 41}, 2);
  const Tensor a = random_tensor({7, 29}, 1);
  const PackedMatrix packed(b);
  const Tensor before = product(a, packed);
  std::ranges::fill(b.values<float>(), 0.0f);
  EXPECT_TRUE(same_bits(product(a, packed), before));
}

// A row's result does not depend on the rows beside it, nor a column's on the columns beside it.
TEST(Gemm, ARowAloneIsTheRowInAMatrixBitForBit) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      const std::int64_t M = 51, K = 600, N = 70;
      const Tensor a = random_tensor({M, K}, 1, dtype), b = random_tensor({K, N}, 2, dtype);
      const Tensor whole = product(a, b);
      for (std::int64_t i = 0; i < M; ++i) {
        EXPECT_TRUE(same_bits(product(a.view().slice(0, i, 1), b), Tensor::copy_of(whole.view().slice(0, i, 1))))
            << "row " << i;
      }
      for (std::int64_t j = 0; j < N; j += 7) {
        EXPECT_TRUE(same_bits(product(a, b.view().slice(1, j, 1)), Tensor::copy_of(whole.view().slice(1, j, 1))))
            << "column " << j;
      }
    }
  });
}

TEST(Gemm, AnyNumberOfThreadsGivesTheSameBits) {
  on_every_isa([] {
    for (const auto& [M, K, N] :
         {std::array<std::int64_t, 3>{64, 512, 200}, {1, 700, 900}, {300, 100, 30}, {130, 130, 130}}) {
      const Tensor a = random_tensor({M, K}, 1), b = random_tensor({K, N}, 2);
      const PackedMatrix packed(b);
      const Tensor one = product(a, b);
      for (const int threads : {2, 3, 8}) {
        EXPECT_TRUE(same_bits(product(a, b, threads), one)) << threads << " threads";
        EXPECT_TRUE(same_bits(product(a, packed, threads), one)) << threads << " threads, packed";
      }
    }
  });
}

TEST(Gemm, NanReachesItsRowOrColumnAndNothingElse) {
  on_every_isa([] {
    Tensor a = random_tensor({37, 29}, 1), b = random_tensor({29, 41}, 2);
    const std::uint32_t payload = 0x7fc00001;
    std::memcpy(&a.values<float>()[5 * 29 + 3], &payload, sizeof payload);
    const Tensor rows = product(a, b);
    for (std::size_t at = 0; at < 37 * 41; ++at) ASSERT_EQ(std::isnan(rows.values<float>()[at]), at / 41 == 5);
    a = random_tensor({37, 29}, 1);
    b.values<float>()[28 * 41 + 40] = std::numeric_limits<float>::infinity();
    const Tensor columns = product(a, b);
    for (std::size_t at = 0; at < 37 * 41; ++at) ASSERT_EQ(std::isfinite(columns.values<float>()[at]), at % 41 != 40);
  });
}

TEST(Gemm, NothingIsReadBehindTheLastElement) {
  on_every_isa([] {
    for (const std::int64_t K : {1, 3, 17}) {
      for (const std::int64_t N : {1, 7, 17}) {
        const auto at_end = [](const Pages& pages, const Tensor& x) {
          const std::size_t bytes = static_cast<std::size_t>(x.elements()) * sizeof(float);
          std::byte* first = pages.data() + Pages::size() - bytes;
          std::memcpy(first, x.view().data(), bytes);
          return View(first, Dtype::float32, x.shape());
        };
        const Pages left(1), right(1);
        const Tensor a = random_tensor({13, K}, 1), b = random_tensor({K, N}, 2);
        EXPECT_TRUE(same_bits(product(at_end(left, a), at_end(right, b)), product(a, b)));
      }
    }
  });
}

// The naive product sums in order too, so the error is that of its own plain float32 run, at most.
TEST(Gemm, ErrorsAreNoLargerThanThoseOfAPlainFloat32Product) {
  on_every_isa([] {
    const Tensor a = random_tensor({100, 1024}, 1), b = random_tensor({1024, 100}, 2);
    const auto exact = reference::gemm<double>(a, b);
    const auto plain = reference::gemm<float>(a, b);
    const Tensor got = product(a, b);
    double squares = 0, plain_squares = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      squares += std::pow(static_cast<double>(got.values<float>()[i]) - exact[i], 2);
      plain_squares += std::pow(static_cast<double>(plain[i]) - exact[i], 2);
    }
    EXPECT_LE(squares, plain_squares);
  });
}

TEST(Gemm, RefusesWhatDoesNotFit) {
  const Tensor a({3, 4}), b({5, 6}), right({4, 6}), doubles({4, 6}, Dtype::float64), halves({4, 6}, Dtype::float16),
      rank3({1, 3, 4});
  Tensor c({3, 6}), small({3, 5}), c64({3, 6}, Dtype::float64), wide({3, 12});
  expect_error<ShapeError>([&] { gemm(a, b, c); }, {"gemm", "[3, 4]", "[5, 6]"});
  expect_error<ShapeError>([&] { gemm(a, right, small); }, {"gemm", "[3, 4]", "[4, 6]", "[3, 5]"});
  expect_error<ShapeError>([&] { gemm(rank3, right, c); }, {"gemm", "[1, 3, 4]"});
  expect_error<DtypeError>([&] { gemm(a, doubles, c); }, {"gemm", "float32", "float64"});
  expect_error<DtypeError>([&] { gemm(a, right, c64); }, {"gemm", "float32", "float64"});
  expect_error<DtypeError>([&] { gemm(a, halves, c); }, {"gemm", "float16"});
  const MutableView spread(wide.values<float>().data(), Dtype::float32, {3, 6}, {12, 2});
  expect_error<ShapeError>([&] { gemm(a, right, spread); }, {"gemm", "dense"});
  const PackedMatrix packed(right);
  expect_error<ShapeError>([&] { gemm(Tensor({3, 5}), packed, c); }, {"gemm", "[3, 5]", "[4, 6]"});
  expect_error<ShapeError>([&] { PackedMatrix{View(rank3)}; }, {"[1, 3, 4]"});
  expect_error<DtypeError>([&] { PackedMatrix{View(halves)}; }, {"float16"});
  expect_error<OptionError>([&] { gemm(a, right, c, {.threads = -1}); }, {"gemm", "-1"});
  expect_error<ShapeError>([&] { gemm(a, right, c, {.bias = Tensor({5})}); }, {"gemm", "bias", "[6]", "[5]"});
  expect_error<OptionError>([&] { gemm(a, right, c, {.accumulate = true, .bias = Tensor({6})}); },
                            {"gemm", "bias", "accumulate"});
}

}  // namespace
}  // namespace qkv::test
