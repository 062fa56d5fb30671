#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Drives the hearth command as a user would: usage errors, help, and the JSON and numbers of every subcommand.
set -u
. "$(dirname "$0")/../support/tap.sh"

# json NAME CHECK ARGUMENTS...: exit code 0 and one JSON object for which the Python expression CHECK holds; it sees
# the object as d and its results as rows.
json() {
    local name=$1 check=$2
    shift 2
    run "$@" --json && python3 -m json.tool "$scratch/out" "$scratch/again" 2>>"$scratch/err" &&
        python3 - "$scratch/out" "$check" 2>>"$scratch/err" <<'PYTHON'
import json, sys
d = json.load(open(sys.argv[1]))
rows = d["results"]
assert set(d) == {"command", "machine", "results"}, set(d)
assert {"cpu", "cores", "memory_bytes", "kernel", "compiler"} <= set(d["machine"]), d["machine"]
assert rows, "no rows"
assert eval(f"({sys.argv[2]})"), rows[:3]
PYTHON
    report $? "$name"
}

# ---- usage ---------------------------------------------------------------------------------------------------------

refuses "there is no command 'frobnicate'" frobnicate
refuses "did you mean 'plan'" plna
refuses "usage:"
refuses "there is no flag --rnaks; did you mean --ranks?" plan --rnaks 4
refuses "there is no flag --colour" sim --colour red
refuses "--ranks '0' is not accepted" plan --ranks 0
refuses "--ranks '0' is not accepted" sim --ranks 0
refuses "--ranks '0' is not accepted" demo --ranks 0
refuses "--ranks '0' is not accepted" bench allreduce --ranks 0
refuses "--ranks '-1' is not accepted" sim --ranks=-1
refuses "--ranks needs a value" sim --ranks
refuses "--bytes '12Q' is not accepted" sim --bytes 12Q
refuses "--bytes '1.3' is not accepted" sim --bytes 1.3
refuses "--bytes '0' is not accepted" plan --bytes 0
refuses "--bytes '4,,8' is not accepted" bench allreduce --bytes 4,,8
refuses "--bytes 6 is not a whole number of f32 elements" bench allreduce --bytes 6
refuses "--rate '1' is not accepted" sim --rate 1
refuses "--rtt '5' is not accepted" sim --rtt 5
refuses "--params '1.5' is not accepted" sim --params 1.5
refuses "powers of 1000" sim --params 1G
refuses "at \"topq:0.1\": no such codec" sim --compress "int8;topq:0.1"
refuses "powersgd:RANK" sim --compress powersgd --json
refuses "--compress is for all_reduce, not for broadcast" sim --compress all --kind broadcast
refuses "--compress is for f32, f64, f16 and bf16, not for i32" sim --compress all --dtype i32
refuses "did you mean ring?" plan --algo rnig
refuses "it goes by direct" plan --kind gather --algo ring
refuses "with --ranks 4 they go from 0 to 3" plan --ranks 4 --rank 4
refuses "with --ranks 4 they go from 0 to 3" plan --ranks 4 --kind broadcast --root 4
refuses "--hosts does not fit --ranks 8" plan --ranks 8 --hosts 5
refuses "--transport udp is not there; this version has: mem, tcp, quic, shm" bench allreduce --transport udp
refuses "--rtt is for --transport mem" bench allreduce --transport tcp --rtt 1ms
refuses "there is no benchmark 'gather'" bench gather
refuses "smaller than --ranks" demo --batch 2
refuses "--ranks 1 has no peer to send to" demo --ranks 1
refuses "--rate '100' is not accepted" demo --rate 100
refuses "--target 200 is more than 100 percent" demo --target 200
refuses "a line of the demo has 1 Mbit/s to 1 Tbit/s" demo --rate 1kbit
refuses "above 10: training would not converge" demo --lr 1000000000
refuses "--rate means nothing to --local; it goes with the race" demo --local --rate 5mbit
refuses "--ranks means nothing to --cluster" demo --cluster --ranks 3
refuses "--epochs means nothing to the race; it goes with --local" demo --epochs 2
refuses "--params and --bytes both" sim --params 1M --bytes 1M
refuses "there is no flag -x here; a command comes first" -x
! grep -q "did you mean" "$scratch/err"
report $? "and suggests nothing"
for wrong in "up" "bench cluster" "demo --cluster" "run -n 2"; do
    refuses "--bind typo: 'typo' is neither an interface nor an address of this machine" $wrong --bind typo $([ "${wrong%% *}" = run ] && echo -- true)
