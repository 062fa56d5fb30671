/* SPDX-License-Identifier: Apache-2.0 */
/* Hearth: train one model on the machines you own. This is the whole public interface of libhearth. */
#ifndef HEARTH_H
#define HEARTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEARTH_VERSION_MAJOR 0
#define HEARTH_VERSION_MINOR 1
#define HEARTH_VERSION_PATCH 0

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

/* ---- Conventions ----------------------------------------------------------------------------------------
 *
 * A program opens a node, takes its group and calls collectives. Options, non-blocking requests, compression
 * and measurement follow below in this order.
 *
 * Units are in the names: `count` is elements, `len` is bytes, `timeout_ms` is milliseconds.
 *
 * Functions return 0 (HEARTH_OK) or a negative `enum hearth_status`; the two positive statuses are not
 * errors. Outputs are set only on success. Every timeout_ms is -1 for the default, 0 to return at once, or
 * milliseconds. A collective or hearth_sync_wait that runs out of time is aborted for all members, so 0 is
 * not a way to poll them: start the `_nb` form and call hearth_request_test.
 *
 * Structs begin with their size so that they can grow: a program and a library of different versions share
 * the fields that both know. An input struct has an init function that fills in the defaults. For an output
 * struct the caller sets `size` to sizeof. Fields that an older library does not know stay zero in outputs,
 * and are HEARTH_UNSUPPORTED in inputs unless they are zero.
 *
 * A pointer argument is lent for the call; a user buffer is lent until its operation has ended. Strings
 * passed in are copied.
 *
 * Threads: any thread may call any function unless its comment says otherwise. Several threads may use one
 * handle at the same time, but closing or freeing a handle must not race with its other uses.
 *
 * Fork: a node belongs to the process that opened it. In a forked child every call returns HEARTH_FORKED
 * (hearth_group_rank and hearth_group_size still answer) and hearth_node_close only frees memory. The child
 * does not keep the connections open: peers see at once that a killed parent is gone. */

/* ---- Version -------------------------------------------------------------------------------------- */

/* The version of the library at run time, as major << 16 | minor << 8 | patch; HEARTH_VERSION_MAJOR,
 * HEARTH_VERSION_MINOR and HEARTH_VERSION_PATCH are those of this header. While major is 0 every minor
 * version has its own soname; from 1.0 on the soname changes with major only. */
HEARTH_API uint32_t hearth_version(void);
HEARTH_API const char *hearth_version_string(void); /* "0.1.0"; static memory */

/* ---- Status --------------------------------------------------------------------------------------- */

/* Grouped by how much is broken, so that a caller can act on the group alone: see hearth_status_scope. */
enum hearth_status {
    HEARTH_OK = 0,
    HEARTH_BEHIND = 1,  /* hearth_group_reform: success, but this member lacks steps that others made */
    HEARTH_PENDING = 2, /* not finished: hearth_request_test, and waits that run out of time */

    /* Argument: nothing happened and no sequence number was used; correct the call and repeat it. */
    HEARTH_INVALID = -101,     /* an argument, variable or name is not acceptable */
    HEARTH_UNSUPPORTED = -102, /* acceptable, but not in this version, build or combination */

    /* Operation: this operation ended without a result on every member; the group is usable. */
    HEARTH_TIMEOUT = -201,   /* its deadline passed; the text names the missing rank */
    HEARTH_CANCELLED = -202, /* cancelled here */
    HEARTH_ABORTED = -203,   /* another member ended it; the text names that rank and its reason */
    HEARTH_MISMATCH = -204,  /* members called different operations; the text names the rank that differs */
    HEARTH_DIFFERS = -205,   /* hearth_group_same: not all members hold the same bytes */
    HEARTH_POISONED = -206,  /* compressed: NaN or Inf in a member's input, or a sum beyond f32 */
    HEARTH_NO_MEMORY = -207, /* out of memory, or the configured memory limit is reached */
    HEARTH_LIMIT = -208,     /* a configured or built-in limit (operations, tags, length) is reached */
    HEARTH_TOO_LONG = -209,  /* a message is longer than the receiver's buffer, a reply than its limit */
    HEARTH_NO_SUCH_CALL = -210, /* remote calls: no handler has this name there */
    HEARTH_CALL_FAILED = -211,  /* remote calls: the handler failed; the text is the handler's */
    HEARTH_BUSY = -212,         /* remote calls: too many calls wait there already */
    HEARTH_COPY_FAILED = -213,  /* the memory adapter (struct hearth_memory) failed here */

    /* Peer: one member is lost. */
    HEARTH_PEER_LOST = -301, /* it closed, died or stopped answering; the text names the rank */
    HEARTH_PROTOCOL = -302,  /* it violated the protocol */

    /* Group: no further operation of this group can succeed. */
    HEARTH_VIEW_CHANGED = -401, /* a member of a formed group is gone: call hearth_group_reform */
    HEARTH_GROUP_BROKEN = -402, /* a member was lost earlier, or has left; the text names it */

    /* Node: this node is unusable. */
    HEARTH_FORKED = -501, /* called in a forked child */
    HEARTH_CLOSED = -502, /* the node is closing */
    HEARTH_SYSTEM = -503  /* the operating system refused a resource that the node needs */
};

enum hearth_scope {
    HEARTH_SCOPE_NONE = 0,
    HEARTH_SCOPE_ARGUMENT,
    HEARTH_SCOPE_OPERATION,
    HEARTH_SCOPE_PEER,
    HEARTH_SCOPE_GROUP,
    HEARTH_SCOPE_NODE
};

/* The cause behind a status, where a program can act on it. Values are part of the wire format. */
enum hearth_reason {
    HEARTH_REASON_NONE = 0, /* the status is the whole cause */

    /* A member is gone: HEARTH_PEER_LOST, HEARTH_GROUP_BROKEN, HEARTH_VIEW_CHANGED. */
    HEARTH_REASON_PEER_CLOSED = 1, /* its connection ended without a goodbye: it died, or the network broke */
    HEARTH_REASON_PEER_LEFT = 2,   /* its node was closed */
    HEARTH_REASON_PEER_SILENT = 3, /* it did not answer for peer_timeout_ms, or does not read */
    HEARTH_REASON_PEER_REMOVED = 4, /* its key was revoked, or the home cluster declared it dead */

    /* Another member ended the operation: HEARTH_ABORTED. */
    HEARTH_REASON_TIMED_OUT = 5, /* its deadline passed there */
    HEARTH_REASON_CANCELLED = 6, /* it was cancelled there */
    HEARTH_REASON_NO_MEMORY = 7, /* memory ran out there */

    /* Nodes are not compatible: correct how they are started. */
    HEARTH_REASON_SECRET_DIFFERS = 8,   /* another secret, or another cluster */
    HEARTH_REASON_KEY_REFUSED = 9,      /* a key was revoked or is not on the list (hearth trust) */
    HEARTH_REASON_VERSION_DIFFERS = 10, /* no version of the protocol in common */
    HEARTH_REASON_SETTINGS_DIFFER = 11, /* plain, job, world size, a duplicate rank, another agreed field */

    /* The network. */
    HEARTH_REASON_ADDRESS_IN_USE = 12, /* another process listens there */
    HEARTH_REASON_UNREACHABLE = 13,    /* no connection to an address: refused, no route, no answer */
    HEARTH_REASON_NOT_HEARTH = 14,     /* another program, or another node, answers at that address */
    HEARTH_REASON_BUSY = 15            /* it is busy: try again later */
};

HEARTH_API enum hearth_scope hearth_status_scope(int status);
HEARTH_API const char *hearth_status_name(int status); /* "HEARTH_TIMEOUT"; static memory, never NULL */
HEARTH_API const char *hearth_status_text(int status); /* one sentence; static memory, never NULL */

/* The text of the last failed call on this thread: operation, rank, peer, phase, reason. Never NULL; valid
 * until the next failed call on this thread. The text of a request: hearth_request_error. */
HEARTH_API const char *hearth_error_text(void);
/* The rank that this text is about (the lost or differing member), as the call's group counts; -1: none. */
HEARTH_API int hearth_error_rank(void);
/* The cause of that failure, for programs: texts may change. */
HEARTH_API enum hearth_reason hearth_error_reason(void);
HEARTH_API const char *hearth_reason_name(enum hearth_reason reason); /* "peer_left"; "?" if unknown */

/* What became of a message or a remote call that failed: whether it can be sent again without harm. */
enum hearth_fate {
    HEARTH_FATE_NONE = 0,          /* the error is not about a message or a call */
    HEARTH_FATE_NOT_DELIVERED = 1, /* the receiver did not get it and will not; a call did not run */
    HEARTH_FATE_DELIVERED = 2,     /* the receiver has it; a call has run */
    HEARTH_FATE_UNKNOWN = 3        /* it had left when the connection or the deadline ended: either */
};
HEARTH_API enum hearth_fate hearth_error_fate(void);            /* of the last failed call on this thread */
HEARTH_API const char *hearth_fate_name(enum hearth_fate fate); /* "not_delivered"; "?" if unknown */

/* ---- Types ---------------------------------------------------------------------------------------- */

/* Values are part of the wire format and never change. Reserved: 10 fp8 e4m3, 11 fp8 e5m2, 12 i16, 13 u16,
 * 14 bool. */
enum hearth_dtype {
    HEARTH_F32 = 0,
    HEARTH_F64 = 1,
    HEARTH_F16 = 2, /* IEEE 754 binary16 */
    HEARTH_BF16 = 3,
    HEARTH_I8 = 4,
    HEARTH_I32 = 5,
    HEARTH_I64 = 6,
    HEARTH_U8 = 7,
    HEARTH_U32 = 8,
    HEARTH_U64 = 9
};

