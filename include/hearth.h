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

/* ---- How to read this header ---------------------------------------------------------------------------
 *
 * Steps, from the simple to the rich: open nodes, take their group, call a collective; then options; then
 * non-blocking requests; then measurement.
 *
 * Units stand in the names: `count` is elements, `len` is bytes, `timeout_ms` milliseconds.
 * Functions return 0 (HEARTH_OK) or a negative `enum hearth_status`; the two positive statuses are no errors.
 * Outputs are set only on success. Every timeout_ms is -1 for the default, 0 to poll (only what is done at
 * once), or milliseconds.
 * Structs begin with their size, so that they can grow: a program and a library of different versions
 * understand each other as far as both know the fields. Those that are passed in have an init function, which
 * fills in the defaults; for those that a call fills in the caller sets `size` to sizeof. What an older
 * library does not know stays zero in outputs, and is HEARTH_UNSUPPORTED in inputs unless it is zero.
 *
 * A pointer argument is lent for the call; a user buffer is lent until its operation is done. Strings passed
 * in are copied.
 *
 * Threads: every function may be called from any thread unless its comment says otherwise; handles may be
 * used by several threads at once, but closing or freeing a handle must not race with its other uses.
 *
 * Fork: a node belongs to the process that opened it. In a forked child every call returns HEARTH_FORKED
 * (hearth_group_rank and hearth_group_size still answer), hearth_node_close only gives memory back, and the
 * connections are the parent's alone: when it is killed its peers know at once. */

/* ---- Version -------------------------------------------------------------------------------------- */

/* The version of the library at run time, as major << 16 | minor << 8 | patch. While major is 0 every minor
 * version has its own soname; from 1.0 on the soname changes with major only. */
HEARTH_API uint32_t hearth_version(void);
HEARTH_API const char *hearth_version_string(void); /* "0.1.0"; static memory */

/* ---- Status --------------------------------------------------------------------------------------- */

/* Grouped by how much is broken, so that a caller can act on the group alone: see hearth_status_scope. */
enum hearth_status {
    HEARTH_OK = 0,
    HEARTH_BEHIND = 1,  /* hearth_group_reform: the group stands, but this member lacks steps of others */
    HEARTH_PENDING = 2, /* not finished yet: hearth_request_test and waits whose time is over */

    /* Argument: nothing happened, no sequence number was used; correct the call and make it again. */
    HEARTH_INVALID = -101,     /* an argument, variable or name is not acceptable */
    HEARTH_UNSUPPORTED = -102, /* acceptable, but not in this version, build or combination */

    /* Operation: this operation ended without a result on every member; the group is usable. */
    HEARTH_TIMEOUT = -201,   /* its deadline passed; the text names who was waited for */
    HEARTH_CANCELLED = -202, /* cancelled here */
    HEARTH_ABORTED = -203,   /* another member ended it; the text names that rank and its reason */
    HEARTH_MISMATCH = -204,  /* members called different things; the text names who differs and how */
    HEARTH_DIFFERS = -205,   /* hearth_group_same: not all members hold the same bytes */
    HEARTH_POISONED = -206,  /* compressed: NaN or Inf in a member's input, or a sum beyond f32 */
    HEARTH_NO_MEMORY = -207, /* memory or the configured memory limit is used up */
    HEARTH_LIMIT = -208,     /* a configured or built-in limit (operations, tags, length) is reached */

    /* Peer: one member is lost to us. */
    HEARTH_PEER_LOST = -301, /* it closed, died or stopped answering; the text names the rank */
    HEARTH_PROTOCOL = -302,  /* it sent bytes that break the protocol */

    /* Group: no operation of this group can succeed any more. */
    HEARTH_VIEW_CHANGED = -401, /* a member of a formed group is gone: hearth_group_reform */
    HEARTH_GROUP_BROKEN = -402, /* a member was lost earlier, or has left; the text names it */

    /* Node: this node is unusable. */
    HEARTH_FORKED = -501, /* called in a forked child */
    HEARTH_CLOSED = -502, /* the node is closing */
    HEARTH_SYSTEM = -503  /* the operating system refused something the node cannot do without */
};

enum hearth_scope {
    HEARTH_SCOPE_NONE = 0,
    HEARTH_SCOPE_ARGUMENT,
    HEARTH_SCOPE_OPERATION,
    HEARTH_SCOPE_PEER,
    HEARTH_SCOPE_GROUP,
    HEARTH_SCOPE_NODE
};

/* What lies behind a status, where a program would act on it. Values are part of the wire format. */
enum hearth_reason {
    HEARTH_REASON_NONE = 0, /* the status says all */

    /* A member is gone: HEARTH_PEER_LOST, HEARTH_GROUP_BROKEN, HEARTH_VIEW_CHANGED. */
    HEARTH_REASON_PEER_CLOSED = 1, /* its connection ended without a goodbye: it died, or the network broke */
    HEARTH_REASON_PEER_LEFT = 2,   /* its node was closed */
    HEARTH_REASON_PEER_SILENT = 3, /* it answered nothing for peer_timeout_ms, or takes nothing */
    HEARTH_REASON_PEER_REMOVED = 4, /* its key was revoked, or the home cluster took it for dead */

    /* Another member ended the operation: HEARTH_ABORTED. */
    HEARTH_REASON_TIMED_OUT = 5, /* its deadline passed there */
    HEARTH_REASON_CANCELLED = 6, /* it was cancelled there */
    HEARTH_REASON_NO_MEMORY = 7, /* memory ran out there */

    /* Nodes cannot work together: correct how they are started. */
    HEARTH_REASON_SECRET_DIFFERS = 8,   /* another secret, or another cluster */
    HEARTH_REASON_KEY_REFUSED = 9,      /* a key was revoked or is not on the list (hearth trust) */
    HEARTH_REASON_VERSION_DIFFERS = 10, /* no version of the protocol in common */
    HEARTH_REASON_SETTINGS_DIFFER = 11, /* plain, job, world size, a rank twice, another agreed field */

    /* The network. */
    HEARTH_REASON_ADDRESS_IN_USE = 12, /* another process listens there */
    HEARTH_REASON_UNREACHABLE = 13,    /* no connection to an address: refused, no route, no answer */
    HEARTH_REASON_NOT_HEARTH = 14,     /* what answers there is not the node that was meant */
    HEARTH_REASON_BUSY = 15            /* it is busy: try again later */
};

