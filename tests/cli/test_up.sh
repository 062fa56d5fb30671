#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Drives hearth up, bench cluster and demo --cluster: several nodes of one cluster on this machine's loopback, each with
# a config folder of its own. They find each other by a seed, so no multicast is needed.
set -um # jobs in the background must hear SIGINT
. "$(dirname "$0")/../support/tap.sh"
support=$(realpath "$(dirname "$0")/../support")
cd "$scratch" || exit 1
data=/usr/share/datasets/fashion-mnist
pids=()
end_all() {
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    rm -rf "$scratch"
}
trap end_all EXIT
unset XDG_CONFIG_HOME HEARTH_PEERS
export HOME=$scratch/home HEARTH_MDNS=""
mkdir "$HOME"

# run NODE ARGUMENTS...: hearth as that node; its exit code is kept in $code.
run() {
    XDG_CONFIG_HOME=$scratch/$1 timeout 100 "$hearth" "${@:2}" >out 2>err </dev/null
    code=$?
    return $code
}

# start NODE ARGUMENTS...: hearth up as that node, in the background; lines go to NODE.log, its id to $pid.
start() {
    local node=$1
    shift
    XDG_CONFIG_HOME=$scratch/$node "$hearth" up --bind 127.0.0.1 "$@" >"$scratch/$node.log" 2>&1 </dev/null &
    pid=$!
    pids+=("$pid")
}

until_true() { # for a minute: the machine may be busy
    for _ in $(seq 600); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}

# logged COUNT WORDS FILES...: each of the files has at least so many lines with the words.
logged() {
    local count=$1 words=$2 file
    shift 2
    for file; do
        [ "$(grep -c -- "$words" "$scratch/$file.log")" -ge "$count" ] || return 1
    done
}

gone() {
    ! kill -0 "$1" 2>/dev/null
}

# ---- usage ---------------------------------------------------------------------------------------------------------

fails 1 "hearth init NAME" none up
fails 1 "hearth join" none bench cluster
[ -d $data ] && fails 1 "belongs to no cluster yet" none demo --cluster
fails 2 "--job, --min and --once are about a program" none up --once
fails 2 "--job, --min and --once are about a program" none up --job x
fails 2 "--job, --min and --once are about a program" none up --min 2
fails 2 "there is no program after --" none up --
fails 2 "--allow-demo is for a machine without a program" none up --allow-demo -- true
fails 2 "--health 'fast' is not accepted" none up --health fast
fails 2 "--sizes 6 is not a multiple of 4" none bench cluster --sizes 6
fails 2 "--compress:" none bench cluster --compress nonsense
fails 2 "--codec means nothing to the race; it goes with --cluster" none demo --codec int8
fails 2 "--local and --cluster" none demo --local --cluster
HEARTH_PLAIN=1 fails 2 "always encrypted" none up

# ---- three nodes ---------------------------------------------------------------------------------------------------

for node in a b c d; do
    run "$node" "$([ "$node" = a ] && echo init || echo join)" "$(cat "$scratch/token" 2>/dev/null || echo home)"
    [ "$node" = a ] && grep -oE 'hearth1-[A-Za-z0-9._-]+-[0-9a-z]+' out | head -n 1 >"$scratch/token"
done
[ $code -eq 0 ]
report $? "four nodes have the secret"

fails 2 "--seeds: seed 2" a up --bind 127.0.0.1 --seeds 127.0.0.1,::::x
HEARTH_SEEDS=unix:x fails 2 "HEARTH_SEEDS: seed 1" a up --bind 127.0.0.1
HEARTH_HEALTH=x fails 2 "HEARTH_HEALTH is \"x\"" a up --bind 127.0.0.1

port=$(python3 -B "$support/ports.py")
export HEARTH_SEEDS=127.0.0.1:$port
start a --port "$port"
a=$pid
start b
b=$pid
start c
c=$pid
until_true logged 1 ": 3 members" a b c
report $? "three nodes are in one view"

[ -d $data ] && fails 1 "hearth up --allow-demo" d demo --cluster --bind 127.0.0.1