/* How contributions are combined.
 *  - The order of combination is fixed by the plan, never by arrival. HEARTH_FLAG_RANK_ORDER in the options
 *    fixes it to rank 0, 1, 2, ... for every plan and transport.
 *  - f16 and bf16 sums, products and averages are accumulated in f32 and rounded once, to nearest even.
 *  - A NaN result is the canonical quiet NaN of its type. min and max are the minimum and maximum of IEEE
 *    754-2019: NaN wins, -0 < +0.
 *  - Integer sum and prod wrap.
 *  - band, bor and bxor combine the bits of integers; with a floating-point type they are HEARTH_INVALID.
 *  - avg is sum(w*x)/sum(w) with each member's `weight` (default 1). Integers are averaged in f64 (so 64-bit
 *    integers exactly only while |sum| < 2^53), rounded to nearest, ties to even, and saturated. */
enum hearth_op {
    HEARTH_OP_SUM = 0,
    HEARTH_OP_AVG = 1,
    HEARTH_OP_PROD = 2,
    HEARTH_OP_MIN = 3,
    HEARTH_OP_MAX = 4,
    HEARTH_OP_BAND = 5,
    HEARTH_OP_BOR = 6,
    HEARTH_OP_BXOR = 7
};

/* How the data travels. The cost model chooses from facts that all members agree on; a fixed choice is for
 * measurement. An algorithm that a collective does not have is HEARTH_UNSUPPORTED. */
enum hearth_algo {
    HEARTH_ALGO_AUTO = 0,
    HEARTH_ALGO_RING = 1,
    HEARTH_ALGO_DIRECT = 2,       /* to the owner of each part, then from it: two hops */
    HEARTH_ALGO_HALVING = 3,      /* recursive halving and doubling, any number of members */
    HEARTH_ALGO_TREE = 4,         /* binomial; O(log N) hops */
    HEARTH_ALGO_STAR = 5,         /* all data through one member ("centralized") */
    HEARTH_ALGO_HIERARCHICAL = 6, /* inside each host first, then between hosts */
    HEARTH_ALGO_EXCHANGE = 7      /* every member to every other; each combines in rank order: one hop */
};

HEARTH_API size_t hearth_dtype_size(enum hearth_dtype dtype);      /* bytes of one element; 0 if unknown */
HEARTH_API const char *hearth_dtype_name(enum hearth_dtype dtype); /* "f32"; "?" if unknown */
HEARTH_API const char *hearth_op_name(enum hearth_op op);          /* "sum"; "?" if unknown */
HEARTH_API const char *hearth_algo_name(enum hearth_algo algo);    /* "ring"; "?" if unknown */
/* The inverse of the names. HEARTH_INVALID: unknown name. */
HEARTH_API int hearth_dtype_parse(const char *name, enum hearth_dtype *dtype);
HEARTH_API int hearth_op_parse(const char *name, enum hearth_op *op);
HEARTH_API int hearth_algo_parse(const char *name, enum hearth_algo *algo);

typedef struct hearth_node hearth_node;       /* one member of a cluster: links, engine, threads */
typedef struct hearth_group hearth_group;     /* the members that take part in collectives, in rank order */
typedef struct hearth_request hearth_request; /* one non-blocking operation */

/* ---- Configuration -------------------------------------------------------------------------------- */

enum hearth_log_level {
    HEARTH_LOG_ERROR = 1,
    HEARTH_LOG_WARN = 2,
    HEARTH_LOG_INFO = 3,
    HEARTH_LOG_DEBUG = 4
};

/* Receives one log line, without a newline. `id` names the message and never changes ("HEARTH-PEER-LOST").
 * Called from any thread, possibly from several at once; must not call Hearth. */
typedef void hearth_log_fn(void *arg, enum hearth_log_level level, const char *id, const char *text);

/* For measurement and for unusual machines: training needs none of it. Initialise with hearth_tuning_init.
 * "agreed": must be the same on all members, as in struct hearth_config. */
struct hearth_tuning {
    size_t size;
    size_t chunk_bytes;  /* agreed: largest payload of one frame: 262,144 */
    size_t window_bytes; /* agreed: staging memory of an operation; 4 times that over long paths: 4,194,304 */
    size_t eager_bytes;  /* agreed: bytes that a peer may send before the operation is posted: 262,144 */
    size_t compressed_allreduce_max_bytes; /* memory for one; 0 = no limit: 4,294,967,296 */
    int64_t connect_timeout_ms;            /* for one attempt to connect: 5,000 */
    uint32_t connect_retries;              /* further attempts, with backoff and jitter: 3 */
    uint32_t connections;    /* tcp: data connections to each peer, 1..8; 0 = by round trip: 0 */
    uint32_t datagram_bytes; /* quic: largest packet payload, 1,200 to 65,507; 0 = as the interface: 0 */
    uint32_t ops_max;        /* operations in flight per node: 1,024 */
    uint32_t spin_us;        /* how long a blocking call polls before it sleeps: 200 */
    enum hearth_algo algo;   /* agreed: for calls with HEARTH_ALGO_AUTO: HEARTH_ALGO_AUTO */
};
HEARTH_API void hearth_tuning_init_sized(struct hearth_tuning *tuning, size_t size);
static inline void hearth_tuning_init(struct hearth_tuning *tuning)
{
    hearth_tuning_init_sized(tuning, sizeof(*tuning));
}

struct hearth_environment;

/* Always initialise with hearth_config_init. The number after the colon is the default. Fields that must be
 * the same on all members are marked "agreed"; a difference is found when the node opens or at the first
 * operation. */
struct hearth_config {
    size_t size;               /* set by hearth_config_init */
    int64_t op_timeout_ms;     /* default deadline of an operation: 1,800,000 (30 min) */
    size_t memory_max;         /* all memory of a node except user buffers and the rings in shared memory
                                        (at most 16 MiB); 0 = no limit: 0 */
    uint64_t rate;             /* most bits per second that this node sends, to all peers together,
                                        64,000 to 10^12; 0 = no limit: 0 */
    const char *codec;         /* for compressed calls that name none: "none" */
    uint32_t compress_threads; /* for one tensor, with the caller, 1..64; bits do not depend on it: 1 */
    enum hearth_log_level log_level; /* HEARTH_LOG_WARN */
    hearth_log_fn *log;              /* NULL = silent */
    void *log_arg;
    const struct hearth_tuning *tuning;           /* NULL = its defaults: NULL */
    const struct hearth_environment *environment; /* set by hearth_config_env for hearth_node_open: what the
                                                     launcher passed to this process: NULL */

    /* The rest is for hearth_node_open only. It copies strings. */
    const char *peers;       /* "host:port,host:port,...": all members, in the order of their ranks: NULL */
    const char *rendezvous;  /* "host[:port]" or "unix:PATH" where all members register: NULL */
    const char *job;         /* agreed: members of different jobs refuse each other: "hearth" */
    int rank;                /* -1 = own place in `peers`, or assigned by the rendezvous: -1 */
    int world_size;          /* number of members; 0 = as many as `peers` has: 0 */
    const char *bind;        /* interface or address to listen on; NULL = all: NULL */
    const char *advertise;   /* address that peers dial, "host[:port]"; NULL = detected: NULL */
    const char *transport;   /* agreed: "auto" (shared memory inside a host; between hosts tcp, or quic where
                                a measurement over a long path finds it faster), "tcp", "quic" or "shm":
                                "auto" */
    const char *site;        /* location of this node, like "berlin": compressed all-reduces may be two-level,
                                dense inside a site. NULL = each host is its own site: NULL */
    int64_t open_timeout_ms; /* limit for the whole of hearth_node_open: 60,000 */
    int64_t peer_timeout_ms; /* a peer that is silent for this long is lost: 30,000 */
    uint32_t link_mbps;      /* agreed: assumed bandwidth of a machine's port, Mbit/s: 1,000 */
    uint16_t port;           /* to listen on; if it is taken, the next free one: 52416 */

    /* Security: docs/security.md. */
    const char *secret;      /* the cluster's: a token of `hearth init`, or 64 hexadecimal digits: NULL */
    const char *secret_file; /* a file with it; NULL = as `hearth init` or `hearth join` stored it: NULL */
    const char *key_file;    /* this node's key, created if missing; "fresh" = one for this process only;
                                NULL = node.key in the config directory: NULL */
    int plain;               /* agreed: 1 = no encryption and no authentication: 0 */
    int trust_network;       /* 1 allows plain connections beyond this machine: 0 */

    /* Home clusters: docs/training.md, docs/membership.md. */
    const char *discover;    /* "mdns": this node belongs to a home cluster, whose members find each other;
                                "off"; NULL = mdns if there is a secret and neither peers, rendezvous,
                                world_size nor a launcher names the members: NULL */
    uint32_t roles;          /* enum hearth_role: 0 */
    int64_t form_timeout_ms; /* of hearth_group_form and hearth_group_reform: 300,000 */
    const char *seeds;       /* "host[:port],...": nodes to dial besides those of mDNS; one is enough: NULL */
    const char *mdns;        /* the helper program; NULL = hearth-mdns beside the program or the library, or
                                where it was installed; "" = no mDNS: NULL */
    const char *health; /* silent for 3 s ("default"), 1 s ("low-latency") or 12 s ("high-latency"): dead */
};

/* What a node of a home cluster takes part in, besides the jobs that its program asks for. */
enum hearth_role {
    HEARTH_ROLE_DEMO = 1u << 0,  /* takes part when a member trains the demo (`hearth demo --cluster`) */
    HEARTH_ROLE_BENCH = 1u << 1, /* takes part when a member measures (`hearth bench cluster`) */
    HEARTH_ROLE_GUEST = 1u << 2  /* a short-lived member: in groups like others, but never votes or leads */
};

