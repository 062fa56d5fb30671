/* SPDX-License-Identifier: Apache-2.0 */
/* Gloo's all-reduce algorithms over tcp, measured. The names are those of Gloo's own benchmark: new_* are
 * choices of gloo::allreduce, the others the older classes, which are set up once for a buffer. */
#include <gloo/algorithm.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
#include "bench/peers/measure.h"
}

namespace
{

using Choice = gloo::AllreduceOptions::Algorithm;
using Reduction = void (*)(void *, const void *, const void *, size_t);

const auto kTimeout = std::chrono::seconds(60);

struct Gloo {
    std::string algo;
    std::shared_ptr<gloo::rendezvous::Context> data,
        control;                              /* two, so that control never changes what is timed */
    std::unique_ptr<gloo::Algorithm> classic; /* one of the older classes, or none */
    Choice choice = Choice::UNSPECIFIED;
    float *buffer = nullptr;
    size_t count = 0;
};

/* The measuring loop is C: exceptions end here. */
template <typename Work> bool guarded(Work work)
{
    try {
        work();
        return true;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "gloo: %s\n", e.what());
        return false;
    }
}

template <typename T>
void reduce(const std::shared_ptr<gloo::Context> &context, Choice choice, T *values, size_t count,
            Reduction how)
{
    gloo::AllreduceOptions options(context);
    options.setAlgorithm(choice);
    options.setOutput(values, count);
    options.setReduceFunction(how);
    gloo::allreduce(options);
}

bool prepare(void *self, float **buffer, size_t count)
{
    auto &g = *static_cast<Gloo *>(self);
    std::vector<float *> buffers{*buffer};
    int elements = static_cast<int>(count);
    g.buffer = *buffer;
    g.count = count;
    return guarded([&] {
        if (g.algo == "new_ring")
            g.choice = Choice::RING;
        else if (g.algo == "new_bcube")
            g.choice = Choice::BCUBE;
        else if (g.algo == "ring")
            g.classic.reset(new gloo::AllreduceRing<float>(g.data, buffers, elements));
        else if (g.algo == "ring_chunked")
            g.classic.reset(new gloo::AllreduceRingChunked<float>(g.data, buffers, elements));
        else if (g.algo == "halving_doubling")
            g.classic.reset(new gloo::AllreduceHalvingDoubling<float>(g.data, buffers, elements));
        else if (g.algo == "bcube")
            g.classic.reset(new gloo::AllreduceBcube<float>(g.data, buffers, elements));
        else
            throw std::invalid_argument("no such algorithm: " + g.algo);
    });
}

bool all_reduce(void *self)
{
    auto &g = *static_cast<Gloo *>(self);
    return guarded([&] {
        if (g.classic)
            g.classic->run();
        else
            reduce<float>(g.data, g.choice, g.buffer, g.count, gloo::sum<float>);
    });
}

void finish(void *self)
{
    static_cast<Gloo *>(self)->classic.reset();
}

bool greatest(void *self, double *values, size_t count)
{
    auto &g = *static_cast<Gloo *>(self);
    return guarded([&] { reduce<double>(g.control, Choice::RING, values, count, gloo::max<double>); });
}

std::shared_ptr<gloo::rendezvous::Context> join(int rank, int ranks, gloo::rendezvous::Store &store,
                                                std::shared_ptr<gloo::transport::Device> device)
{
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->setTimeout(kTimeout);
    context->connectFullMesh(store, device);
    return context;
}

} // namespace

int main(int, char **argv)
{
    setting settings[] = {{"seconds", "0.5"}, {"algo", "new_ring"}, {"rank", "0"},
                          {"ranks", "2"},     {"store", "."},       {"host", "127.0.0.1"}};
    char **sizes = settings_take(argv, settings, sizeof settings / sizeof *settings);
    if (!sizes)
        return 2;
    int status = 1;
    guarded([&] {
        Gloo g;
        peer p = {};
        g.algo = settings[1].value;
        p.rank = std::stoi(settings[2].value);
        p.ranks = std::stoi(settings[3].value);
        gloo::rendezvous::FileStore files(settings[4].value);
        gloo::rendezvous::PrefixStore data(std::string("data"), files),
            control(std::string("control"), files);
        gloo::transport::tcp::attr address;
        address.hostname = settings[5].value;
        auto device = gloo::transport::tcp::CreateDevice(address);
        g.data = join(p.rank, p.ranks, data, device);
        g.control = join(p.rank, p.ranks, control, device);
        std::string name = "gloo." + g.algo;
        p.name = name.c_str();
        p.algo = g.algo.c_str();
        p.alloc = "private";
        p.self = &g;
        p.prepare = prepare;
        p.all_reduce = all_reduce;
        p.finish = finish;
        p.greatest = greatest;
        status = measure(&p, settings[0].value, sizes);
        double nothing = 0;
        greatest(&g, &nothing, 1); /* nobody closes while another still reads */
    });
    return status;
}
