/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a compressed all-reduce, in closed form.
 *
 *   A tensor of n elements is L bytes when coded; N members.
 *
 *     way          bytes each member sends     hops   kernels of a member
 *     allgather    (N-1) L                     1      encode n, decode N times n
 *     owner        2 (N-1)/N L                 2      encode n, merge N times n/N, decode n
 *                                              (topk over a whole tensor: 3, numbers of entries go first)
 *     shared       2 (N-1)/N of the small      2 for  as the codec says: gather and scatter, or products
 *                  thing, for each sum         a sum
 *     of a user    (N-1) L, L its bound        2      encode n, decode N + 1 times n
 *     two-level    as above with one member of each host, and a dense reduce and broadcast inside the host
 *
 *   Each begins and ends with a hop in which members compare what they are about to do and whether it went
 *   well. Wire and kernels overlap where a codec works part by part: then the longer of them counts, and of
 *   the shorter one a round, for nothing can be sent before the first round is coded; but only so many rounds
 *   are on their way at once, which a long line makes felt. Codecs that must see all of the tensor first pay
 *   for both.
 *
 *   Speeds of kernels are constants, not measurements: all members must come to the same choice. They are
 *   those of a slow core, so that a codec is chosen only where it helps on every machine. */
#include "gradient/price.h"

#include <math.h>
#include <stdio.h>

#include "collective/select.h"
#include "compress/powersgd.h"
#include "compress/sparse.h"
#include "compress/user_codec.h"
#include "gradient/round_cut.h"

#define ROUNDS_MOVING 6.0       /* at once */
#define AUTO_MARGIN   0.95      /* of plain's price: what a codec must stay below to be chosen by itself */
#define COMPARE_HOPS  2         /* before and after */
#define MESSAGE_BYTES 1048576.0 /* where the view does not say */

/* ---- kernels ---- */

/* Nanoseconds. Dense codecs: for each element. Sparse ones: `encode` for each element, the others for each
 * one that is kept. */
struct speed {
    double encode; /* with feedback: reads gradient and residual, writes residual and payload */
    double merge;  /* a payload into an owner's sum */
    double decode; /* a payload into the result */
};

static const struct speed speeds[CODEC_KIND_COUNT] = {
    [CODEC_FP16] = {1.2, 0.7, 0.7},   [CODEC_BF16] = {1.2, 0.7, 0.7}, [CODEC_INT8] = {1.3, 0.8, 0.8},
    [CODEC_ONEBIT] = {1.3, 0.7, 0.7}, [CODEC_TOPK] = {1.4, 4, 4},     [CODEC_RANDOMK] = {1.2, 2, 2},
};

#define WHOLE_ENCODE_NS   1.8  /* topk over a whole tensor: looks for its threshold */
#define WHOLE_MERGE_NS    12.0 /* lists that are merged by index, and chosen from again */
#define WRITE_NS          0.4  /* the result, for each element */
#define POWERSGD_NS       2.0  /* a step, for each element; */
#define POWERSGD_RANK_NS  0.25 /* and for each element and rank */
#define ALTERNATE_NS      1.6
#define ALTERNATE_RANK_NS 0.2
#define FACTOR_NS         4.0 /* an element of a factor: summed, made orthonormal with `rank` others */
#define USER_ENCODE_NS    8.0 /* a user's functions, of which nothing is known, for each element */
#define USER_DECODE_NS    4.0
#define WIDE_FACTOR       2.0 /* f64: twice the memory */

/* ---- who is where ---- */

/* What the members' places mean for prices. */
struct group_shape {
    int size;
    int hosts;        /* or sites, where they are known */
    int fewest, most; /* members of a host */
    struct link_cost inside, across;
    struct link_cost pace; /* of the links that set it: rounds are cut by them */
    double message_bytes;
};

static struct group_shape group_of(const struct group_view *view)
{
    struct group_shape group = {.size = view->size,
                                .fewest = view->size,
                                .inside = view->inside,
                                .across = view->across,
                                .message_bytes =
                                    view->chunk_bytes ? (double)view->chunk_bytes : MESSAGE_BYTES};