HEARTH_API enum hearth_scope hearth_status_scope(int status);
HEARTH_API const char *hearth_status_name(int status); /* "HEARTH_TIMEOUT"; static memory, never NULL */
HEARTH_API const char *hearth_status_text(int status); /* one sentence; static memory, never NULL */

/* The text of the last failure of a call made on this thread: operation, rank, peer, phase, reason. Never
 * NULL; valid until the next failing call on this thread. The text of a request: hearth_request_error. */
HEARTH_API const char *hearth_error_text(void);
/* The rank that this text is about (who was lost, who differs), as the call's group counts; -1: nobody. */
HEARTH_API int hearth_error_rank(void);
/* Why that call failed, for programs: texts may change. */
HEARTH_API enum hearth_reason hearth_error_reason(void);
HEARTH_API const char *hearth_reason_name(enum hearth_reason reason); /* "peer_left"; "?" if unknown */

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
 *    fixes it to rank 0, 1, 2, ... whatever plan and transport.
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

/* How the data travels. Chosen by the cost model from what all members agree on; a fixed choice is for
 * measurement. An algorithm that a collective does not have is HEARTH_UNSUPPORTED. */
enum hearth_algo {
    HEARTH_ALGO_AUTO = 0,
    HEARTH_ALGO_RING = 1,
    HEARTH_ALGO_DIRECT = 2,       /* to the owner of each part, then from it: two hops */
    HEARTH_ALGO_HALVING = 3,      /* recursive halving and doubling, any number of members */
    HEARTH_ALGO_TREE = 4,         /* binomial; O(log N) hops */
    HEARTH_ALGO_STAR = 5,         /* everything through one member ("centralized") */
    HEARTH_ALGO_HIERARCHICAL = 6, /* inside each host first, then between hosts */
    HEARTH_ALGO_EXCHANGE = 7      /* everyone to everyone, combined by each in rank order: one hop */
};

HEARTH_API size_t hearth_dtype_size(enum hearth_dtype dtype);      /* bytes of one element; 0 if unknown */
HEARTH_API const char *hearth_dtype_name(enum hearth_dtype dtype); /* "f32"; "?" if unknown */
HEARTH_API const char *hearth_op_name(enum hearth_op op);          /* "sum"; "?" if unknown */
HEARTH_API const char *hearth_algo_name(enum hearth_algo algo);    /* "ring"; "?" if unknown */
/* The inverse of the names. HEARTH_INVALID if there is none such. */
HEARTH_API int hearth_dtype_parse(const char *name, enum hearth_dtype *dtype);
HEARTH_API int hearth_op_parse(const char *name, enum hearth_op *op);
HEARTH_API int hearth_algo_parse(const char *name, enum hearth_algo *algo);

typedef struct hearth_node hearth_node;       /* one member of a cluster: links, engine, helper threads */
typedef struct hearth_group hearth_group;     /* the members that take part in collectives, in rank order */
typedef struct hearth_request hearth_request; /* one non-blocking operation */

/* ---- Configuration -------------------------------------------------------------------------------- */

enum hearth_log_level {
    HEARTH_LOG_ERROR = 1,
    HEARTH_LOG_WARN = 2,
    HEARTH_LOG_INFO = 3,
    HEARTH_LOG_DEBUG = 4
};

/* One line of log, without a newline. `id` names the message for good ("HEARTH-PEER-LOST"). Called from any
 * thread, possibly from several at once; must not call back into Hearth. */
typedef void hearth_log_fn(void *arg, enum hearth_log_level level, const char *id, const char *text);

/* For measurement and for unusual machines: training needs none of it. Initialise with hearth_tuning_init.
 * "agreed": the same on all members, as in struct hearth_config. */
struct hearth_tuning {
    size_t size;
    size_t chunk_bytes;  /* agreed: largest payload of one frame: 262,144 */
    size_t window_bytes; /* agreed: staging memory of an operation, over long paths 4 times that: 4,194,304 */
    size_t eager_bytes;  /* agreed: what a peer may send before the operation is posted: 262,144 */
    size_t compressed_allreduce_max_bytes; /* memory for one; 0 = no limit: 4,294,967,296 */
    int64_t connect_timeout_ms;            /* for one attempt to connect: 5,000 */
    uint32_t connect_retries;              /* further attempts, with backoff and jitter: 3 */
    uint32_t connections;    /* tcp: data connections to each peer, 1..8; 0 = by its distance: 0 */
    uint32_t datagram_bytes; /* quic: largest payload of a packet, 1,200 to 65,507; 0 = as the interface: 0 */
    uint32_t ops_max;        /* operations in flight per node: 1,024 */
    uint32_t spin_us;        /* how long a blocking call polls before it sleeps: 200 */
    enum hearth_algo algo;   /* agreed: for calls that leave it to HEARTH_ALGO_AUTO: HEARTH_ALGO_AUTO */
};
HEARTH_API void hearth_tuning_init_sized(struct hearth_tuning *tuning, size_t size);
static inline void hearth_tuning_init(struct hearth_tuning *tuning)
{
    hearth_tuning_init_sized(tuning, sizeof(*tuning));
}

struct hearth_environment;

/* Begins with its size, so that fields can be added. Always initialise with hearth_config_init. Fields that
 * all members must agree on are marked "agreed"; a member that differs is found at the first operation. */
struct hearth_config {
    size_t size;               /* set by hearth_config_init */
    int64_t op_timeout_ms;     /* default deadline of an operation: 1,800,000 (30 min) */
    size_t memory_max;         /* all memory of a node but user buffers and the rings in shared memory
                                        (at most 16 MiB); 0 = no limit: 0 */
    uint64_t rate;             /* bits a second that this node sends at most, to all peers together,
                                        64,000 to 10^12; 0 = no limit: 0 */
    const char *codec;         /* for compressed calls that name none: "none" */
    uint32_t compress_threads; /* for one tensor, the caller included, 1..64; bits do not depend on it: 1 */
    enum hearth_log_level log_level; /* HEARTH_LOG_WARN */
    hearth_log_fn *log;              /* NULL = silent */
    void *log_arg;
    const struct hearth_tuning *tuning;           /* NULL = its defaults: NULL */
    const struct hearth_environment *environment; /* set by hearth_config_env, for hearth_node_open: what a
                                                     launcher left for this process: NULL */