done

for command in demo plan sim "bench allreduce" "bench messages" "bench cluster"; do
    run $command --help && grep -q "^usage: hearth $command" "$scratch/out" && grep -q "^example:" "$scratch/out" &&
        [ ! -s "$scratch/err" ]
    report $? "hearth $command --help has usage and an example"
done
run help sim && grep -q "^usage: hearth sim" "$scratch/out"
report $? "hearth help sim is hearth sim --help"
run status --help && grep -q "3 no node runs here" "$scratch/out" && run doctor --help && grep -q "1 there is a warning" "$scratch/out" &&
    run up --help && grep -qF "hearth up [options] [-- PROGRAM [ARGUMENTS]]" "$scratch/out"
report $? "help has the exit codes of the command, and what may be left out"
run run -n2 printf "%s\n" x--help && [ "$(grep -c "x--help$" "$scratch/out")" -eq 2 ]
report $? "run takes -n2, and a program without --"
run sim --ranks 2 --bytes 1.5MB --rate 100Mbps && grep -q "1.50 MiB .* 100 Mbit/s" "$scratch/out"
report $? "sizes and rates as people type them"
run --version && grep -qx "hearth [0-9]*\.[0-9]*\.[0-9]*" "$scratch/out"
report $? "hearth --version"

# ---- plan ----------------------------------------------------------------------------------------------------------

json "plan of a ring: moves, bytes, hops and time of every rank" \
    'len(rows) == 8 and all(r["hops"] == 14 and r["bytes_sent"] == 2 * 7 * 1048576 // 8 and r["predicted_us"] > 0
     and r["model_us"] > 0 and len(r["moves"]) == 15 and r["rank"] == i for i, r in enumerate(rows))' \
    plan --kind all_reduce --algo ring --ranks 8
json "plan of one rank" 'len(rows) == 1 and rows[0]["rank"] == 3 and rows[0]["moves"][0]["move"] == "send"' \
    plan --algo ring --ranks 8 --rank 3
json "plan of many ranks sums them up" 'len(rows) == 1 and rows[0]["hops"] <= 20 and rows[0]["messages"] > 0' \
    plan --algo tree --ranks 1000 --bytes 64K
json "the selector's table names an algorithm for every size" \
    'len(rows) == 15 and all(r["model_us"] == min(r["model_us_by_algo"].values()) for r in rows)' plan --table
for kind in all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all scan exclusive_scan barrier; do
    json "every algorithm of $kind runs dry" 'all(r["ok"] for r in rows)' sim --kind $kind --ranks 6 --hosts 4,2
done
run plan --algo ring --ranks 4 --dot && grep -q "^digraph" "$scratch/out" && grep -q "3 -> 0" "$scratch/out"
report $? "plan --dot prints a graph"
run plan --ranks 4 && grep -q "auto chose" "$scratch/out" && grep -q "0>1" "$scratch/out" &&
    ! grep -q "$(printf '\033')" "$scratch/out"
report $? "plan says what auto chose, draws the steps, without colour in a pipe"

# ---- sim -----------------------------------------------------------------------------------------------------------

json "sim of 1000 ranks: the ring is within 3 % of 2(N-1)(alpha + bytes/(N*rate))" \
    'abs(rows[0]["median_us"] / (2 * 999 * (100 + 104857600 / (1000 * 125))) - 1) < 0.03 and rows[0]["messages"] > 0
     and 0 < rows[0]["share"] <= 1 and rows[0]["algo"] == "ring" and rows[0]["bytes"] == 104857600' \
    sim --ranks 1000 --bytes 100M --rate 1gbit --rtt 200us --algo ring
json "sim of 10,000 ranks by tree" 'rows[0]["ok"] and rows[0]["hops"] <= 28' sim --ranks 10000 --algo tree
json "sim leaves out what is too much, and says why" \
    '[r for r in rows if r["algo"] == "ring"][0]["skipped"] and [r for r in rows if r["algo"] == "tree"][0]["ok"]' \
    sim --ranks 2000 --bytes 4K --messages-max 100000

