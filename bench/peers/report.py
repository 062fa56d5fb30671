# SPDX-License-Identifier: Apache-2.0
"""What the rounds say: rows for JSON, tables for people, and how Hearth stands to its targets."""

import statistics
from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20
LIBRARIES = {"hearth": "Hearth", "openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo"}
MEMORY_LIMIT = 32 * MIB
MEMORY_BYTES = 100 * MIB


@dataclass(frozen=True)
class Target:
    """Best peer / Hearth must be at least `factor`. `against` narrows the peers to (transport, library)."""
    transport: str
    ranks: int
    bytes: int
    factor: float
    alloc: str = "private"
    against: tuple = None


TARGETS = [
    Target("tcp", 2, 100 * MIB, 1.35),
    Target("tcp", 2, 16 * MIB, 1.15),
    Target("tcp", 2, 1 * MIB, 1.2),
    Target("tcp", 2, 64 * KIB, 1.5),
    Target("tcp", 2, 4, 0.9, against=("tcp", "openmpi")),
    Target("tcp", 2, 4, 10, against=("tcp", "gloo")),
    Target("tcp", 4, 100 * MIB, 1.1),
    Target("tcp", 4, 1 * MIB, 2),
    Target("tcp", 4, 4, 2),
    Target("shm", 2, 100 * MIB, 3.0),
    Target("shm", 2, 16 * MIB, 1.4),
    Target("shm", 2, 1 * MIB, 1.2),
    Target("shm", 2, 64 * KIB, 2.0),
    Target("shm", 2, 4, 2, against=("tcp", "openmpi")),
    Target("shm", 4, 100 * MIB, 2.5),
    Target("shm", 4, 1 * MIB, 1.5),
    Target("shm", 2, 100 * MIB, 4, alloc="shared"),
    Target("shm", 4, 100 * MIB, 6, alloc="shared"),
]


# ---- Words ---------------------------------------------------------------------------------------------------------

def size_text(count):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count} B"