    /* From here on only for hearth_node_open. Strings are copied by it. */
    const char *peers;      /* "host:port,host:port,...": all members, in the order of their ranks: NULL */
    const char *rendezvous; /* "host[:port]" or "unix:PATH", where all members meet: NULL */
    const char *job;        /* agreed: members of different jobs refuse each other: "hearth" */
    int rank;               /* -1 = own place in `peers`, or as it comes at the rendezvous: -1 */
    int world_size;         /* members; 0 = as many as `peers` has: 0 */
    const char *bind;       /* interface or address to listen on; NULL = all: NULL */
    const char *advertise;  /* what others are to dial, "host[:port]"; NULL = found out: NULL */
    const char *transport;  /* agreed: "auto" (shared memory inside a host; between hosts tcp, or quic where
                                that is faster: tried when the node opens, over long paths), "tcp", "quic" or
                                "shm": "auto" */
    const char *site;       /* where this node stands, like "berlin": compressed all-reduces may go two-level,
                                dense inside a site. NULL = each host is a site of its own: NULL */
    int64_t open_timeout_ms; /* for all that hearth_node_open does: 60,000 */
    int64_t peer_timeout_ms; /* a peer that answers nothing for so long is lost: 30,000 */
    uint32_t link_mbps;      /* agreed: what a port is assumed to carry between machines, Mbit/s: 1,000 */
    uint16_t port;           /* to listen on; a taken one moves to the next free: 52416 */

    /* Security: docs/security.md. */
    const char *secret;      /* the cluster's: a token of `hearth init`, or 64 hexadecimal digits: NULL */
    const char *secret_file; /* a file with it; NULL = what `hearth init` or `hearth join` stored: NULL */
    const char *key_file;    /* this node's own key, made if it is not there; "fresh" = one for this process
                                alone; NULL = node.key in the folder: NULL */
    int plain;               /* agreed: 1 = no encryption and no authentication: 0 */
    int trust_network;       /* 1 allows plain connections beyond this machine: 0 */

    /* Home clusters: docs/home.md. */
    const char *discover;    /* "mdns": this node belongs to a home cluster, whose members find each other;
                                "off"; NULL = mdns, if neither peers, rendezvous, world_size nor a launcher
                                says who the members are and there is a secret: NULL */
    uint32_t roles;          /* enum hearth_role: 0 */
    int64_t form_timeout_ms; /* for hearth_group_form and hearth_group_reform: 300,000 */
    const char *seeds; /* "host[:port],...": nodes to ask beside those that mDNS finds; one is enough: NULL */
    const char *mdns;  /* the helper program; NULL = hearth-mdns beside the program or the library, or
                                where it was installed; "" = without mDNS: NULL */
    const char
        *health; /* dead after silence of 3 s ("default"), 1 s ("low-latency") or 12 s ("high-latency") */
};

/* What a node of a home cluster is there for, beside the jobs that its program asks for. */
enum hearth_role {
    HEARTH_ROLE_DEMO = 1u << 0,  /* takes part when a member trains the demo (`hearth demo --cluster`) */
    HEARTH_ROLE_BENCH = 1u << 1, /* takes part when a member measures (`hearth bench cluster`) */
    HEARTH_ROLE_GUEST = 1u << 2  /* here for a while: in groups like others, but never votes or leads */
};

/* Fills in the defaults named above. */
HEARTH_API void hearth_config_init_sized(struct hearth_config *config, size_t size);
static inline void hearth_config_init(struct hearth_config *config)
{
    hearth_config_init_sized(config, sizeof(*config));
}

/* Sets fields from the environment. The variable of a field is HEARTH_ and its name in capitals:
 * HEARTH_OP_TIMEOUT_MS, HEARTH_PEERS, and of struct hearth_tuning HEARTH_SPIN_US (which makes `tuning` point
 * to a copy that lives as long as the process); there is none for log and roles. Sizes take the suffixes K, M
 * and G (powers of 1024), HEARTH_RATE takes 100mbit or 2.5gbit, HEARTH_LOG_LEVEL error, warn, info or debug.
 * Beside these a launcher may hand over the secret in a descriptor (HEARTH_SECRET_FD), and the folder for key
 * and secret is $XDG_CONFIG_HOME/hearth, or $HOME/.config/hearth. hearth(1) lists them all. What
 * these leave open, a launcher fills in: torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: over several
 * hosts the rendezvous is the port after it), Open MPI, MPICH and other PMI launchers, Slurm: rank and
 * world_size, and where all ranks are on one host, a private unix socket named by user and job. A bad value
 * is HEARTH_INVALID, the text names variable and value, and no field is changed. The only place where the
 * library reads the environment; not to be called while another thread changes it. Strings point into the
 * environment. */
HEARTH_API int hearth_config_env(struct hearth_config *config);

/* ---- Nodes and groups ----------------------------------------------------------------------------- */

#define HEARTH_LOCAL_MAX 64

/* Opens `count` (1..HEARTH_LOCAL_MAX) nodes in this process, joined in memory: for tests, examples and
 * notebooks. nodes[i] has rank i in its world. `config` may be NULL. Each node is closed on its own. */
HEARTH_API int hearth_node_open_local(const struct hearth_config *config, int count, hearth_node *nodes[]);

/* Opens this process's node and joins it to the others, as config (NULL: the defaults and the environment)
 * says: `peers`, or `rendezvous` with world_size, or neither for a world of one. Unless it says `plain`,
 * every connection is encrypted (TLS 1.3), and both ends prove that they know the cluster's secret; members
 * that meet at a unix socket need none, it is handed to them there. docs/security.md: what that is worth.
 * Blocks until all members have agreed on roster and settings and are joined to each other, at most
 * open_timeout_ms. The error names what is wrong and with whom: missing or duplicate rank, unreachable
 * address, different settings. The node has one thread of its own; compress_threads - 1 more from the first
 * compressed call on, and one more from the first non-blocking one on. */
HEARTH_API int hearth_node_open(const struct hearth_config *config, hearth_node **node);