json "sim --params is a number of elements" 'all(r["bytes"] == 6000000 for r in rows)' sim --params 1.5M --ranks 4
json "sim --compress prices every kind of codec; plain takes bytes / rate" \
    'len(rows) >= 8 and {r["codec"].split(":")[0].split(",")[0] for r in rows} >=
     {"none", "bf16", "int8", "onebit", "topk", "randomk", "powersgd"}
     and rows[0]["codec"] == "none" and rows[0]["ratio"] == 1 and abs(rows[0]["total_us"] / 32e6 - 1) < 0.02
     and all(r["params"] == 10**9 and r["plain_us"] == rows[0]["total_us"] and r["total_us"] > 0
             and abs(r["ratio"] * r["total_us"] / r["plain_us"] - 1) < 1e-6
             and max(r["wire_us"], r["kernel_us"]) <= r["total_us"] * 1.0001 for r in rows)
     and [r["ratio"] for r in rows if r["codec"] == "int8"][0] > 3.5
     and [r["ratio"] for r in rows if r["codec"].startswith("topk")][0] > 10' \
    sim --params 1B --ranks 2 --rate 1gbit --compress all
json "sim --compress takes texts of codecs, auto too" \
    '[r["codec"] for r in rows] == ["int8", "auto:bf16,topk:0.01"] and rows[1]["way"] != "plain"' \
    sim --params 25M --ranks 4 --rate 100mbit --compress "int8;auto:bf16,topk:0.01"
json "sim --compress: auto stays plain on a fast network" 'rows[0]["way"] == "plain" and rows[0]["ratio"] == 1' \
    sim --params 25M --ranks 4 --rate 400gbit --compress auto:bf16,int8,topk:0.01
run sim --params 1B --ranks 2 --compress all && grep -q "layers of 4096 x 4096 (59 of them)" "$scratch/out" &&
    grep -q "speed-up" "$scratch/out"
report $? "sim --compress says what it assumes"

# ---- bench ---------------------------------------------------------------------------------------------------------

json "bench allreduce: rows have the keys of all benchmarks, results are right" \
    'len(rows) == 3 and all(r["ok"] and r["vs"] == "memcpy" and r["ratio"] > 0 and r["bytes_sent"] > 0
     and r["p99_us"] >= r["median_us"] > 0 and r["bytes_per_s"] > 0 and r["ranks"] == 4 and r["transport"] == "mem"
     and {"name", "secure", "algo", "compress", "bytes"} <= set(r) for r in rows)' \
    bench allreduce --transport mem --ranks 4 --bytes 4,1K,64K --dtype f32 --algo auto --iters 20
for transport in mem tcp shm; do
    json "bench allreduce over $transport at a rate is right, and not faster than that" \
        'all(r["ok"] and r["median_us"] > 10000 and r["transport"] == "'$transport'" for r in rows)' \
        bench allreduce --transport $transport --ranks 2 --bytes 256K --rate 200mbit --iters 2
done
for codec in none bf16 int8 topk:0.01,values=int8 randomk:0.01 powersgd:2; do
    json "bench allreduce by $codec: the same bits on all nodes" \
        'len(rows) == 2 and all(r["ok"] and r["vs"] == "plain" and r["bytes_sent"] > 0 and r["compress"] == "'$codec'"
         for r in rows)' \
        bench allreduce --ranks 3 --bytes 40K,256K --compress $codec --iters 1
done
refuses "no such codec" bench allreduce --compress zip
refuses "--compress is measured with --dtype f32" bench allreduce --bytes 64K --compress int8 --dtype f64
json "bench allreduce over a long way" 'all(r["ok"] and r["median_us"] > 1000 for r in rows)' \
    bench allreduce --ranks 2 --bytes 4,64K --rtt 2ms --iters 2
json "bench allreduce by each algorithm tells its hops" 'rows[0]["algo"] == "ring" and rows[0]["hops"] == 4' \
    bench allreduce --ranks 3 --bytes 64K --algo ring --iters 5
for dtype in f64 f16 bf16 i8 i32 i64 u8 u32 u64; do
    json "bench allreduce of $dtype is right" 'all(r["ok"] for r in rows)' \
        bench allreduce --ranks 3 --bytes 8,4104 --dtype $dtype --iters 3
