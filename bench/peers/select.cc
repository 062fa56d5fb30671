/* SPDX-License-Identifier: Apache-2.0 */
/* The largest of a tensor as C++ finds them: std::nth_element and std::sort of (magnitude, index). Prints one
 * JSON line for each: name, elements, median seconds. */
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

struct Pair {
    float magnitude;
    uint32_t index;
};

static bool before(const Pair &a, const Pair &b)
{
    return a.magnitude > b.magnitude || (a.magnitude == b.magnitude && a.index < b.index);
}

static std::vector<float> numbers(size_t count, unsigned seed)
{
    std::vector<float> x(count);
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (float &value : x)
        value = normal(engine);
    return x;
}

template <typename Work>
static void measure(const char *name, const std::vector<float> &x, int turns, Work work)
{
    std::vector<Pair> pairs(x.size());
    std::vector<double> times;
    for (int turn = 0; turn < turns; turn++) {
        auto start = std::chrono::steady_clock::now();
        for (size_t i = 0; i < x.size(); i++)
            pairs[i] = {std::fabs(x[i]), static_cast<uint32_t>(i)};
        work(pairs);
        times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    std::printf("{\"name\": \"%s\", \"elements\": %zu, \"median_s\": %.9f}\n", name, x.size(),
                times[times.size() / 2]);
    std::fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : size_t(1) << 26;
    int turns = argc > 2 ? int(std::strtol(argv[2], nullptr, 10)) : 3;
    unsigned seed = argc > 3 ? unsigned(std::strtoul(argv[3], nullptr, 10)) : 1;
    if (count < 100 || count > UINT32_MAX || turns < 1) {
        std::fprintf(stderr, "usage: select [ELEMENTS [TURNS [SEED]]], at least 100 and 1\n");
        return 2;
    }
    std::vector<float> x = numbers(count, seed);
    measure("std::nth_element", x, turns, [](std::vector<Pair> &pairs) {
        std::nth_element(pairs.begin(), pairs.begin() + std::ptrdiff_t(pairs.size() / 100 - 1), pairs.end(),
                         before);
    });
    measure("std::sort", x, turns,
            [](std::vector<Pair> &pairs) { std::sort(pairs.begin(), pairs.end(), before); });
    return 0;
}