/* How the node is joined to the others, for people: one line per member (rank, host, transport, address,
 * round trip). In a home cluster connections belong to the groups that were formed: for each a line with its
 * job, then the lines of its members. Writes at most `size` bytes with the final 0 and returns the length of
 * the whole text. */
HEARTH_API int64_t hearth_node_links_text(hearth_node *node, char *buffer, size_t size);

/* Memory for buffers that members on the same host can see: collectives on it move no bytes that need not be
 * moved. Aligned to a page, zero. Elsewhere it is ordinary memory. NULL: no memory, see hearth_error_text.
 * Freed by hearth_mem_free or hearth_node_close; no operation may be using it then. */
HEARTH_API void *hearth_mem_alloc(hearth_node *node, size_t len);
HEARTH_API void hearth_mem_free(hearth_node *node, void *memory); /* NULL is allowed */

/* Closes the node and the groups and requests that hang on it. Whoever is done may close, and its process may
 * end, whatever the others are still at: no barrier is needed. Returns when they have, or get without us, all
 * that they need of the calls which returned HEARTH_OK here (a peer that does not take it is waited for 10 s,
 * or peer_timeout_ms if that is shorter). What they call after that, without this member, is refused with
 * HEARTH_GROUP_BROKEN at once. Operations in flight end with HEARTH_CLOSED here and HEARTH_PEER_LOST at the
 * others. Nothing touches user memory any more then. NULL is allowed. Must not be called from a completion
 * callback. */
HEARTH_API void hearth_node_close(hearth_node *node);

/* The group of all members of the node's cluster. Owned by the node; NULL only in a forked child. */
HEARTH_API hearth_group *hearth_node_world(hearth_node *node);

HEARTH_API int hearth_group_rank(const hearth_group *group); /* 0..size-1, or HEARTH_INVALID for NULL */
HEARTH_API int
hearth_group_size(const hearth_group *group); /* number of members, or HEARTH_INVALID for NULL */

struct hearth_opts;

/* Collective over `group`: members with the same `color` form a new group, ordered by (key, old rank). A
 * negative color takes part and gets NULL. Operations of different groups never meet. Calls that make or
 * change a group (this one, hearth_group_form, hearth_group_reform, hearth_group_adapt) have no `_nb` form:
 * nothing can be called on the group before they have returned. */
HEARTH_API int hearth_group_split(hearth_group *group, int color, int key, const struct hearth_opts *opts,
                                  hearth_group **out);
/* Frees a group made by hearth_group_split; operations in flight on it are cancelled. NULL is allowed; a
 * world is left to its node. */
HEARTH_API void hearth_group_close(hearth_group *group);

/* ---- Home cluster ---------------------------------------------------------------------------------
 *
 * A node that discovers (config: discover) finds the other nodes of its cluster by itself, agrees with them
 * who is in and who leads (a view), and watches them; it goes on while its program does. docs/membership.md.
 *
 *   hearth_node_open  ->  hearth_node_wait_for_peers (if wanted)  ->  hearth_group_form  ->  collectives
 *                                                     ^         |  HEARTH_VIEW_CHANGED: a member is gone
 *                                                     +---------+  hearth_group_reform
 *
 * Its world is itself alone; groups with others are made by hearth_group_form. Calls on a node that does not
 * discover are HEARTH_UNSUPPORTED. */

/* Waits until at least `min_peers` others are members, at most timeout_ms (-1: the config's
 * peer_timeout_ms). HEARTH_TIMEOUT: the text says who is there, and of nodes that were seen why they
 * are not. */
HEARTH_API int hearth_node_wait_for_peers(hearth_node *node, int min_peers, int64_t timeout_ms);

/* The group of all members that ask for the same job at this time, at least `min_members` with this one (the
 * largest that any of them asks for counts); blocks until then, at most opts->timeout_ms (-1:
 * form_timeout_ms; some seconds more, where it was formed but not all were joined by then; the other options
 * are not used). Who asks while the job runs waits until it forms again; its members get
 * HEARTH_EVENT_JOB_WANTED, and one of them that calls hearth_group_reform between two steps lets the newcomer
 * in. Ranks follow the order of the fastest ways between the machines. A job's name has 1 to 63 printable
 * characters; a node can be in a job once. Closed by hearth_group_close, which ends the group for all others:
 * what they can finish without this member, since it has done its part, goes on and may still begin. */
HEARTH_API int hearth_group_form(hearth_node *node, const char *job, int min_members,
                                 const struct hearth_opts *opts, hearth_group **group);

/* When a member of a formed group is lost, leaves or closes its group, operations in flight that need it and
 * all later ones, but those that it took part in before it left, end with HEARTH_VIEW_CHANGED on every other
 * member, inputs as promised. This gives the next group, of those who are left and those who wait: blocks
 * until all survivors have called it, at most opts->timeout_ms as in hearth_group_form, whose minimum still
 * holds. The old group is closed;
 * its compressors and syncs go on with the new one, residuals kept (what a lost member had not sent is lost
 * with it). A step that was under way has been committed or aborted when this returns, the same on all
 * members: hearth_sync_wait. HEARTH_OK, or HEARTH_BEHIND, which is positive: the group stands, but this
 * member lacks steps that the others have committed: it was away too long, or a cluster that was split has
 * gone on elsewhere. Its residuals are empty, and nothing is ready; take the model from a member that has
 * them (hearth_sync_steps tells) before the next step. The others are not told and need not do more than take
 * part in that. A member that comes by hearth_group_form lacks them too, and knows it. Failure: *group is
 * unchanged, and this may be called again. */
HEARTH_API int hearth_group_reform(hearth_group **group, const struct hearth_opts *opts);

/* A formed group goes on with what has been measured since: another order of its rings, sites and speeds
 * of ways, and so perhaps other algorithms; ranks stay. For groups that were formed before the ways
 * between their machines were known, or whose network has changed: call it now and then, after the first
 * seconds and then every few minutes. It costs two small messages. Collective: all members call it at the
 * same place between operations, under opts->timeout_ms (at worst twice that; the other options are not
 * used). HEARTH_OK: all have adopted the same, or nothing better is known. HEARTH_INVALID: operations of the
 * group are in flight here; HEARTH_ABORTED: they are at another member, or it failed there; then nothing has
 * changed for anybody. HEARTH_VIEW_CHANGED: also when a member cannot know whether the others went on;
 * hearth_group_reform. Of a group that was not formed, nor split off one: HEARTH_OK at once, nothing to adapt
 * to. No other thread may use the group meanwhile. */