done
for transport in mem tcp shm quic; do
    json "bench messages over $transport: half a round trip and one way, contents are right" \
        'len(rows) == 4 and [r["name"] for r in rows] == ["messages.trip", "messages.stream"] * 2
         and all(r["ok"] and r["ratio"] > 0 and r["p99_us"] >= r["median_us"] > 0 and r["per_s"] > 0
         and r["vs"] == {"mem": "memcpy", "shm": "memcpy"}.get("'$transport'", "sockets") for r in rows)' \
        bench messages --transport $transport --bytes 1,1M --iters 20
done
json "bench messages --calls: one caller and a window of calls, beside a round trip of messages" \
    'len(rows) == 2 and [r["window"] for r in rows] == [1, 8] and all(r["ok"] and r["vs"] == "messages" for r in rows)' \
    bench messages --calls --bytes 64 --window 8 --iters 20
json "bench messages over a long line" 'all(r["ok"] for r in rows) and 1000 < rows[0]["median_us"] < 10000' \
    bench messages --bytes 4 --rtt 2ms --iters 4
refuses "--window '65' is not accepted" bench messages --window 65
refuses "--rtt is for --transport mem" bench messages --transport shm --rtt 1ms
# kernels CHECK...: the same checks of the developers' program.
kernels() {
    local hearth=${HEARTH_BINARY_DIR:-build}/bench/bench_kernels
    "$@"
}
kernels run --help && grep -q "^usage: bench_kernels \[options\]" "$scratch/out"
report $? "bench_kernels --help has its own name"
kernels refuses "fits no kernel" --match nothing
kernels json "bench_kernels: names, and all equal to the scalar kernels" \
    '{"reduce.f32.sum", "reduce.bf16.sum", "reduce.u64.bxor", "convert.f32_bf16", "convert.f16_f32"} <=
     {r["name"] for r in rows} and sum(r["name"].startswith(("reduce.", "convert.")) for r in rows) == 62 and
     all(r["ok"] and r["ratio"] > 0 for r in rows) and all(r["median_us"] > 0 and r["bytes"] == 4096 for r in rows
     if r["vs"] == "memcpy" and r["name"] != "reference.sort")' --bytes 4K
kernels json "bench_kernels of codecs: beside memcpy and targets, and beside what others do" \
    '{"bf16.encode", "fp16.encode", "int8.encode_feedback", "int8.decode_reduce", "topk_chunk.encode_feedback",
      "topk.encode_feedback", "topk.encode_cold", "sparse.decode_add", "randomk.encode_feedback", "powersgd.step",
      "reference.nth_element", "reference.sort", "topk.bits"} <= {r["name"] for r in rows} and
     all(r["ok"] for r in rows) and all("speed_up" in r for r in rows if r["name"].startswith("reference.")) and
     next(r["target"] for r in rows if r["name"] == "int8.encode_feedback") == 2.2 and
     all(r["ratio"] <= r["target"] and r["entry_bits"] <= 17 for r in rows if r["name"] == "topk.bits")' \
    --bytes 256K
kernels json "bench_kernels by several threads: how they scale, beside memcpy" \
    'len(rows) == 7 and all(r["ok"] for r in rows) and all(r["threads"] == 3 and r["scaling"] > 0 and
     r["vs_scaling"] > 0 for r in rows if r["name"] != "topk.encode_feedback")' \
    --bytes 1M --match encode_feedback --threads 3
kernels refuses "--threads" --threads 0
kernels json "bench_kernels of the scalar set" 'len(rows) == 1 and all(r["set"] == "scalar" for r in rows)' \
    --bytes 4K --set scalar --match f32.sum
kernels json "bench_kernels, codecs of the scalar set" 'len(rows) == 1 and all(r["set"] == "scalar" and r["ok"] for r in rows)' \
    --bytes 4K --set scalar --match int8.encode_feedback

# ---- demo ----------------------------------------------------------------------------------------------------------