    for (int r = 0; r < view->size; r++) {
        int mates = 0;
        if (r > 0 && view_place(view, r) == view_place(view, r - 1))
            continue; /* counted a moment ago */
        bool known = false;
        for (int q = 0; q < view->size && !known; q++) {
            bool mate = view_place(view, q) == view_place(view, r);
            mates += mate;
            known = mate && q < r;
        }
        if (known)
            continue;
        group.hosts++;
        group.fewest = mates < group.fewest ? mates : group.fewest;
        group.most = mates > group.most ? mates : group.most;
    }
    group.pace = group.hosts > 1 ? view->across : view->inside;
    if (view->port_sharers > 1)
        group.across.bytes_per_s /= view->port_sharers;
    return group;
}

/* ---- what is to be done ---- */

/* What is priced: one codec with one tensor, among these members. */
struct quote {
    const struct codec *codec;
    const struct tensor_shape *shape;
    const struct group_view *view;
    struct group_shape group;
};

/* One algorithm of it, for a member. */
struct load {
    double bytes; /* sent */
    int hops;
    double kernel_ns;
    double rounds; /* that overlap; 1: nothing does */
};

static bool is_sparse(const struct codec *codec)
{
    return codec->kind == CODEC_TOPK || codec->kind == CODEC_RANDOMK;
}

static bool is_shared(const struct codec *codec)
{
    return codec->kind == CODEC_RANDOMK || codec->kind == CODEC_POWERSGD;
}

/* The shape that powersgd sees; false if it has none or does not gain by it. */
static bool matrix_of(const struct quote *q, struct matrix *m)
{
    size_t rows = q->codec->rows ? (size_t)q->codec->rows : q->shape->rows;

    if (rows == 0 || q->shape->count == 0 || q->shape->count % rows != 0)
        return false;
    m->rows = rows;
    m->columns = q->shape->count / rows;
    m->rank = powersgd_rank(q->codec, m->rows, m->columns);
    return powersgd_pays(m);
}

static struct round_plan rounds_of(const struct quote *q, const struct codec *codec, enum reduction_algo algo,
                                   size_t count)
{
    return round_plan_of(codec, algo, count, q->group.size, q->group.pace.bytes_per_s);
}

/* topk over a whole tensor: entries are taken to be spread evenly over the owners' parts. */
static double whole_bytes(const struct quote *q, enum reduction_algo algo)
{
    const struct codec *codec = q->codec;
    size_t size = (size_t)q->group.size, count = q->shape->count, keep = codec_keeps(codec, count);
    double others = (double)size - 1;

    if (algo == REDUCTION_ALLGATHER)
        return others * (double)sparse_len(codec, keep, count);
    size_t longest = (count + size - 1) / size, few = keep / size, more = keep % size;
    double counts = others * (double)size * sizeof(uint32_t);
    double lists = (double)(size - more) * (double)sparse_len(codec, few, count / size);
    if (more > 0)
        lists += (double)more * (double)sparse_len(codec, few + 1, longest);
    double chosen = CHOSEN_HEAD + (double)sparse_len(codec, codec_keeps(codec, longest), longest);
    return counts + lists * others / (double)size + others * chosen;
}

static bool load_coded(const struct quote *q, enum reduction_algo algo, struct load *load)
{
    bool parts = codec_is_blockwise(q->codec), owner = algo == REDUCTION_OWNER;
    struct speed speed = speeds[q->codec->kind];
    double n = (double)q->shape->count, size = q->group.size;
    double touched = is_sparse(q->codec) ? (double)codec_keeps(q->codec, q->shape->count) : n;

    if (parts) {
        struct round_plan plan = rounds_of(q, q->codec, algo, q->shape->count);
        load->bytes = (double)round_plan_bytes(&plan);
        load->rounds = (double)plan.round_count;
    } else {
        if (q->shape->count > SPARSE_COUNT_MAX)
            return false;
        load->bytes = whole_bytes(q, algo);
        speed.encode = WHOLE_ENCODE_NS;
        speed.merge = WHOLE_MERGE_NS;
    }
    load->hops = !owner ? 1 : parts ? 2 : 3;
    load->kernel_ns = n * (speed.encode + WRITE_NS);
    load->kernel_ns += touched * (owner ? speed.merge + speed.decode : size * speed.decode);
    load->kernel_ns += owner && parts ? n / size * speed.encode : 0;
    return true;
}