/* Fills in the defaults named above. Without hearth_config_env, XDG_CONFIG_HOME and HOME are not read: the
 * config directory, for key and secret, is .config/hearth in the home directory of the user database. */
HEARTH_API void hearth_config_init_sized(struct hearth_config *config, size_t size);
static inline void hearth_config_init(struct hearth_config *config)
{
    hearth_config_init_sized(config, sizeof(*config));
}

/* Sets fields from the environment. The variable of a field is HEARTH_ and its name in capitals:
 * HEARTH_OP_TIMEOUT_MS, HEARTH_PEERS; for a field of struct hearth_tuning, HEARTH_SPIN_US, `tuning` then
 * points to a copy that lives as long as the process. log and roles have no variable. Sizes take the
 * suffixes K, M and G (powers of 1024), HEARTH_RATE takes 100mbit or 2.5gbit, HEARTH_LOG_LEVEL error, warn,
 * info or debug. A launcher may also pass the secret in a descriptor (HEARTH_SECRET_FD). The config
 * directory for key and secret is $XDG_CONFIG_HOME/hearth, or $HOME/.config/hearth. hearth(1) lists all
 * variables.
 *
 * A launcher fills in what is still open: torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; over several
 * hosts the rendezvous is the next port), Open MPI, MPICH and other PMI launchers, and Slurm give rank and
 * world_size; where all ranks are on one host, the rendezvous is a private unix socket named by user and
 * job.
 *
 * A bad value is HEARTH_INVALID, the text names variable and value, and no field is changed. No other
 * function of the library reads the environment; do not call this one while another thread changes it.
 * Strings point into the environment. */
HEARTH_API int hearth_config_env(struct hearth_config *config);

/* ---- Nodes and groups ----------------------------------------------------------------------------- */

#define HEARTH_LOCAL_MAX 64

/* Opens `count` (1..HEARTH_LOCAL_MAX) nodes in this process, connected in memory: for tests, examples and
 * notebooks. nodes[i] has rank i in its world. `config` may be NULL. Close each node separately. */
HEARTH_API int hearth_node_open_local(const struct hearth_config *config, int count, hearth_node *nodes[]);

/* Opens this process's node and connects it to the others, as config says (NULL: the defaults and the
 * environment): `peers`, or `rendezvous` with world_size, or neither for a world of one. Unless `plain` is
 * set, every connection is encrypted (TLS 1.3) and both ends prove that they know the cluster's secret;
 * members that register at a unix socket get the secret there. docs/security.md has the promises. Blocks
 * until all members agree on roster and settings and are connected to each other, at most open_timeout_ms.
 * The error names the cause and the member: a missing or duplicate rank, an unreachable address, different
 * settings. The node has one thread of its own, compress_threads - 1 more from the first compressed call on,
 * one more from the first non-blocking compressed call on, and one more from the first call on device memory
 * on. */
HEARTH_API int hearth_node_open(const struct hearth_config *config, hearth_node **node);

/* The node's connections as text for people: one line per member (rank, host, transport, address, round
 * trip). In a home cluster connections belong to formed groups: for each group a line with its job, then the
 * lines of its members. Writes at most `size` bytes with the final 0 and returns the length of the whole
 * text. */
HEARTH_API int64_t hearth_node_links_text(hearth_node *node, char *buffer, size_t size);

/* Memory for buffers that members on the same host can map: collectives on it copy less. Page-aligned and
 * zeroed. On a node without such neighbours it is ordinary memory. NULL: no memory, see hearth_error_text.
 * Freed by hearth_mem_free or hearth_node_close; no operation may be using it then. */
HEARTH_API void *hearth_mem_alloc(hearth_node *node, size_t len);
HEARTH_API void hearth_mem_free(hearth_node *node, void *memory); /* NULL is allowed */

/* Closes the node with its groups and requests. A member that has done its part may close, and its process
 * may end, while the others are still working: no barrier is needed. Returns when the others have, or can
 * get without this member, all that they need of the calls that returned HEARTH_OK here; a peer that does
 * not read is waited for 10 s, or peer_timeout_ms if that is shorter. Later calls of the others that need
 * this member return HEARTH_GROUP_BROKEN at once. Operations in flight end with HEARTH_CLOSED here and
 * HEARTH_PEER_LOST on the others. After this call nothing touches user memory. NULL is allowed. Must not be
 * called from a completion callback. */
HEARTH_API void hearth_node_close(hearth_node *node);

/* The group of all members of the node's cluster. Owned by the node; NULL only in a forked child. */
HEARTH_API hearth_group *hearth_node_world(hearth_node *node);

HEARTH_API int hearth_group_rank(const hearth_group *group); /* 0..size-1, or HEARTH_INVALID for NULL */
HEARTH_API int hearth_group_size(const hearth_group *group); /* members, or HEARTH_INVALID for NULL */

struct hearth_opts;

/* Collective over `group`: members with the same `color` form a new group, ordered by (key, old rank). A
 * member with a negative color takes part and gets NULL. Operations of different groups never match. Calls
 * that make or change a group (this one, hearth_group_form, hearth_group_reform, hearth_group_adapt) have no
 * `_nb` form: no call on the group is possible before they have returned. */
HEARTH_API int hearth_group_split(hearth_group *group, int color, int key, const struct hearth_opts *opts,
                                  hearth_group **out);
/* Closes a group of hearth_group_split or hearth_group_form and cancels its operations in flight. NULL is
 * allowed; a world is closed with its node. */
HEARTH_API void hearth_group_close(hearth_group *group);

/* ---- Home cluster ---------------------------------------------------------------------------------
 *
 * A node with `discover` in its config finds the other nodes of its cluster, agrees with them on the members
 * and the leader (the view) and monitors them while its program runs. docs/membership.md defines the words.
 *
 *   hearth_node_open  ->  hearth_node_wait_for_peers (optional)   ->  hearth_group_form  ->  collectives
 *                                                     ^         |  HEARTH_VIEW_CHANGED: a member is gone
 *                                                     +---------+  hearth_group_reform
 *
 * Its world has one member, itself; hearth_group_form makes groups with others. On a node without discovery
 * these calls return HEARTH_UNSUPPORTED. */

/* Waits until at least `min_peers` others are members, at most timeout_ms (-1: the config's
 * peer_timeout_ms). HEARTH_TIMEOUT: the text lists the members, and for each other node in sight why it is
 * not one. */
HEARTH_API int hearth_node_wait_for_peers(hearth_node *node, int min_peers, int64_t timeout_ms);

/* The group of all members that ask for the same job at this time, at least `min_members` including this one
 * (the largest minimum counts, also for hearth_group_reform). Blocks until it is formed, at most
 * opts->timeout_ms (-1: form_timeout_ms), and a few seconds more if it was formed by then but not all members
 * were connected. Other options are not used.
 *
 * Callers that ask for a running job wait for its next formation. Its members get HEARTH_EVENT_JOB_WANTED; a
 * member that calls hearth_group_reform between two steps lets the newcomer in. Ranks follow the fastest
 * paths between the machines. A job name has 1 to 63 printable characters; a node can be in a job once.
 *
 * hearth_group_close ends the group for all others: operations that they can finish without this member,
 * because it has done its part, go on and may still begin. No `_nb` form, as hearth_group_split. */
HEARTH_API int hearth_group_form(hearth_node *node, const char *job, int min_members,
                                 const struct hearth_opts *opts, hearth_group **group);

/* When a member of a formed group is lost, leaves or closes its group, operations in flight that need it,
 * and all later ones that it did not take part in, end with HEARTH_VIEW_CHANGED on every other member,
 * inputs as promised. This call gives the next group, of the remaining members and those that wait to join.
 * It blocks until all survivors have called it, at most opts->timeout_ms as in hearth_group_form, whose
 * minimum still holds. The old group is closed. Its compressors and syncs move to the new one with their
 * residuals; data that a lost member had not sent is lost with it. A step that was in progress has been
 * committed or aborted when this returns, the same on all members: see hearth_sync_wait.
 *
 * HEARTH_BEHIND, which is positive: success, but this member lacks steps that the others have committed: it
 * was away too long, or a cluster that was split has gone on elsewhere. Its residuals are empty and nothing
 * is ready; before the next step it takes the model from a member that has those steps (compare
 * hearth_sync_steps). The others are not told and only take part in that transfer. A member that joins by
 * hearth_group_form lacks the steps too, and knows it. Failure: *group is unchanged, and the call may be
 * repeated. No `_nb` form, as hearth_group_split. */
HEARTH_API int hearth_group_reform(hearth_group **group, const struct hearth_opts *opts);

/* Applies new measurements to a formed group: another ring order, sites and path speeds, and so perhaps
 * other algorithms; ranks stay. For groups that were formed before the paths between their machines were
 * known, or whose network has changed: call it after the first seconds and then every few minutes. It costs
 * two small messages. Collective: all members call it at the same place between operations, under
 * opts->timeout_ms (at worst twice that; other options are not used). HEARTH_OK: all members adopted the
 * same, or nothing better is known; also for a group that was neither formed nor split from a formed one.
 * HEARTH_INVALID: operations of the group are in flight here. HEARTH_ABORTED: they are in flight on another
 * member, or the call failed there; nothing has changed on any member. HEARTH_VIEW_CHANGED: also when a
 * member cannot know whether the others adopted it; call hearth_group_reform. No other thread may use the
 * group during the call. No `_nb` form, as hearth_group_split. */
HEARTH_API int hearth_group_adapt(hearth_group *group, const struct hearth_opts *opts);