def number(value):
    """Three digits that count."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def time_text(median_us, p99_us=None):
    scale, unit = (1000, "ms") if median_us >= 1000 else (1, "us")
    tail = f" [{number(p99_us / scale)}]" if p99_us is not None else ""
    return f"{number(median_us / scale)} {unit}{tail}"


# ---- Rows ----------------------------------------------------------------------------------------------------------

def library_of(row):
    return row["name"].partition(".")[0]


def case_of(row):
    return row["transport"], row["ranks"], row["bytes"]


def summary(transport, congestion, rounds):
    """One row out of the rows that a program printed, one per round."""
    medians = [r["median_us"] for r in rounds]
    median = statistics.median(medians)
    first = rounds[0]
    return {
        "name": first["name"], "transport": transport, "secure": False, "algo": first["algo"], "compress": "none",
        "dtype": "f32", "alloc": first["alloc"], "congestion": congestion, "ranks": first["ranks"],
        "bytes": first["bytes"], "rounds": len(rounds), "calls": sum(r["calls"] for r in rounds),
        "median_us": median, "p99_us": statistics.median(r["p99_us"] for r in rounds),
        "min_us": min(r["min_us"] for r in rounds), "spread": (max(medians) - min(medians)) / median,
        "bytes_per_s": first["bytes"] / median * 1e6,
        "rss_over_bytes": max(r["rss_over_bytes"] for r in rounds),
        "pss_over_bytes": max(r["pss_over_bytes"] for r in rounds),
        "same_bits": all(r["same_bits"] for r in rounds), "ok": all(r["ok"] for r in rounds),
    }


def better_congestion(rows):
    """Of the same program under several congestion controls only the fastest stays; right results come first."""
    best = {}
    for row in sorted(rows, key=lambda r: (not r["ok"], r["median_us"])):
        best.setdefault((*case_of(row), row["name"], row["alloc"]), row)
    return sorted(best.values(), key=lambda r: (*case_of(r), r["name"], r["alloc"]))


class Results:
    def __init__(self, rows):
        self.rows = better_congestion(rows)
        for row in self.rows:
            best = self.best_peer(*case_of(row))
            if row["name"] == "hearth" and best:
                row.update(vs=best["name"], vs_median_us=best["median_us"], ratio=row["median_us"] / best["median_us"])

    def best_peer(self, transport, ranks, count, library=None):
        found = [r for r in self.rows if case_of(r) == (transport, ranks, count) and r["name"] != "hearth" and r["ok"]
                 and library in (None, library_of(r))]
        return min(found, key=lambda r: r["median_us"], default=None)

    def hearth(self, transport, ranks, count, alloc="private"):
        return next((r for r in self.rows if case_of(r) == (transport, ranks, count) and r["name"] == "hearth"
                     and r["alloc"] == alloc), None)

    def tables(self):
        return sorted({(r["transport"], r["ranks"]) for r in self.rows})

    def sizes(self, transport, ranks):
        return sorted({r["bytes"] for r in self.rows if (r["transport"], r["ranks"]) == (transport, ranks)})


# ---- Tables: a list of lines, each a list of cells; the first is the head -----------------------------------------------

def cell(row):
    if not row:
        return "-"
    text = time_text(row["median_us"], row["p99_us"]) + f" ±{row['spread'] * 100:.0f}%"
    if library_of(row) == "gloo":
        text += f" {row['algo']}"
    return text + ("" if row["same_bits"] else " *") + ("" if row["ok"] else " WRONG")


def times_table(results, transport, ranks):
    allocs = ["private", "shared"] if any(r["alloc"] == "shared" for r in results.rows
                                          if (r["transport"], r["ranks"]) == (transport, ranks)) else ["private"]
    peers = [p for p in list(LIBRARIES)[1:] if any(library_of(r) == p and r["transport"] == transport
                                                   for r in results.rows)]
    head = ["size", *("Hearth" if a == "private" else f"Hearth, {a}" for a in allocs), *(LIBRARIES[p] for p in peers),
            "best peer", *("best peer / Hearth" if a == "private" else a for a in allocs)]
    lines = [head]
    for count in results.sizes(transport, ranks):
        own = [results.hearth(transport, ranks, count, a) for a in allocs]
        best = results.best_peer(transport, ranks, count)
        lines.append([size_text(count), *map(cell, own),
                      *(cell(results.best_peer(transport, ranks, count, p)) for p in peers),
                      best["name"] if best else "-",
                      *(f"{best['median_us'] / o['median_us']:.2f}" if o and best else "-" for o in own)])
    return lines


def targets_table(results):
    lines = [["case", "against", "at least", "measured", "holds"]]
    for t in TARGETS:
        if (t.transport, t.ranks) not in results.tables() or t.bytes not in results.sizes(t.transport, t.ranks):
            continue
        transport, library = t.against or (t.transport, None)
        peer = results.best_peer(transport, t.ranks, t.bytes, library)
        own = results.hearth(t.transport, t.ranks, t.bytes, t.alloc)
        case = f"{t.transport}, N={t.ranks}, {size_text(t.bytes)}" + (", shared" if t.alloc == "shared" else "")
        who = f"{peer['name']} ({peer['transport']}) {time_text(peer['median_us'])}" if peer else "-"
        ratio = peer["median_us"] / own["median_us"] if peer and own and own["ok"] else None
        lines.append([case, who, f"{t.factor:g} x", f"{ratio:.2f} x" if ratio else "-",
                      "-" if ratio is None else "yes" if ratio >= t.factor else "NO"])
    return lines


def memory_table(results):
    """Beyond the buffer. Of shared buffers every rank maps all, so there each page is split among its users (Pss)."""
    lines = [["case", *LIBRARIES.values(), f"Hearth at most {size_text(MEMORY_LIMIT)}"]]
    for transport, ranks in results.tables():
        for alloc in ("private", "shared"):
            own = results.hearth(transport, ranks, MEMORY_BYTES, alloc)
            key = "rss_over_bytes" if alloc == "private" else "pss_over_bytes"
            peers = [results.best_peer(transport, ranks, MEMORY_BYTES, p) for p in list(LIBRARIES)[1:]]
            if not own and (alloc == "shared" or not any(peers)):
                continue
            lines.append([f"{transport}, N={ranks}" + (", shared (Pss)" if alloc == "shared" else ""),
                          *(f"{row[key] / MIB:.1f} MiB" if row else "-" for row in [own, *peers]),
                          "-" if not own else "yes" if own[key] <= MEMORY_LIMIT else "NO"])
    return lines


# ---- Showing -------------------------------------------------------------------------------------------------------

def as_text(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in lines)


def as_markdown(lines):
    marked = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in marked)


def about(facts):
    machine = facts["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return [f"{machine['cpu']}, {machine['cores']} cores, {size_text(machine['memory_bytes'] // MIB * MIB)}; "
            f"{machine['kernel']}; {facts['date']}.",
            f"{versions}. System's congestion control: {facts['congestion']}."]


def whole(results, facts, markdown):
    """The report, as text for a terminal or as Markdown."""
    show = as_markdown if markdown else as_text
    title = (lambda text: f"### {text}") if markdown else (lambda text: text)
    parts = ["\n".join(about(facts)),
             "Median of the rounds' medians [median of the rounds' 99th percentiles] ± how far the rounds lie apart. "
             "An asterisk: ranks ended with different bits."]
    for transport, ranks in results.tables():
        parts += [title(f"{transport}, {ranks} ranks"), show(times_table(results, transport, ranks))]
    targets, memory = targets_table(results), memory_table(results)
    if len(targets) > 1:
        parts += [title("Targets"), show(targets)]
    if len(memory) > 1:
        parts += [title(f"Resident memory beyond the buffer, {size_text(MEMORY_BYTES)}"), show(memory)]
    return "\n\n".join(parts) + "\n"