/* Its lengths go first. What it encodes it also decodes, for the residual. */
static bool load_user(const struct quote *q, enum reduction_algo algo, struct load *load)
{
    size_t bound = user_bound(q->codec, q->shape->count);
    double n = (double)q->shape->count, size = q->group.size;

    if (algo != REDUCTION_ALLGATHER || bound == 0)
        return false;
    load->bytes = (size - 1) * ((double)bound + sizeof(uint64_t));
    load->hops = 2;
    load->kernel_ns = n * (USER_ENCODE_NS + (size + 1) * USER_DECODE_NS + WRITE_NS);
    return true;
}

/* Bytes and hops of the sum of a small array that all members have alike. */
static void add_shared(const struct quote *q, enum codec_values values, size_t count, struct load *load)
{
    struct codec codec = codec_of_values(values);
    enum reduction_algo algo = round_algo(&codec, count, q->group.size, &q->group.pace);
    struct round_plan plan = rounds_of(q, &codec, algo, count);

    load->bytes += (double)round_plan_bytes(&plan);
    load->hops += algo == REDUCTION_OWNER ? 2 : 1;
}

static bool load_shared(const struct quote *q, struct load *load)
{
    const struct codec *codec = q->codec;
    double n = (double)q->shape->count;
    struct matrix m;

    if (codec->kind == CODEC_RANDOMK) {
        size_t keep = codec_keeps(codec, q->shape->count);
        const struct speed *speed = &speeds[CODEC_RANDOMK];
        add_shared(q, codec->values, keep, load);
        load->kernel_ns = n * (speed->encode + WRITE_NS) + (double)keep * (speed->merge + speed->decode);
        return true;
    }
    if (!matrix_of(q, &m))
        return false;
    double factors = ((double)m.rows + (double)m.columns) * m.rank;
    double step = codec->alternate ? ALTERNATE_NS + ALTERNATE_RANK_NS * m.rank
                                   : POWERSGD_NS + POWERSGD_RANK_NS * m.rank;
    add_shared(q, VALUES_F32, m.rows * m.rank, load);
    add_shared(q, VALUES_F32, m.columns * m.rank, load);
    if (codec->alternate) { /* one of the two in turn */
        factors /= 2;
        load->bytes /= 2;
        load->hops = (load->hops + 1) / 2;
    }
    load->kernel_ns = n * step + factors * m.rank * FACTOR_NS;
    return true;
}

static bool load_of(const struct quote *q, enum reduction_algo algo, struct load *load)
{
    *load = (struct load){.rounds = 1};
    if (q->shape->count == 0)
        return true;
    bool can = q->codec->kind == CODEC_USER ? load_user(q, algo, load)
               : algo == REDUCTION_SHARED   ? load_shared(q, load)
                                            : load_coded(q, algo, load);
    if (!can)
        return false;
    load->kernel_ns *= q->shape->dtype == HEARTH_F64 ? WIDE_FACTOR : 1;
    return true;
}

/* ---- prices ---- */

static const struct reduction_price impossible = {.total_s = HUGE_VAL};

/* `hops` times something to each of the others. */
static double group_latency(const struct group_shape *group, int hops)
{
    const struct link_cost *pace = group->hosts > 1 ? &group->across : &group->inside;

    return hops * (pace->alpha_s + (group->size - 1) * pace->overhead_s);
}

/* So many bytes, the same to each of the others, by the member that has the fewest of them at hand. */
static double group_wire(const struct group_shape *group, double bytes)
{
    double each = bytes / (group->size - 1);
    double inside = group->fewest - 1, across = group->size - group->fewest;
    double inside_s = 1 / group->inside.bytes_per_s + group->inside.overhead_s / group->message_bytes;
    double across_s = 1 / group->across.bytes_per_s + group->across.overhead_s / group->message_bytes;

    return each * (inside * inside_s + across * across_s);
}

static struct reduction_price price_flat(const struct quote *q, enum reduction_algo algo)
{
    const struct group_shape *group = &q->group;
    struct reduction_price price = {0};
    struct load load;

