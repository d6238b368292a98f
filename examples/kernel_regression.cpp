// examples/kernel_regression.cpp: a table of measurements is asked for points between its rows (Nadaraya and Watson).
#include <cstddef>
#include <cstdio>
#include <vector>

#include <qkv/attend.h>

int main() {
  // y is about x^2. The table has no row near 3.
  const std::vector<float> x = {0, 0.5f, 1, 1.5f, 2, 4, 4.5f, 5}, y = {0.1f, 0.2f, 1.1f, 2.2f, 4.1f, 15.9f, 20.4f, 25};
  const std::vector<float> asked = {1.25f, 3, 4.5f, 9};
  const qkv::View keys(x, {8, 1}), values(y, {8, 1}), queries(asked, {4, 1});

  // An estimate is the mean of all y, weighed by how near their x are; the bandwidth says what is near. How many rows
  // have a say is the effective number of keys. Far from all rows, the nearest one decides.
  for (const double bandwidth : {0.2, 0.5}) {
    const qkv::Attended estimate = qkv::attend(
        queries, keys, values, {.score = qkv::gaussian(bandwidth), .weigh = qkv::normalize(), .want_effective = true});
    std::printf("bandwidth %.1f:\n", bandwidth);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      std::printf("  y(%.2f) = %5.2f from %.2f rows\n", static_cast<double>(asked[i]),
                  static_cast<double>(estimate.out.values<float>()[i]),
                  static_cast<double>(estimate.effective.values<float>()[i]));
    }
  }
}

// Prints:
//   bandwidth 0.2:
//     y(1.25) =  1.65 from 2.03 rows
//     y(3.00) = 10.00 from 2.00 rows
//     y(4.50) = 20.40 from 1.40 rows
//     y(9.00) = 25.00 from 1.00 rows
//   bandwidth 0.5:
//     y(1.25) =  1.75 from 3.83 rows
//     y(3.00) = 10.11 from 2.66 rows
//     y(4.50) = 20.43 from 2.91 rows
//     y(9.00) = 25.00 from 1.00 rows