/* Ends every call of hearth_node_wait_for_peers, hearth_group_form, hearth_group_reform and
 * hearth_node_next_event that other threads have begun on this node and that still waits, within a tenth of
 * a second, with HEARTH_CANCELLED: for Ctrl-C and for a stop button. The join request is withdrawn, and the
 * others wait on without this member; members that were connecting to it form again. Later calls are
 * unaffected: a caller that cannot know whether the other thread has begun repeats this until that thread
 * returns. A call that has its result by then returns it. Not for signal handlers. */
HEARTH_API int hearth_node_interrupt(hearth_node *node);

/* A member of a group, for people and for programs that connect to it by other means. Strings are "" where
 * nothing is known. */
struct hearth_member {
    size_t size; /* set by the caller: sizeof */
    int rank;
    int same_host;
    uint64_t completed; /* operations that it completed in the previous group (hearth_group_reform): a member
                           with more may have a result that others lack; 0: it is new */
    char id[72];        /* of its key, 64 hexadecimal digits */
    char name[64];      /* of its machine */
    char address[64];   /* at which this node reaches it, without port; of this node: at which others may */
};
HEARTH_API int hearth_group_member(hearth_group *group, int rank, struct hearth_member *member);

enum hearth_event_kind {
    HEARTH_EVENT_JOINED = 1,      /* a member joined */
    HEARTH_EVENT_LEFT = 2,        /* a member left or was lost: `text` says how */
    HEARTH_EVENT_HEALTH = 3,      /* healthy, degraded, unhealthy, dead: `health` */
    HEARTH_EVENT_LEADER = 4,      /* the leader changed */
    HEARTH_EVENT_VIEW = 5,        /* the view changed: `epoch`, `members` */
    HEARTH_EVENT_QUORUM_LOST = 6, /* too few members are heard: no decision here until that changes */
    HEARTH_EVENT_QUORUM_BACK = 7,
    HEARTH_EVENT_JOB_WANTED = 8, /* a member asks for a job that does not run, or runs without it: `text` is
                                    the job's name. Once until the job forms or no member asks any more */
    HEARTH_EVENT_TROUBLE = 9 /* other trouble for a person: a copied key, two clusters that both run jobs */
};
struct hearth_event {
    size_t size; /* set by the caller: sizeof */
    enum hearth_event_kind kind;
    int members;
    uint64_t epoch, term;
    char id[72];
    char name[64];
    char health[16];
    char text[256];
};
/* The next event that was not fetched. Waits at most timeout_ms (-1: until one comes), then returns
 * HEARTH_PENDING. The last 256 events are kept. */
HEARTH_API int hearth_node_next_event(hearth_node *node, struct hearth_event *event, int64_t timeout_ms);
/* Calls `fn` for every event, on a thread of the node; it must not block or call Hearth.
 * hearth_node_next_event still gives the same events. NULL stops the calls: when this returns, `fn` is not
 * running. */
typedef void hearth_event_fn(void *arg, const struct hearth_event *event);
HEARTH_API int hearth_node_on_event(hearth_node *node, hearth_event_fn *fn, void *arg);

/* View, members, health, links, sightings, jobs and topology as JSON: the output of `hearth status --json`.
 * Buffer and result as in hearth_node_metrics_text. */
HEARTH_API int64_t hearth_node_status_json(hearth_node *node, char *buffer, size_t size);

/* ---- Device memory ----------------------------------------------------------------------------------
 *
 * Buffers that the CPU cannot read or write, as on a GPU. The group gets a memory adapter; then all buffers
 * of data in calls on the group are device pointers, which only the adapter touches: of collectives,
 * hearth_group_same, hearth_all_reduce_compressed (its residual, too), compressors, syncs, sends, receives.
 * Counts, texts, struct hearth_message, remote calls and the state of compressors and syncs stay in host
 * memory. The library copies each buffer into memory of its own and back, in pieces, on a thread of its own
 * (messages: on the thread that begins or ends them): one operation is copied while others are under way,
 * and the first pieces travel while later ones are copied. Members need not have the same kind of memory:
 * what travels is the same. Not tried on real devices yet. */

/* Each function returns 0, or any other number if it failed: then the call returns HEARTH_COPY_FAILED with a
 * text that names the function and the number. A failure before the results are copied back aborts the
 * operation for all members; one while they are copied back fails it here only, and the target is undefined.
 *
 * The functions are called by threads of the library and by callers, also by several at once; they must not
 * call the library. The copies of one thread happen in their order. What a buffer holds must be complete when
 * the call begins, or copy_in must wait for it: for example, both on the same stream. */
typedef int hearth_copy_in_fn(void *arg, void *host, const void *device, size_t len);
typedef int hearth_copy_out_fn(void *arg, void *device, const void *host, size_t len);
typedef int hearth_copy_wait_fn(void *arg);

/* Always initialise with hearth_memory_init. Without functions it is host memory. */
struct hearth_memory {
    size_t size;
    void *arg;                  /* for the functions; lives until the last operation that uses it has ended */
    hearth_copy_in_fn *copy_in; /* `len` bytes to the host; may go on until wait has returned */
    hearth_copy_out_fn *copy_out; /* likewise to the device */
    hearth_copy_wait_fn *wait;    /* returns when all copies that this thread has begun are complete */
};

HEARTH_API void hearth_memory_init_sized(struct hearth_memory *memory, size_t size);
static inline void hearth_memory_init(struct hearth_memory *memory)
{
    hearth_memory_init_sized(memory, sizeof(*memory));
}

/* Buffers of later calls on the group are in this memory; NULL: in host memory, as at first. It is copied.
 * No other thread may be in a call on the group; operations in flight keep the memory they began with. A
 * group of hearth_group_split begins with the memory of its parent, that of hearth_group_reform with the
 * memory of the group before. */
HEARTH_API int hearth_group_set_memory(hearth_group *group, const struct hearth_memory *memory);

/* ---- Options of a collective ---------------------------------------------------------------------- */

enum hearth_flag {
    HEARTH_FLAG_RESTORE = 1u << 0, /* in place: restore the input if the operation fails (costs one copy) */
    HEARTH_FLAG_RANK_ORDER = 1u << 1, /* combine in rank order in every plan: same bits on every transport */
    HEARTH_FLAG_SYNC_SEND = 1u << 2   /* messages: a send ends when the message was received */
};

/* Which transfer goes first where several wait for the same connection. Only messages have a choice:
 * collectives are normal. A higher priority gets more turns, never all of them. */
enum hearth_priority {
    HEARTH_PRIORITY_NORMAL = 0,
    HEARTH_PRIORITY_HIGH = 1,
    HEARTH_PRIORITY_BULK = 2 /* large transfers without a hurry */
};

/* Runs once, when the operation has ended, on the thread that ended it. It must not block. It may start
 * non-blocking operations and call hearth_request_test, but not wait, free or close. `status` is the
 * operation's. */
typedef void hearth_done_fn(void *arg, int status);

/* Always initialise with hearth_opts_init; NULL in place of options means the defaults. Everything except
 * timeout_ms, weight, memory, HEARTH_FLAG_RESTORE and the callback must be the same on all members. */
struct hearth_opts {
    size_t size;
    int64_t timeout_ms;    /* deadline: then it is aborted for all members; -1 = the node's default */
    uint64_t tag;          /* operations match by (group, tag, sequence within the tag) */
    double weight;         /* HEARTH_OP_AVG: this member's weight, 0 to 1e30: 1 */
    uint32_t flags;        /* enum hearth_flag */
    enum hearth_algo algo; /* HEARTH_ALGO_AUTO */
    const char *codec;     /* NULL or "none"; compressed calls have their own argument; messages: see there */
    hearth_done_fn *done;  /* NULL = none */
    void *done_arg;
    enum hearth_priority priority;      /* messages: HEARTH_PRIORITY_NORMAL */
    enum hearth_dtype dtype;            /* messages with a codec: type of their elements: HEARTH_F32 */
    const struct hearth_memory *memory; /* of this call's buffers; it is copied; NULL = the group's */
};

HEARTH_API void hearth_opts_init_sized(struct hearth_opts *opts, size_t size);
static inline void hearth_opts_init(struct hearth_opts *opts)
{
    hearth_opts_init_sized(opts, sizeof(*opts));
}

/* ---- Collectives ----------------------------------------------------------------------------------------
 *
 * All members of the group call the same collective with the same count, type, operation and root. If they do
 * not, members still in the operation return HEARTH_MISMATCH with the same text, which names the member that
 * differs. A member that had already returned gets the error from its next call on the group; that call does
 * nothing else: repeat it. No call hangs, and the group stays usable.
 *
 * Operations match by (group, tag, sequence within the tag): under one tag all members start them in the
 * same order; operations under different tags may be started in any order.
 *
 * Blocking calls return when the operation has ended. `_nb` calls return at once with a request; buffers
 * belong to the operation until the request is done.
 *
 * In place: the source is the part of the target that this member fills (each function says which). Otherwise
 * source and target must not overlap. `source` or `target` may be NULL where this member sends or receives
 * nothing, or the count is 0.
 *
 * After an error the target's content is undefined, except: untouched out-of-place sources, and in-place
 * buffers with HEARTH_FLAG_RESTORE.
 *
 * Sizes: count * element size must be below 2^63; nothing is narrowed to 32 bits. */

/* target[i] = op over members of source[i], on all. In place: source == target. */
HEARTH_API int hearth_all_reduce(hearth_group *group, const void *source, void *target, size_t count,
                                 enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts);
/* Source holds size * count elements; member i gets the reduced elements [i*count, (i+1)*count).
 * In place: target == source + rank*count elements. */
HEARTH_API int hearth_reduce_scatter(hearth_group *group, const void *source, void *target, size_t count,
                                     enum hearth_dtype dtype, enum hearth_op op,
                                     const struct hearth_opts *opts);