    if (!load_of(q, algo, &load))
        return impossible;
    if (group->size == 1)
        return price;
    double latency = group_latency(group, load.hops + COMPARE_HOPS);
    price.bytes = load.bytes + (double)COMPARE_BYTES * (group->size - 1);
    double wire = group_wire(group, price.bytes);
    price.wire_s = wire + latency;
    price.hops_s = latency;
    price.kernel_s = load.kernel_ns * 1e-9;
    double longer = wire > price.kernel_s ? wire : price.kernel_s;
    double shorter = wire > price.kernel_s ? price.kernel_s : wire;
    double stream = longer + shorter / load.rounds;
    double waits = (load.rounds / ROUNDS_MOVING - 1) * group_latency(group, load.hops);
    price.total_s = latency + (stream > waits ? stream : waits);
    return price;
}

static uint32_t acc_len(enum hearth_dtype dtype)
{
    return dtype == HEARTH_F64 ? 8 : 4;
}

/* What a dense collective costs, by the algorithm that it would take. */
static double price_dense(enum plan_kind kind, const struct tensor_shape *shape,
                          const struct group_view *view)
{
    struct plan_call call = {.kind = kind,
                             .size = view->size,
                             .count = shape->count,
                             .raw_len = (uint32_t)dtype_size(shape->dtype),
                             .acc_len = acc_len(shape->dtype),
                             .host = view->host,
                             .order = view->order,
                             .chunk_bytes = view->chunk_bytes,
                             .window_bytes = view->window_bytes};
    enum hearth_algo algo;

    if (view->size == 1 || shape->count == 0)
        return 0;
    if (select_algo(&call, view, &algo, NULL))
        return HUGE_VAL;
    return select_price(&call, algo, view);
}

static struct reduction_price price_plain(const struct tensor_shape *shape, const struct group_view *view)
{
    double n = (double)shape->count, share = (double)(view->size - 1) / view->size;
    double total = price_dense(PLAN_ALL_REDUCE, shape, view);

    return (struct reduction_price){
        .bytes = 2 * share * n * (double)dtype_size(shape->dtype),
        .wire_s = total,
        .kernel_s = share * n * acc_len(shape->dtype) * view->inside.gamma_s,
        .total_s = total,
    };
}

/* The fullest host sums up and hands out, its first member speaks with those of the others in between. */
static struct reduction_price price_two_level(const struct quote *q)
{
    struct quote leaders = *q;
    struct group_view home = *q->view;
    struct reduction_price best = impossible;

    leaders.group.size = q->group.hosts; /* one member of each host: nobody shares a port */
    leaders.group.fewest = leaders.group.most = 1;
    leaders.group.across = q->view->across;
    for (int a = REDUCTION_ALLGATHER; a <= REDUCTION_SHARED; a++) {
        if ((a == REDUCTION_SHARED) != is_shared(q->codec))
            continue;
        struct reduction_price price = price_flat(&leaders, (enum reduction_algo)a);
        best = price.total_s < best.total_s ? price : best;
    }
    home.size = q->group.most;
    home.host = home.site = home.order = NULL;
    double dense = price_dense(PLAN_REDUCE, q->shape, &home) + price_dense(PLAN_BROADCAST, q->shape, &home);
    best.wire_s += dense;
    best.total_s += dense;
    return best;
}

static bool group_can(const struct codec *codec, enum reduction_algo algo, const struct group_shape *group)
{
    if (codec->kind == CODEC_NONE)
        return algo == REDUCTION_PLAIN;
    switch (algo) {
    case REDUCTION_ALLGATHER:
        return !is_shared(codec);
    case REDUCTION_OWNER:
        return !is_shared(codec) && codec->kind != CODEC_USER;
    case REDUCTION_SHARED:
        return is_shared(codec);
    case REDUCTION_TWO_LEVEL:
        /* powersgd's warm start would be one of leaders only. */
        return group->hosts > 1 && group->most > 1 && codec->kind != CODEC_POWERSGD;
    default:
        return false;
    }
}