run d bench cluster --bind 127.0.0.1 --sizes 4K,1M --repeat 3
[ $code -eq 0 ] && grep -q "among 4 machines" out && [ "$(grep -c " yes$" out)" -eq 2 ]
report $? "bench cluster measures among all of them, and the results are right"
run d bench cluster --bind 127.0.0.1 --sizes 64K --repeat 2 --compress int8 --json
[ $code -eq 0 ] && grep -q '"ok": true' out && grep -q '"ranks": 4' out && grep -q '"compress": "int8"' out
report $? "again, compressed, as JSON"
until_true logged 2 "measured for .* with 4 machines" a b c
report $? "the others say so"
until_true eval '[ "$(grep -c " left .*: its visit as a guest is over" "$scratch/a.log")" -ge 2 ]' && ! grep -h unhealthy "$scratch"/[abc].log >err
report $? "a guest that leaves is no alarm"
sleep 1 # its address would be dialled by now
run a status
[ $code -eq 0 ] && ! grep -q "is no member" out
report $? "and its address is not complained about"
grep -q "transport auto, encrypted" out
report $? "status names the transport"
run a status --json
python3 -c 'import json, sys; t = json.load(open(sys.argv[1]))["traffic"]; sys.exit(min(t["sent"], t["received"]) < 4 << 20)' out
report $? "traffic counts what groups have moved"
grep -q '"bottleneck_mbit": null' out
report $? "paths inside of one machine are no bottleneck, and no number stands for that"

fails 2 "several nodes are called '$(hostname)'" a trust remove "$(hostname)"
run a status --json
other=$(python3 -c 'import json, sys; print([m["short"] for m in json.load(open(sys.argv[1]))["view"]["members"] if m["state"] != "self"][0])' out)
run d trust remove "$other"
[ $code -eq 2 ] && grep -q "where no node runs" err
report $? "without a node there is nobody to ask for short forms"

# seen_left FILE: how often that node has seen one leave.
seen_left() { grep -c " left .*: it left" "$scratch/$1.log"; }
start d --job lonely --min 9 -- true
d=$pid
until_true logged 1 ": 4 members" d
before=$(seen_left a)
kill -INT "$d"
wait "$d"
[ $? -eq 130 ]
report $? "Ctrl-C leaves a job that waits for more machines"
until_true eval '[ "$(seen_left a)" -gt "$before" ]'
report $? "the others see that it left, and was not lost"
HEARTH_SEEDS="" XDG_CONFIG_HOME=$scratch/d "$hearth" bench cluster --bind 127.0.0.1 >out 2>&1 </dev/null &
d=$!
pids+=("$d")
answers() { XDG_CONFIG_HOME=$scratch/d "$hearth" status >/dev/null 2>&1; }
until_true answers
kill -INT "$d"
wait "$d"
[ $? -eq 130 ]
report $? "and a measurement that waits for others"

# While three are there, whoever of them leads: of two, only the leader goes on alone after a death.
before=$(grep -c " left " "$scratch/a.log")
kill -KILL "$b"
until_true logged $((before + 1)) " left " a
report $? "the others see a death"
before=$(seen_left a)
kill -INT "$c"
wait "$c"
[ $? -eq 0 ]
report $? "Ctrl-C leaves, with exit code 0"
until_true eval '[ "$(seen_left a)" -gt "$before" ]'
report $? "the others see that it left"
kill -TERM "$a"
wait "$a"
[ $? -eq 0 ]
report $? "SIGTERM leaves too"

XDG_CONFIG_HOME=$scratch/a TERM=xterm python3 - "$hearth" up --bind 127.0.0.1 --port "$port" <<'PYTHON'
import os, pty, re, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
text = b""
while b"1 member" not in text:
    text += os.read(terminal, 4096)
os.write(terminal, b"\x03")
try:
    while more := os.read(terminal, 4096):
        text += more
except OSError:  # it has ended
    pass
sys.exit(not re.search(rb"\r\x1b\[\d+A\x1b\[J$", text) or os.waitpid(pid, 0)[1])
PYTHON
report $? "Ctrl-C at a terminal wipes the whole table"

# ---- the demo ------------------------------------------------------------------------------------------------------