HEARTH_API int hearth_group_adapt(hearth_group *group, const struct hearth_opts *opts);

/* Every call of hearth_node_wait_for_peers, hearth_group_form, hearth_group_reform and hearth_node_next_event
 * that another thread has begun on this node and that still waits ends soon (a tenth of a second) with
 * HEARTH_CANCELLED: for Ctrl-C, and for programs whose user changes his mind. A wish is withdrawn, and the
 * others wait on without this member; those that it was just being joined with form again. A call that begins
 * later is not touched: who cannot know whether the other thread has begun repeats this until that thread
 * returns. If the call has what it waited for by then, it returns that. Not for signal handlers. */
HEARTH_API int hearth_node_interrupt(hearth_node *node);

/* A member of a group, for people and for programs that want to reach it by other means. Strings are "" where
 * nothing is known. */
struct hearth_member {
    size_t size; /* set by the caller: sizeof */
    int rank;
    int same_host;
    uint64_t
        completed;    /* operations that it had completed in the group before (hearth_group_reform): one with
                           more may have a result that others lack; 0: it has just come */
    char id[72];      /* of its key, 64 hexadecimal digits */
    char name[64];    /* of its machine */
    char address[64]; /* by which this node reaches it, without port; our own: by which the others may */
};
HEARTH_API int hearth_group_member(hearth_group *group, int rank, struct hearth_member *member);