/* Member i gets counts[i] elements; source holds them one after the other. `counts` is the same on all.
 * In place: target is where member i's part stands in source. */
HEARTH_API int hearth_reduce_scatterv(hearth_group *group, const void *source, void *target,
                                      const size_t *counts, enum hearth_dtype dtype, enum hearth_op op,
                                      const struct hearth_opts *opts);
/* Target holds size * count elements, member i's at i*count. In place: source == target + rank*count. */
HEARTH_API int hearth_all_gather(hearth_group *group, const void *source, void *target, size_t count,
                                 enum hearth_dtype dtype, const struct hearth_opts *opts);
/* Member i sends counts[i] elements; target holds them one after the other. `counts` is the same on all. */
HEARTH_API int hearth_all_gatherv(hearth_group *group, const void *source, void *target, const size_t *counts,
                                  enum hearth_dtype dtype, const struct hearth_opts *opts);
/* The root's buffer to all. */
HEARTH_API int hearth_broadcast(hearth_group *group, void *buffer, size_t count, enum hearth_dtype dtype,
                                int root, const struct hearth_opts *opts);
/* As all_reduce, but only the root's target is written (others may pass NULL). */
HEARTH_API int hearth_reduce(hearth_group *group, const void *source, void *target, size_t count,
                             enum hearth_dtype dtype, enum hearth_op op, int root,
                             const struct hearth_opts *opts);
/* The root's target holds size * count elements, member i's at i*count.
 * In place (root): source == target + root*count. */
HEARTH_API int hearth_gather(hearth_group *group, const void *source, void *target, size_t count,
                             enum hearth_dtype dtype, int root, const struct hearth_opts *opts);
/* Each member sends `count` elements; only the root reads `counts`, which must match what each member
 * sends. */
HEARTH_API int hearth_gatherv(hearth_group *group, const void *source, size_t count, void *target,
                              const size_t *counts, enum hearth_dtype dtype, int root,
                              const struct hearth_opts *opts);
/* The root's source holds size * count elements; member i gets those at i*count.
 * In place (root): target == source + root*count. */
HEARTH_API int hearth_scatter(hearth_group *group, const void *source, void *target, size_t count,
                              enum hearth_dtype dtype, int root, const struct hearth_opts *opts);
/* Each member gets `count` elements; only the root reads `counts`, which must match what each member gets. */
HEARTH_API int hearth_scatterv(hearth_group *group, const void *source, const size_t *counts, void *target,
                               size_t count, enum hearth_dtype dtype, int root,
                               const struct hearth_opts *opts);
/* `count` elements for each: source[j*count...] goes to member j, target[i*count...] comes from member i.
 * In place: source == target (costs one copy). */
HEARTH_API int hearth_all_to_all(hearth_group *group, const void *source, void *target, size_t count,
                                 enum hearth_dtype dtype, const struct hearth_opts *opts);
/* source_counts[j] elements go to member j, target_counts[i] come from member i; both buffers hold them one
 * after the other. The count that i sends to j must be the count that j expects: else HEARTH_MISMATCH names
 * both. In place: source == target, and then both count lists must be the same. */
HEARTH_API int hearth_all_to_allv(hearth_group *group, const void *source, const size_t *source_counts,
                                  void *target, const size_t *target_counts, enum hearth_dtype dtype,
                                  const struct hearth_opts *opts);
/* target = op over members 0..rank. HEARTH_OP_AVG is HEARTH_UNSUPPORTED. In place: source == target. */
HEARTH_API int hearth_scan(hearth_group *group, const void *source, void *target, size_t count,
                           enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts);
/* target = op over members 0..rank-1; rank 0 gets the identity: 0, 1, for min and max +inf and -inf or the
 * largest and smallest integer, and for band all bits set. */
HEARTH_API int hearth_exclusive_scan(hearth_group *group, const void *source, void *target, size_t count,
                                     enum hearth_dtype dtype, enum hearth_op op,
                                     const struct hearth_opts *opts);
/* Returns when all members have called it. */
HEARTH_API int hearth_barrier(hearth_group *group, const struct hearth_opts *opts);

/* Checks that all members hold the same `len` bytes. HEARTH_DIFFERS, on every member, if not: then *who (may
 * be NULL) is the lowest rank whose bytes differ from the majority (the bytes of the lower rank win a tie).
 * Compares 128-bit hashes, which detect accidents, not attacks. No `_nb` form: reading the buffer is the
 * caller's own work and takes longer than the exchange. */
HEARTH_API int hearth_group_same(hearth_group *group, const void *buffer, size_t len,
                                 const struct hearth_opts *opts, int *who);

/* ---- Non-blocking forms --------------------------------------------------------------------------- */