static struct reduction_price price_of(const struct quote *q, enum reduction_algo algo)
{
    if (!group_can(q->codec, algo, &q->group) ||
        (algo == REDUCTION_TWO_LEVEL && q->shape->dtype == HEARTH_F64))
        return impossible;
    if (algo == REDUCTION_PLAIN)
        return price_plain(q->shape, q->view);
    return algo == REDUCTION_TWO_LEVEL ? price_two_level(q) : price_flat(q, algo);
}

const char *reduction_algo_name(enum reduction_algo algo)
{
    static const char *const names[REDUCTION_ALGOS] = {
        [REDUCTION_PLAIN] = "plain",   [REDUCTION_ALLGATHER] = "allgather", [REDUCTION_OWNER] = "owner",
        [REDUCTION_SHARED] = "shared", [REDUCTION_TWO_LEVEL] = "two-level",
    };

    return names[algo];
}

bool reduction_can(const struct codec *codec, enum reduction_algo algo, const struct group_view *view)
{
    struct group_shape group = group_of(view);

    return group_can(codec, algo, &group);
}

struct reduction_price reduction_price(const struct codec *codec, enum reduction_algo algo,
                                       const struct tensor_shape *shape, const struct group_view *view)
{
    struct quote quote = {codec, shape, view, group_of(view)};

    return price_of(&quote, algo);
}

/* ---- the choice ---- */

void reduction_choose(const struct codec_list *list, const struct tensor_shape *shape,
                      const struct group_view *view, struct reduction_choice *choice)
{
    struct quote quote = {.shape = shape, .view = view, .group = group_of(view)};
    struct reduction_price plain = price_plain(shape, view);
    double limit = list->automatic ? plain.total_s * AUTO_MARGIN : HUGE_VAL;
    double bytes_max = list->automatic ? plain.bytes : HUGE_VAL;

    *choice = (struct reduction_choice){.codec = {.kind = CODEC_NONE, .feedback = true},
                                        .algo = REDUCTION_PLAIN,
                                        .price = plain,
                                        .plain = plain};
    for (int i = 0; i < list->count; i++)
        for (int a = REDUCTION_PLAIN; a < REDUCTION_ALGOS; a++) { /* of equal ones the first */
            quote.codec = &list->codec[i];
            struct reduction_price price = price_of(&quote, (enum reduction_algo)a);
            if (price.total_s >= limit || price.bytes > bytes_max)
                continue;
            limit = price.total_s;
            choice->codec = list->codec[i];
            choice->algo = (enum reduction_algo)a;
            choice->price = price;
        }
}

/* "12.1 ms" */
struct short_text {
    char s[32];
};

static struct short_text time_words(double seconds)
{
    struct short_text words;

    if (seconds < 1e-3)
        snprintf(words.s, sizeof words.s, "%.3g us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(words.s, sizeof words.s, "%.3g ms", seconds * 1e3);
    else
        snprintf(words.s, sizeof words.s, "%.4g s", seconds);
    return words;
}

static struct short_text bytes_words(double bytes)
{
    struct short_text words;

    if (bytes < 1e4)
        snprintf(words.s, sizeof words.s, "%.0f B", bytes);
    else if (bytes < 1e7)
        snprintf(words.s, sizeof words.s, "%.4g kB", bytes * 1e-3);
    else
        snprintf(words.s, sizeof words.s, "%.4g MB", bytes * 1e-6);
    return words;
}

void reduction_reason(const struct reduction_choice *choice, char *text, size_t size)
{
    char codec[CODEC_TEXT_MAX];

    codec_text(&choice->codec, codec, sizeof codec);
    if (choice->algo == REDUCTION_PLAIN)
        snprintf(text, size, "%s by plain: %s (%s)", codec, time_words(choice->price.total_s).s,
                 bytes_words(choice->price.bytes).s);
    else
        snprintf(text, size, "%s by %s: %s (wire %s, %s; kernels %s), plain %s", codec,
                 reduction_algo_name(choice->algo), time_words(choice->price.total_s).s,
                 time_words(choice->price.wire_s).s, bytes_words(choice->price.bytes).s,
                 time_words(choice->price.kernel_s).s, time_words(choice->plain.total_s).s);
}