enum hearth_event_kind {
    HEARTH_EVENT_JOINED = 1,      /* a member came */
    HEARTH_EVENT_LEFT = 2,        /* or went: `text` says how */
    HEARTH_EVENT_HEALTH = 3,      /* healthy, degraded, unhealthy, dead: `health` */
    HEARTH_EVENT_LEADER = 4,      /* another one leads */
    HEARTH_EVENT_VIEW = 5,        /* the view is another: `epoch`, `members` */
    HEARTH_EVENT_QUORUM_LOST = 6, /* too few members are heard: nothing is decided here until they are */
    HEARTH_EVENT_QUORUM_BACK = 7,
    HEARTH_EVENT_JOB_WANTED = 8, /* a member asks for a job that does not run, or runs without it: its name is
                                    in `text`. Once, until nobody asks for it any more */
    HEARTH_EVENT_TROUBLE = 9 /* anything else that people should know: a copied key, two clusters at work */
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
/* The next event that was not fetched; waits at most timeout_ms (-1: until one comes) and is HEARTH_PENDING
 * then. The last 256 are kept. */
HEARTH_API int hearth_node_next_event(hearth_node *node, struct hearth_event *event, int64_t timeout_ms);
/* Instead, or beside: called for every event from a thread of the node's; it must not block or call Hearth.
 * NULL: not any more, and when this returns it is not being called. */
typedef void hearth_event_fn(void *arg, const struct hearth_event *event);
HEARTH_API int hearth_node_on_event(hearth_node *node, hearth_event_fn *fn, void *arg);

/* View, members, health, links, sightings, jobs and topology as JSON: what `hearth status --json` prints. As
 * hearth_node_metrics_text. */
HEARTH_API int64_t hearth_node_status_json(hearth_node *node, char *buffer, size_t size);

/* ---- Options of a collective ---------------------------------------------------------------------- */

enum hearth_flag {
    HEARTH_FLAG_RESTORE = 1u << 0, /* in place: give the input back if the operation fails (costs one copy) */
    HEARTH_FLAG_RANK_ORDER = 1u << 1 /* combine in rank order, whatever plan: same bits on every transport */
};

/* Runs once, when the operation has ended, on whichever thread ended it. It must not block; it may start
 * non-blocking operations and call hearth_request_test, but not wait, free or close. `status` is the
 * operation's. */
typedef void hearth_done_fn(void *arg, int status);

/* Begins with its size. NULL instead of options means the defaults. Always initialise with
 * hearth_opts_init. Everything but timeout_ms, weight, HEARTH_FLAG_RESTORE and the callback must be the same
 * on all members. */
struct hearth_opts {
    size_t size;
    int64_t
        timeout_ms; /* deadline of the operation; -1 = the node's default, 0 = only what is done at once */
    uint64_t tag;   /* operations match by (group, tag, how many came before under the tag) */
    double weight;  /* HEARTH_OP_AVG: this member's weight, 0 to 1e30: 1 */
    uint32_t flags; /* enum hearth_flag */
    enum hearth_algo algo; /* HEARTH_ALGO_AUTO */
    const char *codec;     /* NULL or "none"; compressed calls have an argument for it */
    hearth_done_fn *done;  /* NULL = none */
    void *done_arg;
};

HEARTH_API void hearth_opts_init_sized(struct hearth_opts *opts, size_t size);
static inline void hearth_opts_init(struct hearth_opts *opts)
{
    hearth_opts_init_sized(opts, sizeof(*opts));
}

/* ---- Collectives ----------------------------------------------------------------------------------------
 *
 * All members of the group call the same collective with the same count, type, operation and root. If they
 * do not, those still in the operation return HEARTH_MISMATCH with the same text, which names who differs;
 * a member that had already returned gets it from the first call on the group that it makes after the news
 * has come; that call does nothing else: make it again. Nobody hangs, the group stays usable.
 *
 * Operations match by (group, tag, sequence within the tag): under one tag all members start them in the
 * same order; operations under different tags may be started in any order.
 *
 * Blocking calls return when the operation has ended. `_nb` calls return at once with a request; buffers
 * belong to the operation until the request is done.
 *
 * In place: the source is the place in the target where one's own part lands (said at each function).
 * Otherwise source and target must not overlap. `source` or `target` may be NULL where this member has
 * nothing to give or get, or the count is 0.
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
/* Member i gives counts[i] elements; target holds them one after the other. `counts` is the same on all. */
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
/* Each member gives `count` elements; `counts` is read at the root only and must say what each gives. */
HEARTH_API int hearth_gatherv(hearth_group *group, const void *source, size_t count, void *target,
                              const size_t *counts, enum hearth_dtype dtype, int root,
                              const struct hearth_opts *opts);
/* The root's source holds size * count elements; member i gets those at i*count.
 * In place (root): target == source + root*count. */
HEARTH_API int hearth_scatter(hearth_group *group, const void *source, void *target, size_t count,
                              enum hearth_dtype dtype, int root, const struct hearth_opts *opts);
/* Each member gets `count` elements; `counts` is read at the root only and must say what each gets. */
HEARTH_API int hearth_scatterv(hearth_group *group, const void *source, const size_t *counts, void *target,
                               size_t count, enum hearth_dtype dtype, int root,
                               const struct hearth_opts *opts);
/* `count` elements for each: source[j*count...] goes to member j, target[i*count...] comes from member i.
 * In place: source == target (costs one copy). */
HEARTH_API int hearth_all_to_all(hearth_group *group, const void *source, void *target, size_t count,
                                 enum hearth_dtype dtype, const struct hearth_opts *opts);
/* source_counts[j] elements go to member j, target_counts[i] come from member i; both buffers hold them one
 * after the other. What i sends to j must be what j expects of i: else HEARTH_MISMATCH names the pair.
 * In place: source == target, and then both count lists must be the same. */
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

/* Do all members hold the same `len` bytes? 0 if so. HEARTH_DIFFERS if not, on every member, and then *who
 * (may be NULL) is the lowest rank that does not hold what most hold (the bytes of the lower rank win a tie).
 * Compares 128-bit hashes: made against accidents, not against attackers. No `_nb` form: reading the buffer
 * is the caller's own work, and takes longer than the exchange. */
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

/* ---- Requests ------------------------------------------------------------------------------------- */

/* The operation's status if it has ended, else HEARTH_PENDING. Does not block. */
HEARTH_API int hearth_request_test(hearth_request *request);
/* Waits until the operation has ended, at most timeout_ms (0 polls, -1 = until the operation's own
 * deadline): its status, or HEARTH_PENDING. A wait that runs out does not cancel. May be called again after
 * the end. */
HEARTH_API int hearth_request_wait(hearth_request *request, int64_t timeout_ms);
/* Waits for all: 0 if all ended well, the first bad status in order of the array, or HEARTH_PENDING.
 * NULL entries are skipped. Requests may belong to different nodes. */
HEARTH_API int hearth_request_wait_all(hearth_request *const *requests, size_t count, int64_t timeout_ms);
/* Waits until one of them has ended: its status, with *index set; HEARTH_PENDING if none did in time;
 * HEARTH_INVALID if all entries are NULL. */
HEARTH_API int hearth_request_wait_any(hearth_request *const *requests, size_t count, int64_t timeout_ms,
                                       size_t *index);
/* Aborts the operation for all members, if it has not ended. Does not wait for the others: when it returns,
 * the buffers are free. Its status is then HEARTH_CANCELLED here, HEARTH_ABORTED at the others. */
HEARTH_API int hearth_request_cancel(hearth_request *request);
/* A descriptor that becomes readable when the operation has ended, for poll or an event loop; do not read
 * or close it. Lives as long as the request. Negative status on failure. */
HEARTH_API int hearth_request_fd(hearth_request *request);
/* What went wrong, "" if nothing did. Lives as long as the request. */
HEARTH_API const char *hearth_request_error(const hearth_request *request);
HEARTH_API int hearth_request_error_rank(const hearth_request *request); /* whom it is about; -1: nobody */
HEARTH_API enum hearth_reason hearth_request_error_reason(const hearth_request *request);
/* Ends the handle. An unfinished operation is cancelled first; when this returns nothing touches its
 * buffers any more. NULL is allowed. Must not be called from a completion callback. */
HEARTH_API void hearth_request_close(hearth_request *request);

/* ---- Compression ----------------------------------------------------------------------------------------
 *
 * Over a slow network gradients are sent smaller than they are, and what a step leaves out is kept and added
 * to the next one (error feedback), so that nothing is lost. A codec is named by a text:
 *
 *   none                      as it is
 *   fp16 | bf16               half precision; fp16 with one power of two for each block of 256
 *   int8[,stochastic]         8 bits, one scale for each block of 256
 *   onebit                    sign, and the mean magnitude of each block of 256
 *   topk:RATIO[,chunk=COUNT][,values=f32|bf16|int8]     the largest of the tensor, or of each chunk
 *   randomk:RATIO[,values=f32|bf16|int8]                coordinates that all members draw alike
 *   powersgd:RANK[,rows=COUNT][,alternate]              low-rank factors of a matrix
 *   auto:CODEC[,CODEC...]     whichever of these is fastest here; none if none of them helps
 * and each with ",feedback=off". Example: "topk:0.01,values=int8". docs/compression.md says which to take.
 *
 * Types f32, f64, f16, bf16; operations HEARTH_OP_SUM and HEARTH_OP_AVG; anything else is HEARTH_UNSUPPORTED.
 * Values are computed in f32: an f64 beyond its range counts as infinite.
 *
 * A compressed all-reduce is a transaction: on success the result is in `buffer` (the same bits on every
 * member) and the residual holds what was left out; on any error, cancel included, buffer, residual and state
 * are as they were. (Only in the very last moment, while votes are on their way, may a crash or a deadline
 * leave one member without what another has finished. A compressor finds that in the tensor's next step:
 * HEARTH_MISMATCH. A cancel in that moment waits for the outcome, which may be HEARTH_OK.) NaN or Inf in any
 * member's input: HEARTH_POISONED on all, the text names the rank. A group of one, or no elements: returns
 * at once, buffer and residual untouched.
 *
 * Codec none, auto where it chooses none, and powersgd of a matrix that it would not make shorter are plain:
 * an ordinary hearth_all_reduce in place, as fast as one, whose buffer is given back after an error only with
 * HEARTH_FLAG_RESTORE (a sync sets it), and which lets NaN and Inf pass. Only where a compressor still holds
 * something of the tensor does that travel along, as a transaction.
 *
 * Of the options tag, timeout_ms, weight and the callback mean what they do elsewhere. algo fixes the way,
 * for measurement: HEARTH_ALGO_DIRECT by owners, HEARTH_ALGO_EXCHANGE by all_gather (neither for randomk and
 * powersgd), HEARTH_ALGO_HIERARCHICAL inside each host first (not for powersgd and f64); others are
 * HEARTH_UNSUPPORTED. Flags matter to plain calls only: inputs are given back anyway, and sums are made in
 * rank order (two levels: in each host by its plan, between hosts in rank order). A call that needs more
 * memory than compressed_allreduce_max_bytes is HEARTH_LIMIT.
 *
 * Kept, with w the weights and W their sum (HEARTH_OP_SUM: both 1), added over all members: W * result (once)
 * and the new residuals = w * inputs and the old residuals; within f32 rounding of the numbers that take part
 * in it, and before the result is rounded to 16 bits. */

/* HEARTH_OK, or HEARTH_INVALID with a text that shows the grammar. */
HEARTH_API int hearth_codec_check(const char *codec);

/* buffer[i] = op over members of buffer[i], by way of the codec (NULL: the config's). `residual`: count
 * elements, f64 for f64 buffers and f32 for all others, zero before the first step and kept by the caller
 * between steps; NULL: no feedback (randomk then scales by count/kept, so that it is right on average).
 * randomk draws by the group and the number of the operation; powersgd needs rows=, has no warm start and
 * cannot alternate: a compressor knows more. Where it goes plain the residual is not touched. */
HEARTH_API int hearth_all_reduce_compressed(hearth_group *group, void *buffer, size_t count,
                                            enum hearth_dtype dtype, enum hearth_op op, const char *codec,
                                            void *residual, const struct hearth_opts *opts);
HEARTH_API int hearth_all_reduce_compressed_nb(hearth_group *group, void *buffer, size_t count,
                                               enum hearth_dtype dtype, enum hearth_op op, const char *codec,
                                               void *residual, const struct hearth_opts *opts,
                                               hearth_request **request);

/* ---- a compressor: the state of many tensors, kept for the caller ---- */

typedef struct hearth_compressor hearth_compressor;

/* Begins with its size. Always initialise with hearth_compressor_config_init. The same on all members. */
struct hearth_compressor_config {
    size_t size;
    const char *codec;   /* NULL = the node's config's: NULL */
    size_t min_count;    /* tensors with fewer elements go plain: 4,096 */
    int vectors;         /* 1: tensors of one dimension are compressed too: 0 */
    const char *include; /* comma-separated names with * and ?: only these are compressed; NULL = all: NULL */
    const char *exclude; /* likewise: these are not: NULL */
    uint64_t warmup_steps; /* each tensor's first steps go plain, whatever the rules say: 0 */
    uint64_t ramp_steps;   /* topk, randomk: in so many more the ratio is halved from 0.25 to its own: 0 */
};

HEARTH_API void hearth_compressor_config_init_sized(struct hearth_compressor_config *config, size_t size);
static inline void hearth_compressor_config_init(struct hearth_compressor_config *config)
{
    hearth_compressor_config_init_sized(config, sizeof(*config));
}
/* `config` may be NULL. Hangs on the group's node: freed by hearth_node_close at the latest. After its group
 * has been closed it can only be closed too. */
HEARTH_API int hearth_compressor_open(hearth_group *group, const struct hearth_compressor_config *config,
                                      hearth_compressor **out);
/* Non-blocking operations in flight are cancelled; no other call on it may be under way. NULL is allowed. */
HEARTH_API void hearth_compressor_close(hearth_compressor *compressor);
/* Tensors whose name matches `pattern` (* and ?) use this codec; of several rules the last one counts. Rules
 * come before `include`, `exclude`, `vectors` and `min_count`. */
HEARTH_API int hearth_compressor_add_rule(hearth_compressor *compressor, const char *pattern,
                                          const char *codec);

/* One tensor: its name is its identity (1..255 printable ASCII), its type and shape are fixed by the first
 * call. A tensor takes part in one operation at a time. Layers that stand one behind the other in one array
 * are tensors of their own, each with its name and its place in the array. */
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

/* Forgets what is kept of one tensor (NULL: of all). HEARTH_INVALID: no such tensor, or it is in use. */
HEARTH_API int hearth_compressor_reset(hearth_compressor *compressor, const char *name);
/* Residuals are multiplied by the factor (1e-30 to 1e30): after a change of the loss scale (new / old) or, if
 * wanted, of the learning rate (old / new). No operation may be in flight. */
HEARTH_API int hearth_compressor_scale(hearth_compressor *compressor, double factor);
/* The state as bytes, the same on every machine, with version and checksum. Writes it if it fits into `size`
 * and returns its length; negative status on failure. No operation may be in flight. */
HEARTH_API int64_t hearth_compressor_save(hearth_compressor *compressor, void *buffer, size_t size);
/* Replaces the state; codec, rules and schedule are the caller's. Training goes on bit for bit as it would
 * have, if all members load what they saved after the same step. Bytes that are damaged, of another
 * version or of another rank or world size are refused (HEARTH_INVALID), and nothing has changed then. */
HEARTH_API int hearth_compressor_load(hearth_compressor *compressor, const void *buffer, size_t len);

/* What became of one tensor, or of all together. */
struct hearth_compressor_stats {
    size_t size;          /* set by the caller: sizeof */
    uint64_t tensors;     /* known */
    uint64_t steps;       /* all-reduces that ended well; none in a group of one */
    uint64_t plain_bytes; /* what they would have sent uncompressed from this member */
    uint64_t sent_bytes;  /* what they sent, without frame headers */
    double ratio;         /* plain / sent; 0 while nothing was sent */
    double captured;      /* share of the last step's energy that was sent, 0..1, from every 16th block */
    double residual_norm; /* Euclidean norm of what is left behind now */
};
/* `name` NULL: all. Not while one of them is in flight. */
HEARTH_API int hearth_compressor_stats(hearth_compressor *compressor, const char *name,
                                       struct hearth_compressor_stats *stats);
/* How a tensor goes and why, for people: codec, algorithm, expected time. As hearth_node_metrics_text. */
HEARTH_API int64_t hearth_compressor_explain(hearth_compressor *compressor, const char *name, char *buffer,
                                             size_t size);

/* ---- gradients of a whole model ---- */

typedef struct hearth_sync hearth_sync;

/* Makes the gradients of many tensors meet, as they become ready: small ones travel together, large ones in
 * pieces, while the rest is still being computed. `codec` NULL: the node's config's, else none. HEARTH_OP_SUM
 * or HEARTH_OP_AVG. All members open the syncs of a group in the same order. Close it before its group;
 * hearth_node_close frees it at the latest. */
HEARTH_API int hearth_sync_open(hearth_group *group, const char *codec, enum hearth_op op, hearth_sync **out);
/* The same on a compressor that the caller has set up and closes after the sync. Its rules are looked at when
 * the first step begins. */
HEARTH_API int hearth_sync_open_with(hearth_compressor *compressor, enum hearth_op op, hearth_sync **out);
HEARTH_API void hearth_sync_close(hearth_sync *sync); /* as hearth_sync_drop, then frees; NULL is allowed */
/* Registers a tensor; its index (0, 1, ...), or a negative status. All members register the same, in the same
 * order, before the first step: they compare in it, before anything is sent. `data` may be NULL and set
 * later. Tensors of at most 1 MiB that go plain are copied together, at most 25 MiB of one type, and do not
 * appear in the compressor; all others go from where they stand. */
HEARTH_API int hearth_sync_add(hearth_sync *sync, const struct hearth_tensor *tensor);
HEARTH_API int hearth_sync_set_data(hearth_sync *sync, int index, void *data); /* not while in flight */
/* HEARTH_OP_AVG: this member's weight from the next step on, 0 to 1e30: 1. Not in the middle of a step. */
HEARTH_API int hearth_sync_set_weight(hearth_sync *sync, double weight);
/* This step's gradient of the tensor is there. Any order, any thread; it belongs to the sync until the wait
 * has returned. Errors are about the arguments; what goes wrong on the way is told by the wait. */
HEARTH_API int hearth_sync_ready(hearth_sync *sync, int index);
/* Ends the step: waits for all, at most opts->timeout_ms (its other fields are not used).
 *  - HEARTH_INVALID: a tensor was not made ready; the text names it, and the step goes on: make it ready and
 *    wait again.
 *  - HEARTH_MISMATCH before the first step: members registered different things; the text names who and
 *    where, nothing was sent, and so it stays: close the sync.
 *  - Any other error: each gradient is either reduced, or as it was, as the operation that carried it ended.
 *    To complete the step, make all ready again and wait again: those that are reduced are left alone. To
 *    give it up (HEARTH_POISONED), hearth_sync_drop. All members do the same.
 * In a group of hearth_group_form a step is committed by all members or by none:
 *  - Results and residuals stand aside (as much memory as the tensors have) until the wait that returns
 *    HEARTH_OK: that writes the results, whatever the buffers hold by then. Until then what stands in the
 *    buffers is the input.
 *  - After an error the step was aborted, for all, or it is HEARTH_VIEW_CHANGED: hearth_group_reform. Also
 *    where nobody is lost but a member cannot know whether others have committed the step.
 *  - After an error, and after hearth_group_reform, `ready` need not be repeated. The next wait writes a step
 *    that was committed, and returns at once; of one that was aborted it sends again all that was ready, as
 *    it stands in the buffers then. `ready` may be repeated, for tensors that were computed again.
 *  - If it is repeated although the step was committed (hearth_sync_steps tells), the result is given up: the
 *    next step begins if a member of the group has taken it, and if none has, the same step does again. All
 *    members do the same; else HEARTH_MISMATCH names one that did not. */
HEARTH_API int hearth_sync_wait(hearth_sync *sync, const struct hearth_opts *opts);
/* Gives up the step that has begun or failed: what is in flight is cancelled, for all members, and the next
 * hearth_sync_ready begins a new step. Gradients of this one hold anything; in a group of hearth_group_form
 * they are as they were. Not while another thread is in a call on the sync. NULL is allowed. */
HEARTH_API void hearth_sync_drop(hearth_sync *sync);
/* How many steps were committed here, with one that the next hearth_sync_wait will write. Members that
 * compare these after hearth_group_form or hearth_group_reform find who has the model. A new or late member
 * counts as the others do from its first step with them on. */
HEARTH_API uint64_t hearth_sync_steps(hearth_sync *sync);
HEARTH_API hearth_compressor *hearth_sync_compressor(hearth_sync *sync); /* for stats, save and load */

/* ---- one buffer by itself ---- */

/* No compressed form is longer than this; 0: the codec cannot code it. */
HEARTH_API size_t hearth_codec_bound(const char *codec, size_t count, enum hearth_dtype dtype);
/* Compresses source + residual (NULL: no feedback) into target (`size` bytes; HEARTH_LIMIT if too few) and
 * leaves in the residual what that lacks. `key` is for codecs that draw: the same on all that must draw
 * alike, another each time. Not "auto"; powersgd needs rows=. HEARTH_POISONED: NaN or Inf ("none" copies
 * them). After an error the residual is as it was. */
HEARTH_API int hearth_codec_compress(const char *codec, uint64_t key, const void *source, size_t count,
                                     enum hearth_dtype dtype, void *residual, void *target, size_t size,
                                     size_t *len);
/* Needs no codec: the bytes say what they are. All elements of the target are written; malformed bytes are
 * HEARTH_PROTOCOL, another count or type HEARTH_INVALID, and then the target is as it was. */
HEARTH_API int hearth_codec_decompress(const void *bytes, size_t len, void *target, size_t count,
                                       enum hearth_dtype dtype);

/* ---- Measurement ---------------------------------------------------------------------------------- */

/* The node's counters and histograms as text (Prometheus exposition format). Writes at most `size` bytes
 * with the final 0 and returns the length of the whole text, as snprintf does; negative status on failure. */
HEARTH_API int64_t hearth_node_metrics_text(hearth_node *node, char *buffer, size_t size);

/* Bytes that this member has sent to and received from the others since its node was opened or its group
 * formed, by all operations, plain and compressed, with the headers of frames; before encryption. Two calls
 * and a step between them tell what the step has sent. */
HEARTH_API int hearth_group_traffic(hearth_group *group, uint64_t *sent, uint64_t *received);

#ifdef __cplusplus
}
#endif

#endif