HEARTH_API int hearth_all_reduce_nb(hearth_group *group, const void *source, void *target, size_t count,
                                    enum hearth_dtype dtype, enum hearth_op op,
                                    const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_reduce_scatter_nb(hearth_group *group, const void *source, void *target, size_t count,
                                        enum hearth_dtype dtype, enum hearth_op op,
                                        const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_reduce_scatterv_nb(hearth_group *group, const void *source, void *target,
                                         const size_t *counts, enum hearth_dtype dtype, enum hearth_op op,
                                         const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_all_gather_nb(hearth_group *group, const void *source, void *target, size_t count,
                                    enum hearth_dtype dtype, const struct hearth_opts *opts,
                                    hearth_request **request);
HEARTH_API int hearth_all_gatherv_nb(hearth_group *group, const void *source, void *target,
                                     const size_t *counts, enum hearth_dtype dtype,
                                     const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_broadcast_nb(hearth_group *group, void *buffer, size_t count, enum hearth_dtype dtype,
                                   int root, const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_reduce_nb(hearth_group *group, const void *source, void *target, size_t count,
                                enum hearth_dtype dtype, enum hearth_op op, int root,
                                const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_gather_nb(hearth_group *group, const void *source, void *target, size_t count,
                                enum hearth_dtype dtype, int root, const struct hearth_opts *opts,
                                hearth_request **request);
HEARTH_API int hearth_gatherv_nb(hearth_group *group, const void *source, size_t count, void *target,
                                 const size_t *counts, enum hearth_dtype dtype, int root,
                                 const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_scatter_nb(hearth_group *group, const void *source, void *target, size_t count,
                                 enum hearth_dtype dtype, int root, const struct hearth_opts *opts,
                                 hearth_request **request);
HEARTH_API int hearth_scatterv_nb(hearth_group *group, const void *source, const size_t *counts, void *target,
                                  size_t count, enum hearth_dtype dtype, int root,
                                  const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_all_to_all_nb(hearth_group *group, const void *source, void *target, size_t count,
                                    enum hearth_dtype dtype, const struct hearth_opts *opts,
                                    hearth_request **request);
HEARTH_API int hearth_all_to_allv_nb(hearth_group *group, const void *source, const size_t *source_counts,
                                     void *target, const size_t *target_counts, enum hearth_dtype dtype,
                                     const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_scan_nb(hearth_group *group, const void *source, void *target, size_t count,
                              enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                              hearth_request **request);
HEARTH_API int hearth_exclusive_scan_nb(hearth_group *group, const void *source, void *target, size_t count,
                                        enum hearth_dtype dtype, enum hearth_op op,
                                        const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_barrier_nb(hearth_group *group, const struct hearth_opts *opts,
                                 hearth_request **request);

/* ---- Messages -------------------------------------------------------------------------------------------
 *
 * Bytes from one member of a group to another. A message has a tag; a receive names the sender and the tag,
 * or takes any. Messages of one sender with one tag are received in the order in which their sends began;
 * messages with different tags do not wait for each other. Collectives and messages never match.
 *
 * A send has ended when its buffer may be used again: a short message may still be on its way then. With
 * HEARTH_FLAG_SYNC_SEND it has ended when a receive has the whole message. Short messages leave at once,
 * within a budget (`eager_bytes` for each pair); all others wait for their receive and go straight from the
 * sender's memory to the receiver's. So a sender that is ahead waits: until then its buffer is lent.
 *
 * If a member is lost, a failed send tells what became of the message: hearth_error_fate. A receive for which
 * no message has begun to arrive ends with the error of the group, and so does every later call. A member
 * that leaves (hearth_node_close) leaves its messages behind: receives get what it had sent.
 *
 * Of the options, timeout_ms, priority, codec, dtype, HEARTH_FLAG_SYNC_SEND and the callback count. `codec`
 * (fp16, bf16, int8 and the others without rows=) of a send: the buffer holds elements of `dtype`, which
 * travel compressed; it is not a transaction and has no residual. The receive needs no codec, only the same
 * dtype: another one is HEARTH_MISMATCH. docs/cluster_messages.md has examples. */

#define HEARTH_ANY_RANK (-2)       /* receives: from any member */
#define HEARTH_ANY_TAG  UINT64_MAX /* receives: with any tag; not a tag of a send */

/* What was received. */
struct hearth_received {
    size_t size; /* set by the caller: sizeof */
    int rank;    /* of the sender */
    uint64_t tag;
    size_t len;
};

HEARTH_API int hearth_send(hearth_group *group, int to, uint64_t tag, const void *data, size_t len,
                           const struct hearth_opts *opts);
/* The message may be shorter than the buffer. A longer one is received and lost: HEARTH_TOO_LONG, with both
 * lengths, here and at a sender whose send has not ended; the buffer is unchanged. `received` may be NULL; it
 * belongs to the operation until that has ended. */
HEARTH_API int hearth_recv(hearth_group *group, int from, uint64_t tag, void *buffer, size_t len,
                           const struct hearth_opts *opts, struct hearth_received *received);
HEARTH_API int hearth_send_nb(hearth_group *group, int to, uint64_t tag, const void *data, size_t len,
                              const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_recv_nb(hearth_group *group, int from, uint64_t tag, void *buffer, size_t len,
                              const struct hearth_opts *opts, struct hearth_received *received,
                              hearth_request **request);

/* A part of a message; a message of several is one message. At most HEARTH_IOVEC_MAX parts; the array is
 * copied, the memory lent. */
struct hearth_iovec {
    void *data; /* not written by a send */
    size_t len;
};
#define HEARTH_IOVEC_MAX 1024

HEARTH_API int hearth_sendv(hearth_group *group, int to, uint64_t tag, const struct hearth_iovec *parts,
                            size_t count, const struct hearth_opts *opts);
HEARTH_API int hearth_recvv(hearth_group *group, int from, uint64_t tag, const struct hearth_iovec *parts,
                            size_t count, const struct hearth_opts *opts, struct hearth_received *received);
HEARTH_API int hearth_sendv_nb(hearth_group *group, int to, uint64_t tag, const struct hearth_iovec *parts,
                               size_t count, const struct hearth_opts *opts, hearth_request **request);
HEARTH_API int hearth_recvv_nb(hearth_group *group, int from, uint64_t tag, const struct hearth_iovec *parts,
                               size_t count, const struct hearth_opts *opts, struct hearth_received *received,
                               hearth_request **request);

/* Waits, at most opts->timeout_ms, until a message could be received, and leaves it there; HEARTH_PENDING if
 * none came. Another thread's receive may take it first. */
HEARTH_API int hearth_probe(hearth_group *group, int from, uint64_t tag, const struct hearth_opts *opts,
                            struct hearth_received *received);

/* A message of any length, in memory of the library. */
struct hearth_message {
    size_t size;
    void *data; /* NULL if len is 0 */
    size_t len;
    int rank; /* of the sender */
    uint64_t tag;
};
/* *message is set when the operation has succeeded; the caller frees it, before the node closes. */
HEARTH_API int hearth_message_recv(hearth_group *group, int from, uint64_t tag,
                                   const struct hearth_opts *opts, struct hearth_message **message);
HEARTH_API int hearth_message_recv_nb(hearth_group *group, int from, uint64_t tag,
                                      const struct hearth_opts *opts, struct hearth_message **message,
                                      hearth_request **request);
HEARTH_API void hearth_message_free(struct hearth_message *message); /* NULL is allowed */

/* ---- Remote calls ---------------------------------------------------------------------------------------
 *
 * A member runs a handler of another member, or of its own, and gets its reply. Only members of one group can
 * call each other. A call runs at most once: after a failure hearth_error_fate says whether it may have run.
 * The deadline (opts->timeout_ms) and a cancel travel with the call: a call that still waits there then does
 * not run. */

typedef struct hearth_rpc hearth_rpc; /* a call that is being answered */

/* Runs on a thread of the node, several at once. It answers once, by hearth_rpc_reply or hearth_rpc_fail,
 * before it returns or later from any thread. `request` (aligned to 16 bytes; NULL if len is 0) lives until
 * the answer, and no longer than the node. It may block and may call Hearth, also remote calls, but it must
 * not remove a handler, and must close neither its node nor the group of the call.
 *
 * hearth_node_close waits for handlers that run: what they wait for in Hearth ends with HEARTH_CLOSED, their
 * answers still leave, and calls that have not begun are told that they will not. A call that is answered
 * after that is HEARTH_CLOSED here. */
typedef void hearth_rpc_fn(void *arg, hearth_rpc *rpc, const void *request, size_t len);

/* Always initialise with hearth_rpc_limits_init. */
struct hearth_rpc_limits {
    size_t size;
    size_t request_max; /* bytes of a request; a longer one is HEARTH_TOO_LONG at the caller: 1,048,576 */
    size_t reply_max;   /* bytes of a reply: 1,048,576 */
    uint32_t running;   /* calls of this handler at the same time, with those to be answered later: 64 */
    uint32_t waiting;   /* further calls that wait; then HEARTH_BUSY at the caller: 256 */
};
HEARTH_API void hearth_rpc_limits_init_sized(struct hearth_rpc_limits *limits, size_t size);
static inline void hearth_rpc_limits_init(struct hearth_rpc_limits *limits)
{
    hearth_rpc_limits_init_sized(limits, sizeof(*limits));
}

/* Calls of `name` (1..63 printable ASCII) run the handler, in all groups of the node, also those that it
 * forms later. At most 256 names; one that has a handler is HEARTH_INVALID. NULL `handler` removes it: calls
 * that wait are HEARTH_NO_SUCH_CALL, and when it returns the handler is not running; what it has left
 * unanswered can still be answered. `limits` may be NULL. A node runs at most HEARTH_RPC_THREADS handlers at
 * the same time. */
#define HEARTH_RPC_THREADS 8
HEARTH_API int hearth_rpc_register(hearth_node *node, const char *name, hearth_rpc_fn *handler, void *arg,
                                   const struct hearth_rpc_limits *limits);
/* Answers, and ends the use of `rpc`, whatever it returns but HEARTH_INVALID. HEARTH_TOO_LONG: longer than
 * reply_max; the caller gets the same. HEARTH_CANCELLED, HEARTH_TIMEOUT, HEARTH_CLOSED, a lost peer: nobody
 * waits for the answer any more. The reply is copied. */
HEARTH_API int hearth_rpc_reply(hearth_rpc *rpc, const void *reply, size_t len);
/* The same with an error: the caller gets HEARTH_CALL_FAILED with this text (cut to 200 characters; what is
 * not printable ASCII becomes a question mark). */
HEARTH_API int hearth_rpc_fail(hearth_rpc *rpc, const char *text);
HEARTH_API hearth_group *hearth_rpc_group(const hearth_rpc *rpc); /* in which it was called; NULL: closed */
HEARTH_API int hearth_rpc_rank(const hearth_rpc *rpc);            /* of the caller, in that group */
/* Milliseconds until the caller's deadline; 0: it has passed, or the caller has cancelled or is gone, and the
 * answer will not be used. */
HEARTH_API int64_t hearth_rpc_time_left(const hearth_rpc *rpc);

/* *reply is set on success; the caller frees it with hearth_message_free, before the node closes. Of the
 * options, timeout_ms, priority and the callback count. Errors, with hearth_error_fate:
 *  - HEARTH_NO_SUCH_CALL, HEARTH_BUSY (too many calls there), HEARTH_TOO_LONG (the request): not delivered;
 *  - HEARTH_CALL_FAILED, with the handler's text, HEARTH_TOO_LONG (the reply): delivered;
 *  - HEARTH_TIMEOUT, HEARTH_CANCELLED, a lost peer: unknown if the request had left, else not delivered. */
HEARTH_API int hearth_rpc_call(hearth_group *group, int to, const char *name, const void *request, size_t len,
                               const struct hearth_opts *opts, struct hearth_message **reply);
HEARTH_API int hearth_rpc_call_nb(hearth_group *group, int to, const char *name, const void *request,
                                  size_t len, const struct hearth_opts *opts, struct hearth_message **reply,
                                  hearth_request **pending);

/* ---- Requests ------------------------------------------------------------------------------------- */

/* The operation's status if it has ended, else HEARTH_PENDING. Does not block. */
HEARTH_API int hearth_request_test(hearth_request *request);
/* Waits until the operation has ended, at most timeout_ms (0 polls, -1 = until the operation's own
 * deadline): its status, or HEARTH_PENDING. A wait that runs out of time does not cancel. May be called
 * again after the end. */
HEARTH_API int hearth_request_wait(hearth_request *request, int64_t timeout_ms);
/* Waits for all: 0 if all succeeded, the first error in array order, or HEARTH_PENDING. NULL entries are
 * skipped. Requests may belong to different nodes. */
HEARTH_API int hearth_request_wait_all(hearth_request *const *requests, size_t count, int64_t timeout_ms);
/* Waits until one of them has ended: its status, with *index set; HEARTH_PENDING if none did in time;
 * HEARTH_INVALID if all entries are NULL. */
HEARTH_API int hearth_request_wait_any(hearth_request *const *requests, size_t count, int64_t timeout_ms,
                                       size_t *index);
/* Aborts the operation for all members if it has not ended. Does not wait for the others: when it returns,
 * the buffers are free. Its status is then HEARTH_CANCELLED here and HEARTH_ABORTED on the others. */
HEARTH_API int hearth_request_cancel(hearth_request *request);
/* A descriptor that becomes readable when the operation has ended, for poll or an event loop; do not read
 * or close it. Lives as long as the request. Negative status on failure. */
HEARTH_API int hearth_request_fd(hearth_request *request);
/* The error text, "" if there was no error. Lives as long as the request. */
HEARTH_API const char *hearth_request_error(const hearth_request *request);
HEARTH_API int hearth_request_error_rank(const hearth_request *request); /* of the error; -1: none */
HEARTH_API enum hearth_reason hearth_request_error_reason(const hearth_request *request);
HEARTH_API enum hearth_fate hearth_request_error_fate(const hearth_request *request);
/* Frees the request. An unfinished operation is cancelled first; after this call nothing touches its
 * buffers. NULL is allowed. Must not be called from a completion callback. */
HEARTH_API void hearth_request_close(hearth_request *request);

/* ---- Compression ----------------------------------------------------------------------------------------
 *
 * Compressed all-reduces send less over a slow network. The residual, which a step leaves out, is kept and
 * added to the next step (error feedback), so that nothing is lost. A string names a codec:
 *
 *   none                      uncompressed
 *   fp16 | bf16               half precision; fp16 with one power of two for each block of 256
 *   int8[,stochastic]         8 bits, one scale for each block of 256
 *   onebit                    sign, and the mean magnitude of each block of 256
 *   topk:RATIO[,chunk=COUNT][,values=f32|bf16|int8]     the largest of the tensor, or of each chunk
 *   randomk:RATIO[,values=f32|bf16|int8]                coordinates that all members draw alike
 *   powersgd:RANK[,rows=COUNT][,alternate]              low-rank factors of a matrix
 *   NAME[:PARAMETERS]         a codec of yours: hearth_codec_register
 *   auto:CODEC[,CODEC...]     the fastest of these here; none if no codec helps
 * and each with ",feedback=off". Example: "topk:0.01,values=int8". docs/compression.md helps to choose.
 *
 * Types f32, f64, f16, bf16; operations HEARTH_OP_SUM and HEARTH_OP_AVG; anything else is HEARTH_UNSUPPORTED.
 * Values are computed in f32: an f64 beyond its range counts as infinite.
 *
 * A compressed all-reduce is a transaction: on success the result is in `buffer` (the same bits on every
 * member) and the residual holds what was left out; on any error, cancel included, buffer, residual and state
 * are unchanged. One exception: a crash or a deadline while the votes are in flight may leave one member
 * without a result that another has. A compressor finds that in the tensor's next step: HEARTH_MISMATCH. A
 * cancel at that moment waits for the outcome, which may be HEARTH_OK. NaN or Inf in any member's input is
 * HEARTH_POISONED on all; the text names the rank. A group of one, or no elements: returns at once, buffer
 * and residual unchanged.
 *
 * Codec none, auto where it chooses none, and powersgd of a matrix that it cannot shorten are plain: an
 * ordinary hearth_all_reduce in place, at its speed. It restores the buffer after an error only with
 * HEARTH_FLAG_RESTORE (a sync sets it), and it lets NaN and Inf pass. If a compressor still holds a residual
 * of the tensor, the plain call sends it along, as a transaction.
 *
 * The options tag, timeout_ms, weight and the callback work as elsewhere. algo fixes the algorithm, for
 * measurement: HEARTH_ALGO_DIRECT by owners (not for user codecs), HEARTH_ALGO_EXCHANGE by all_gather
 * (neither for randomk and powersgd), HEARTH_ALGO_HIERARCHICAL inside each host first (not for powersgd and
 * f64); others are HEARTH_UNSUPPORTED. Flags affect plain calls only: compressed calls always restore inputs
 * and sum in rank order (two-level: by the plan inside each host, in rank order between hosts). A call that
 * needs more memory than compressed_allreduce_max_bytes is HEARTH_LIMIT.
 *
 * Invariant, with w the weights and W their sum (HEARTH_OP_SUM: both 1), added over all members: W * result
 * (once) + new residuals = w * inputs + old residuals; within the f32 rounding of the numbers involved, and
 * before the result is rounded to 16 bits. */

/* HEARTH_OK, or HEARTH_INVALID with a text that shows the grammar; also of a user codec that is not
 * registered. */
HEARTH_API int hearth_codec_check(const char *codec);

/* buffer[i] = op over members of buffer[i], through the codec (NULL: the config's). `residual`: count
 * elements, f64 for f64 buffers and f32 for all others, zero before the first step and kept by the caller
 * between steps; NULL: no feedback (randomk then scales by count/kept, so that it is right on average).
 * randomk draws by the group and the operation's number; powersgd needs rows=, has no warm start and cannot
 * alternate: a compressor has no such limits. A plain call does not touch the residual. */
HEARTH_API int hearth_all_reduce_compressed(hearth_group *group, void *buffer, size_t count,
                                            enum hearth_dtype dtype, enum hearth_op op, const char *codec,
                                            void *residual, const struct hearth_opts *opts);
HEARTH_API int hearth_all_reduce_compressed_nb(hearth_group *group, void *buffer, size_t count,
                                               enum hearth_dtype dtype, enum hearth_op op, const char *codec,
                                               void *residual, const struct hearth_opts *opts,
                                               hearth_request **request);

/* ---- Compressors: the state of many tensors ---- */

typedef struct hearth_compressor hearth_compressor;

/* Always initialise with hearth_compressor_config_init. The same on all members. */
struct hearth_compressor_config {
    size_t size;
    const char *codec;   /* NULL = the node's config's: NULL */
    size_t min_count;    /* tensors with fewer elements go plain: 4,096 */
    int vectors;         /* 1: tensors of one dimension are compressed too: 0 */
    const char *include; /* comma-separated names with * and ?: only these are compressed; NULL = all: NULL */
    const char *exclude; /* likewise: these are not: NULL */
    uint64_t warmup_steps; /* each tensor's first steps go plain, also against the rules: 0 */
    uint64_t ramp_steps; /* topk, randomk: steps in which the ratio falls from 0.25 by halves to its own: 0 */
};

HEARTH_API void hearth_compressor_config_init_sized(struct hearth_compressor_config *config, size_t size);
static inline void hearth_compressor_config_init(struct hearth_compressor_config *config)
{
    hearth_compressor_config_init_sized(config, sizeof(*config));
}
/* `config` may be NULL. The compressor belongs to the group's node: hearth_node_close frees it at the
 * latest. After its group has been closed it can only be closed, too. */
HEARTH_API int hearth_compressor_open(hearth_group *group, const struct hearth_compressor_config *config,
                                      hearth_compressor **out);
/* Cancels non-blocking operations in flight; no other call on it may be in progress. NULL is allowed. */
HEARTH_API void hearth_compressor_close(hearth_compressor *compressor);
/* Tensors whose name matches `pattern` (* and ?) use this codec; the last rule that matches counts. Rules
 * take precedence over `include`, `exclude`, `vectors` and `min_count`. A sync registers its tensors
 * with the codecs of its first step. If a later rule changes one, a newcomer registers another codec, and
 * the sync ends with HEARTH_MISMATCH on all members: make a newcomer's first step with the first codecs. */
HEARTH_API int hearth_compressor_add_rule(hearth_compressor *compressor, const char *pattern,
                                          const char *codec);

/* One tensor. Its name is its identity (1..255 printable ASCII); the first call fixes its type and shape. A
 * tensor takes part in one operation at a time. Register layers that share one array as separate tensors,
 * each with its own name and place in the array. */
struct hearth_tensor {
    size_t size; /* hearth_tensor_init, or sizeof in a literal */
    const char *name;
    void *data;
    enum hearth_dtype dtype;
    int ndim;           /* 0..8 */
    const size_t *dims; /* [ndim]; powersgd takes dims[0] x the rest */
};
HEARTH_API void hearth_tensor_init_sized(struct hearth_tensor *tensor, size_t size);
static inline void hearth_tensor_init(struct hearth_tensor *tensor)
{
    hearth_tensor_init_sized(tensor, sizeof(*tensor));
}

HEARTH_API int hearth_compressor_all_reduce(hearth_compressor *compressor, const struct hearth_tensor *tensor,
                                            enum hearth_op op, const struct hearth_opts *opts);
HEARTH_API int hearth_compressor_all_reduce_nb(hearth_compressor *compressor,
                                               const struct hearth_tensor *tensor, enum hearth_op op,
                                               const struct hearth_opts *opts, hearth_request **request);

/* Forgets the state of one tensor (NULL: of all). HEARTH_INVALID: unknown tensor, or it is in use. */
HEARTH_API int hearth_compressor_reset(hearth_compressor *compressor, const char *name);
/* Multiplies residuals by the factor (1e-30 to 1e30): after a change of the loss scale (new / old) or, if
 * wanted, of the learning rate (old / new). No operation may be in flight. */
HEARTH_API int hearth_compressor_scale(hearth_compressor *compressor, double factor);
/* The state as bytes, the same on every machine, with version and checksum. Writes it if it fits into `size`
 * and returns its length; negative status on failure. No operation may be in flight. */
HEARTH_API int64_t hearth_compressor_save(hearth_compressor *compressor, void *buffer, size_t size);
/* Replaces the state; codec, rules and schedule are set up by the caller. Training continues bit for bit if
 * all members load what they saved after the same step. Bytes that are damaged, or of another version, rank
 * or world size, are HEARTH_INVALID, and nothing has changed. */
HEARTH_API int hearth_compressor_load(hearth_compressor *compressor, const void *buffer, size_t len);

/* Counters of one tensor, or of all together. */
struct hearth_compressor_stats {
    size_t size;          /* set by the caller: sizeof */
    uint64_t tensors;     /* known */
    uint64_t steps;       /* all-reduces that succeeded; none in a group of one */
    uint64_t plain_bytes; /* bytes that this member would have sent uncompressed */
    uint64_t sent_bytes;  /* bytes that it sent, without frame headers */
    double ratio;         /* plain / sent; 0 while nothing was sent */
    double captured;      /* share of the last step's energy that was sent, 0..1, from every 16th block */
    double residual_norm; /* Euclidean norm of the residual now */
};
/* `name` NULL: all. No such tensor may be in flight. */
HEARTH_API int hearth_compressor_stats(hearth_compressor *compressor, const char *name,
                                       struct hearth_compressor_stats *stats);
/* How a tensor travels and why, for people: codec, algorithm, expected time. Buffer and result as in
 * hearth_node_metrics_text. */
HEARTH_API int64_t hearth_compressor_explain(hearth_compressor *compressor, const char *name, char *buffer,
                                             size_t size);

/* ---- Syncs: the gradients of a whole model ---- */

typedef struct hearth_sync hearth_sync;

/* Reduces the gradients of many tensors as they become ready: small ones travel together, large ones in
 * pieces, while the program computes the rest. `codec` NULL: the node's config's, else none. HEARTH_OP_SUM
 * or HEARTH_OP_AVG. All members open the syncs of a group in the same order, with the same codec and rules
 * (a newcomer with those of the first step: hearth_compressor_add_rule). Close a sync before its group;
 * hearth_node_close frees it at the latest. */
HEARTH_API int hearth_sync_open(hearth_group *group, const char *codec, enum hearth_op op, hearth_sync **out);
/* The same on a compressor that the caller has set up and closes after the sync. Its rules apply from the
 * first step on. */
HEARTH_API int hearth_sync_open_with(hearth_compressor *compressor, enum hearth_op op, hearth_sync **out);
HEARTH_API void hearth_sync_close(hearth_sync *sync); /* as hearth_sync_drop, then frees; NULL is allowed */
/* Registers a tensor and returns its index (0, 1, ...), or a negative status. All members register the same
 * tensors in the same order before the first step, and compare them before anything is sent. `data` may be
 * NULL and set later. Plain tensors of at most 1 MiB are copied together, at most 25 MiB of one type, and do
 * not appear in the compressor; all others are sent from the caller's memory. */
HEARTH_API int hearth_sync_add(hearth_sync *sync, const struct hearth_tensor *tensor);
HEARTH_API int hearth_sync_set_data(hearth_sync *sync, int index, void *data); /* not while in flight */
/* HEARTH_OP_AVG: this member's weight from the next step on, 0 to 1e30: 1. Not during a step. */
HEARTH_API int hearth_sync_set_weight(hearth_sync *sync, double weight);
/* Marks this step's gradient of the tensor as complete. Any order, any thread; the gradient belongs to the
 * sync until the wait has returned. Returns errors of the arguments only; hearth_sync_wait returns the
 * others. */
HEARTH_API int hearth_sync_ready(hearth_sync *sync, int index);
/* Ends the step: waits for all, at most opts->timeout_ms (its other fields are not used).
 *  - HEARTH_INVALID: a tensor was not made ready; the text names it, and the step goes on: make it ready and
 *    wait again.
 *  - HEARTH_MISMATCH before the first step: members registered different tensors; the text names the member
 *    and the tensor. Nothing was sent, and this does not change: close the sync.
 *  - Any other error: each gradient is either reduced or unchanged, by the outcome of its operation. To
 *    complete the step, make all ready again and wait again: reduced ones are left alone. To give it up
 *    (HEARTH_POISONED), call hearth_sync_drop. All members do the same. In a group of hearth_group_form a
 *    step is committed by all members or by none:
 *  - Results and residuals are kept aside (as much memory as the tensors have) until the wait that returns
 *    HEARTH_OK. That wait overwrites the buffers with the results. Until then the buffers are the input.
 *  - After an error the step was aborted for all, or the error is HEARTH_VIEW_CHANGED: call
 *    hearth_group_reform. That can also happen without a loss, when a member cannot know whether others have
 *    committed the step.
 *  - After an error and after hearth_group_reform, `ready` need not be repeated. The next wait writes a
 *    committed step and returns at once; of an aborted step it sends all that was ready again, with the
 *    present contents of the buffers. `ready` may be repeated, for tensors that were computed again.
 *  - If `ready` is repeated although the step was committed (compare hearth_sync_steps), the result is given
 *    up: the next step begins if a member of the group has taken the result, else the same step begins again.
 *    All members do the same; else HEARTH_MISMATCH names one that did not.
 *
 * No `_nb` form: hearth_sync_ready starts the work and does not block. */
HEARTH_API int hearth_sync_wait(hearth_sync *sync, const struct hearth_opts *opts);
/* Gives up the step that has begun or failed: operations in flight are cancelled for all members, and the
 * next hearth_sync_ready begins a new step. The gradients of this step are undefined; in a group of
 * hearth_group_form they are unchanged. No other thread may be in a call on the sync. NULL is allowed. */
HEARTH_API void hearth_sync_drop(hearth_sync *sync);
/* The number of steps committed here, including one that the next hearth_sync_wait will write. After
 * hearth_group_form or hearth_group_reform, members compare it to find the newest model. A new or late
 * member counts as the others do from its first step with them on. */
HEARTH_API uint64_t hearth_sync_steps(hearth_sync *sync);
HEARTH_API hearth_compressor *hearth_sync_compressor(hearth_sync *sync); /* for stats, save and load */

/* ---- Codecs: one buffer, without a network ---- */

/* The largest compressed length; 0: the codec cannot encode it. */
HEARTH_API size_t hearth_codec_bound(const char *codec, size_t count, enum hearth_dtype dtype);
/* Compresses source + residual (NULL: no feedback) into target (`size` bytes; HEARTH_LIMIT if too few) and
 * stores the next residual. `key` seeds codecs that draw: the same on all members that must draw alike,
 * another in each call. Not for "auto"; powersgd needs rows=. HEARTH_POISONED: NaN or Inf ("none" copies
 * them). After an error the residual is unchanged. */
HEARTH_API int hearth_codec_compress(const char *codec, uint64_t key, const void *source, size_t count,
                                     enum hearth_dtype dtype, void *residual, void *target, size_t size,
                                     size_t *len);
/* Needs no codec name: the bytes contain it. Writes all elements of the target. Malformed bytes are
 * HEARTH_PROTOCOL, another count or type is HEARTH_INVALID; then the target is unchanged. */
HEARTH_API int hearth_codec_decompress(const void *bytes, size_t len, void *target, size_t count,
                                       enum hearth_dtype dtype);

/* ---- User codecs: your own functions under a name ---- */

/* What a function of a user codec is called for. */
struct hearth_codec_call {
    size_t size;            /* of the struct, set by the library */
    const char *parameters; /* of NAME:PARAMETERS in the codec's text; "": none */
    size_t count;           /* elements */
    uint64_t key;           /* to draw random numbers by: of tensor, step and member; decode has encode's */
};

/* The functions compute in f32, whatever the tensor's type: the library converts, adds the residual before
 * encode, and computes the next residual from what decode makes of the payload. Each is a pure function of
 * its arguments and gives the same bits on all members. They are called on any thread of the library and of
 * its callers, several at a time, and must not call functions of nodes, groups, compressors or requests. */

/* Whether the codec takes the parameters ("" if the text has none): 0, or the text is HEARTH_INVALID. */
typedef int hearth_codec_check_fn(void *arg, const char *parameters);
/* Bytes of the longest payload of call->count elements (key is 0): at most 2^48, and the same on all members.
 * 0: the codec cannot encode so many: an all-reduce goes plain, hearth_codec_compress is
 * HEARTH_UNSUPPORTED. */
typedef size_t hearth_codec_bound_fn(void *arg, const struct hearth_codec_call *call);
/* Encodes the values, all finite, to at most `size` bytes, the bound, and stores how many. Or not 0:
 * HEARTH_NO_MEMORY, HEARTH_LIMIT and HEARTH_UNSUPPORTED become the status of the operation, all others
 * HEARTH_INVALID. A length above `size` and a payload that decode refuses are HEARTH_INVALID, too. */
typedef int hearth_codec_encode_fn(void *arg, const struct hearth_codec_call *call, const float *values,
                                   void *bytes, size_t size, size_t *len);
/* Decodes a payload into call->count values, which are 0 before. The bytes may come from another member, so
 * all of them must be checked; they are not aligned. Not 0: they are malformed; that, or a value that is not
 * finite, is HEARTH_PROTOCOL and names the sender. (HEARTH_NO_MEMORY stays as it is.) */
typedef int hearth_codec_decode_fn(void *arg, const struct hearth_codec_call *call, const void *bytes,
                                   size_t len, float *values);

/* Always initialise with hearth_codec_functions_init. */
struct hearth_codec_functions {
    size_t size;
    void *arg;                    /* passed to all: NULL */
    hearth_codec_check_fn *check; /* NULL = the codec has no parameters: NULL */
    hearth_codec_bound_fn *bound;
    hearth_codec_encode_fn *encode;
    hearth_codec_decode_fn *decode;
};

HEARTH_API void hearth_codec_functions_init_sized(struct hearth_codec_functions *functions, size_t size);
static inline void hearth_codec_functions_init(struct hearth_codec_functions *functions)
{
    hearth_codec_functions_init_sized(functions, sizeof(*functions));
}
/* Makes NAME, or NAME:PARAMETERS, a codec wherever this process names one. All members register it before
 * they name it. Where it is not registered its name is HEARTH_INVALID, and hearth_all_reduce_compressed then
 * ends with HEARTH_ABORTED for the other members. A name has 1 to 31 characters of a-z, 0-9, - and _, begins
 * with a letter, and is not that of a built-in codec or option. PARAMETERS: 1 to 63 printable characters
 * without space and comma.
 *
 * Any thread. The struct is copied; functions and arg must live until the process ends. To register the same
 * again is harmless. Other functions replace those of the name for texts that are read from then on;
 * compressors, syncs and operations that were opened before keep theirs. Use another name when the payload
 * changes: members compare names, not functions. HEARTH_LIMIT: there were 256 registrations. */
HEARTH_API int hearth_codec_register(const char *name, const struct hearth_codec_functions *functions);

/* ---- Measurement ---------------------------------------------------------------------------------- */

/* The node's counters and histograms as text (Prometheus exposition format). Writes at most `size` bytes
 * with the final 0 and returns the length of the whole text, as snprintf does; negative status on failure. */
HEARTH_API int64_t hearth_node_metrics_text(hearth_node *node, char *buffer, size_t size);

/* Bytes that this member has sent to and received from the others since its node was opened or its group
 * formed: all operations, plain and compressed, with frame headers, before encryption. Call it before and
 * after a step to measure the step. */
HEARTH_API int hearth_group_traffic(hearth_group *group, uint64_t *sent, uint64_t *received);

#ifdef __cplusplus
}
#endif

#endif