if [ -d $data ]; then
    start a --port "$port" --allow-demo
    a=$pid
    start b --allow-demo
    b=$pid
    start c
    c=$pid
    until_true logged 1 ": 3 members" a b c
    run d demo --cluster --bind 127.0.0.1 --target 50 --steps 20 --report "$scratch/report.html"
    [ $code -eq 0 ] && grep -q "^3 machines train" out && grep -q "replicas are identical" out &&
        grep -q "<h1>3 machines train one model</h1>" "$scratch/report.html"
    report $? "the demo trains on the machines that allow it, and on no other"
    until_true logged 1 "trained the demo for .* with 3 machines" a b && ! logged 1 "trained" c
    report $? "they say so"
    : >"$scratch/demo.log"
    XDG_CONFIG_HOME=$scratch/d timeout 100 "$hearth" demo --cluster --bind 127.0.0.1 --codec none --target 99 --steps 60 \
        --report "$scratch/report.html" >"$scratch/demo.log" 2>"$scratch/demo_err.log" </dev/null &
    d=$!
    pids+=("$d")
    until_true grep -q "3 machines train" "$scratch/demo.log"
    kill -KILL "$b"
    wait "$d"
    grep -q "is lost; plain begins again with 2 machines" "$scratch/demo_err.log" && grep -q "The 2 replicas are identical" "$scratch/demo.log" &&
        ! grep -q "tag " "$scratch/demo_err.log"
    report $? "the demo goes on with the others when a machine is lost, and names it"
    kill -INT "$a" "$c"
    wait "$a" "$c"
fi

# ---- a program -----------------------------------------------------------------------------------------------------

for node in a b c; do
    start $node $([ $node = a ] && echo --port "$port") --min 3 --job x -- sh -c \
        'echo "$HEARTH_RANK of $HEARTH_WORLD_SIZE at $HEARTH_RENDEZVOUS job $HEARTH_JOB"; exit $HEARTH_RANK'
    eval "$node=$pid"
done
wait "$a"
codes=$?
wait "$b"
codes="$codes $?"
wait "$c"
codes="$codes $?"
[ "$(tr ' ' '\n' <<<"$codes" | sort | tr '\n' ' ')" = "0 1 2 " ]
report $? "each node runs the program once, and exits with its code"
[ "$(cat "$scratch"/[abc].log | grep -oE '\[[0-9]\] [0-9] of 3 at [0-9.:]+ job x' | sort -k 2 | cut -d ' ' -f 1-4 | tr '\n' ' ')" = \
    "[0] 0 of 3 [1] 1 of 3 [2] 2 of 3 " ] &&
    [ "$(cat "$scratch"/[abc].log | grep -oE ' of 3 at [0-9.:]+ job' | sort -u | wc -l)" -eq 1 ]
report $? "with its rank, and the same place to meet"
names="$(hostname) (rank 1, exit code 1) and $(hostname) (rank 2, exit code 2)"
grep -qF "job x has ended; failed: $names" "$scratch/a.log" && grep -qF "job x has ended; failed: $names" "$scratch/b.log"
report $? "and names the machines whose programs failed"

# begin NODE: a program that runs until it is ended, when three nodes are there.
begin() {
    start "$1" $([ "$1" = a ] && echo --port "$port") --min 3 --job y -- sh -c \
        'echo "begins as $HEARTH_RANK of $HEARTH_WORLD_SIZE"; sleep 77'$$' & wait'
}
begin a
a=$pid
begin b
b=$pid
begin c
c=$pid
until_true logged 1 "begins as . of 3" a b c
kill -KILL "$b"
until_true logged 1 "$(hostname) is lost; the program starts again" a c && ! logged 1 "tag " a
report $? "a lost machine is seen by the others"
begin b
b=$pid
until_true logged 2 "begins as . of 3" a c && until_true logged 1 "begins as . of 3" b
report $? "they start the program again when enough are there"
start d --min 2 --job y -- sh -c 'echo "begins as $HEARTH_RANK of $HEARTH_WORLD_SIZE"; sleep 77'$$' & wait'
d=$pid
until_true logged 1 "it runs with 3 members" d
report $? "who comes later is told that it runs"
kill -KILL "$c"
until_true logged 3 "begins as . of 3" a && until_true logged 1 "begins as . of 3" d
report $? "and takes the place of a machine that is lost"
c=$d
kill -INT "$b"
kill -INT "$a" "$c"
until_true gone "$a" && until_true gone "$c"
until_true eval "! pgrep -f 'sleep 77$$' >/dev/null"
report $? "Ctrl-C ends the program, and nothing is left behind"

start a --port "$port" --min 2 --once -- sh -c 'echo begins; sleep 78'$$' & wait'
a=$pid
start b --min 2 --once -- sh -c 'echo begins; sleep 78'$$' & wait'
b=$pid
until_true logged 1 "begins" a b
kill -KILL "$b"
wait "$a"
[ $? -eq 143 ]
report $? "with --once it is over then"

finish