# A small set that can be learnt: the label is where the bright bar stands.
python3 - "$scratch" <<'PYTHON'
import gzip, random, struct, sys
random.seed(1)
for stem, count in (("train", 600), ("t10k", 200)):
    labels = [random.randrange(4) for _ in range(count)]
    images = bytes(200 + random.randrange(50) if x // 2 == label else random.randrange(60)
                   for label in labels for y in range(8) for x in range(8))
    with gzip.open(f"{sys.argv[1]}/{stem}-images-idx3-ubyte.gz", "wb") as f:
        f.write(struct.pack(">IIII", 0x803, count, 8, 8) + images)
    with open(f"{sys.argv[1]}/{stem}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 0x801, count) + bytes(labels))
PYTHON
json "demo --local: it learns, replicas are identical, and equal to a single node within rounding" \
    '[r["ok"] for r in rows if r["name"] == "demo.same"] == [True] * 3 and len({r["hash"] for r in rows if "hash" in r}) == 1
     and [r for r in rows if r["name"] == "demo.single"][0]["ok"]
     and [r for r in rows if r["name"] == "demo.epoch"][-1]["accuracy"] > 0.9
     and [r for r in rows if r["name"] == "demo.time"][0]["bytes_sent"] > 0' \
    demo --local --data "$scratch" --ranks 3 --batch 32 --epochs 4
run demo --local --data "$scratch" --ranks 4 --batch 32 --epochs 1 && grep -q "identical, bit for bit" "$scratch/out" &&
    [ "$(grep -c '^  node' "$scratch/out")" -eq 4 ]
report $? "demo --local says so, with four hashes"

# race CHECK...: what a race needs to be short.
race=(demo --data "$scratch" --ranks 3 --batch 48 --rate 1gbit --target 90 --steps 60 --report "$scratch/report.html")
json "demo: every codec reaches the target, replicas are identical all the way, the others send less than plain" \
    '(lanes := [r for r in rows if r["name"] == "demo.lane"]) and [r["compress"] for r in lanes] == ["none", "int8",
     "topk:0.01", "powersgd:4", "topk:0.01,feedback=off"] and all(r["ok"] and r["checks"] == r["steps"] // 5 > 0
     and r["hash"] and r["network_us"] > 0 and r["compute_us"] > 0 for r in lanes)
     and all(r["reached"] and r["accuracy"] >= 0.9 for r in lanes[:4])
     and all(r["bytes_sent"] < lanes[0]["bytes_sent"] / 2.5 for r in lanes[1:])
     and len([r for r in rows if r["name"] == "demo.forecast"]) == 5
     and len([r for r in rows if r["name"] == "demo.point"]) == sum(r["checks"] for r in lanes)' "${race[@]}"
python3 - "$scratch/report.html" >"$scratch/out" 2>"$scratch/err" <<'PYTHON'
import html.parser, re, sys
text = open(sys.argv[1]).read()
void = {"meta", "br"}
class Check(html.parser.HTMLParser):
    open = []
    def handle_starttag(self, tag, attributes):
        if tag not in void:
            self.open.append(tag)
    def handle_startendtag(self, tag, attributes):
        pass
    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag
check = Check()
check.feed(text)
assert not check.open, check.open
assert "<script" not in text and "http" not in text and "nan" not in text and "inf" not in text
assert len(re.findall('<path class="line lane[0-4]" d="M[^"]*"><title>', text)) == 10, "a line for each codec in two charts"
PYTHON
report $? "the report is whole, needs no scripts and nothing from elsewhere, and has both charts"
run "${race[@]}" && grep -q "^Time to 90 %" "$scratch/out" && grep -q "identical, bit for bit" "$scratch/out" &&
    grep -q "feedback" "$scratch/out" && grep -q "hearth sim --params 1B" "$scratch/out"
report $? "demo shows times, hashes, what feedback is for, and how to price one's own case"
run "${race[@]}" --report "$scratch/none/report.html"
[ $? -eq 1 ] && grep -q "none/report.html: cannot be written" "$scratch/err"
report $? "demo names a report that cannot be written"
run demo --data /nonexistent
[ $? -eq 1 ] && grep -q "apt-get install dataset-fashion-mnist" "$scratch/err"
report $? "demo without data says what to install"
head -c 1000 /dev/zero >"$scratch/train-labels-idx1-ubyte"
run demo --data "$scratch"
[ $? -eq 1 ] && grep -q "train-labels-idx1-ubyte: not an IDX file" "$scratch/err"
report $? "demo names the damaged file"

finish
