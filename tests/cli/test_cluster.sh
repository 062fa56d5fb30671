#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Drives hearth status, nodes, topology and doctor, with a stand-in for the node that they ask.
set -u
. "$(dirname "$0")/../support/tap.sh"
support=$(realpath "$(dirname "$0")/../support")
cd "$scratch" || exit 1
desk=
trap '[ -z "$desk" ] || kill "$desk"; rm -rf "$scratch"' EXIT
unset HEARTH_BIND HEARTH_SEEDS HEARTH_PORT
export HEARTH_MDNS= # nothing is sent into the network of the machine that runs this
export XDG_CONFIG_HOME=$scratch/config
export XDG_RUNTIME_DIR=$scratch/run
folder=$XDG_CONFIG_HOME/hearth
mkdir -m 700 "$scratch/run" "$scratch/run/hearth"

# answers FILE: from now on a node seems to run here, which answers with the file.
answers() {
    if [ -n "$desk" ]; then kill "$desk" && wait "$desk" 2>/dev/null; fi
    desk=
    [ -n "$1" ] || return
    rm -f ready
    rm -f "$scratch/run/hearth/$place"
    python3 - "$scratch/run/hearth/$place" "$1" "$port" <<'PYTHON' &
import socket, sys
place, file, port = sys.argv[1:]
peer = socket.create_server(("127.0.0.1", int(port)))  # a member that can be reached
desk = socket.socket(socket.AF_UNIX)
desk.bind(place)
desk.listen(8)
open("ready", "w").close()
while True:
    asker, _ = desk.accept()
    with asker:
        question = asker.makefile().readline()
        text = open(file, "rb").read()
        asker.sendall(b"ok %d\n" % len(text) + text if question == "status\n" else b"no such question\n")
PYTHON
    desk=$!
    until_true [ -e ready ] || echo "# the stand-in did not start"
}

# finding VERDICT CHECK WORDS: hearth doctor has printed such a line.
finding() {
    grep -E "^$1  $2  +.*$3" out >/dev/null
    report $? "doctor: $1 $2 $3"
}

# ---- help and usage ------------------------------------------------------------------------------------------------

for command in status nodes topology doctor; do
    run $command --help
    [ $code -eq 0 ] && grep -q "^usage: hearth $command" out && grep -q -- --json out
    report $? "hearth $command --help"
    fails 2 "--frob" $command --frob
done
fails 2 "--dot and --json" topology --dot --json
fails 2 "--wait" nodes --wait -1

# ---- nobody runs here ----------------------------------------------------------------------------------------------

fails 3 "no node runs here: hearth up" status
fails 3 "no node runs here: hearth up" status --json
fails 3 "no node runs here: hearth up" topology
place=$(sed -n 's/.* at unix:@\(hearth-[0-9]*-[0-9a-f]*\)\.)$/\1/p' err)
[ -n "$place" ] && grep -qF "$folder" err
report $? "it says whom it has asked"
run nodes --wait 0
[ $code -eq 0 ] && grep -q "^No node was seen" out && grep -q "No node runs here" out && grep -q "hearth doctor" out
report $? "hearth nodes looks by itself"
HEARTH_SEEDS=unix:x fails 2 "HEARTH_SEEDS" nodes --wait 0
run nodes --wait 0 --json
[ $code -eq 0 ] && python3 -c 'import json; d = json.load(open("out")); assert d["running"] is False and d["nodes"] == []' 2>err
report $? "hearth nodes --json"
(
    unset XDG_CONFIG_HOME
    HOME=$scratch/elsewhere run status
    [ $code -eq 3 ] && grep -qF "$scratch/elsewhere/.config/hearth" err && ! grep -qF "$place" err
)
report $? "another config folder is another node"

# ---- a node answers ------------------------------------------------------------------------------------------------

port=$(python3 -B "$support/ports.py")
cat >status.json <<JSON
{"version": "9.9.9", "cluster": {"name": "lab", "namespace": "00112233445566778899aabbccddeeff"},
 "self": {"id": "aa", "short": "k7f3-9qwe-2xyz", "instance": "1f", "name": "desk", "port": 52417, "transport": "auto", "plain": false},
 "view": {"instance": "c1", "epoch": 3, "term": 1, "leader": 1, "state": "member", "why": "", "members": [
  {"rank": 0, "id": "aa", "short": "k7f3-9qwe-2xyz", "name": "desk", "state": "self", "addresses": ["127.0.0.1:52417"]},
  {"rank": 1, "id": "bb", "short": "m3aa-bbbb-cccc", "name": "nas", "state": "healthy", "addresses": ["127.0.0.1:$port", "[::1]:1"], "latency_us": 210},
  {"rank": 2, "id": "cc", "short": "p9cc-dddd-eeee", "name": "laptop", "state": "healthy", "addresses": ["127.0.0.1:1"]},
  {"rank": 3, "id": "dd", "short": "r9cc-dddd-eeee", "name": "attic", "state": "unhealthy", "addresses": ["127.0.0.1:1"]}]},
 "links": [{"from": 0, "to": 1, "mbit": 940.5, "round_trip_us": 210, "loss": 0, "kind": "wire", "probes": 5, "age_s": 10},
  {"from": 1, "to": 0, "mbit": 938, "round_trip_us": 220, "loss": 0, "kind": "wire", "probes": 5, "age_s": 11}],
 "peers": [], "jobs": [], "order": [0, 1, 2, 3], "sites": [0, 0, 0, 0],
 "nodes": [{"id": "ee", "short": "zzzz-dddd-eeee", "name": "neighbour", "address": "192.0.2.9:52416", "cluster": "other", "namespace": "ff112233", "member": false, "why": ""},
  {"id": "ff", "short": "q1dd-dddd-eeee", "name": "cellar", "address": "192.0.2.5:52416", "cluster": "ours", "namespace": "00112233", "member": false, "why": "its key was revoked"}],
 "discovery": {"mdns": true, "text": "mdns works", "seeds": []}, "traffic": {"sent": 1, "received": 2}}
JSON
answers status.json
run status
[ $code -eq 0 ] && head -n 1 out | grep -q "^! attic is unhealthy$" && grep -q "leader nas" out && grep -q "^  *3  attic" out
report $? "hearth status"
run status --json
[ $code -eq 0 ] && python3 -c 'import json; assert json.load(open("out")) == json.load(open("status.json"))' 2>err
report $? "hearth status --json is what the node says"
run nodes
[ $code -eq 0 ] && grep -q "^neighbour .* other cluster  ff112233$" out && grep -q "^cellar .* not a member .* its key was revoked$" out
report $? "hearth nodes"
run nodes --json
[ $code -eq 0 ] && python3 -c 'import json; d = json.load(open("out")); assert d["running"] is True and len(d["nodes"]) == 2' 2>err
report $? "hearth nodes --json asks the node"
run topology
[ $code -eq 0 ] && grep -q "^4 members, 1 site$" out && grep -q "^ring  desk =940=> nas =?=> laptop" out && grep -q "slowest path: desk -> nas" out
report $? "hearth topology"
run topology --dot
[ $code -eq 0 ] && grep -q "^digraph hearth {$" out && grep -q "n0 -> n1 " out
report $? "hearth topology --dot"
if command -v dot >/dev/null; then
    dot -Tsvg out -o picture.svg 2>err
    report $? "which graphviz draws"
fi
run topology --json
[ $code -eq 0 ] && python3 -c 'import json; d = json.load(open("out")); assert d["bottleneck"]["mbit"] == 940.5 and d["order"] == [0, 1, 2, 3]' 2>err
report $? "hearth topology --json"
if [ -e /dev/full ]; then
    for command in status "status --json" nodes topology "topology --dot" doctor; do
        timeout 60 "$hearth" $command >/dev/full 2>err
        [ $? -gt 0 ] && grep -q "cannot write" err
        report $? "hearth $command into a full disk is an error"
    done
fi

run doctor
[ $code -eq 2 ]
report $? "doctor: the exit code is by the worst"
finding warn version "the node that runs here is 9.9.9"
finding pass port "52417, of the node that runs here$"
finding pass bind "the node that runs here tells others 127.0.0.1:52417 first, of 1 address$"
finding pass "peer nas" "healthy; reached at 127.0.0.1:$port, not at \[::1\]:1"
finding warn "peer laptop" "one direction only: it reaches us"
finding fail "peer attic" "not reached, at 127.0.0.1:1"
finding warn "peer cellar" "its key was revoked"
python3 - <<'PYTHON'
import json
status = json.load(open("status.json"))
status["view"]["members"] = status["view"]["members"][:2]
status["links"] = status["links"][:1]
json.dump(status, open("oneway.json", "w"))
PYTHON
answers oneway.json
run doctor
finding warn "peer nas" "one direction only: from here it is measured"
echo '[1, 2]' >wrong.json
answers wrong.json
fails 1 "no JSON object" status
echo '{"a": ' >wrong.json
fails 1 "no JSON object" topology
run doctor
[ $code -eq 2 ]
report $? "doctor: a node that answers nonsense"
finding fail node "does not answer as it should"
echo '{}' >wrong.json
for command in status nodes topology "topology --dot"; do
    run $command
    [ $code -eq 0 ]
    report $? "hearth $command: an object without anything in it is no accident"
done
answers ""

# ---- doctor --------------------------------------------------------------------------------------------------------

run doctor
[ $code -eq 1 ]
report $? "doctor: a machine without a secret gets a warning"
finding pass version "command and library"
finding pass folder "not there yet"
finding pass key "made on first use"
finding warn secret "in no cluster yet"
finding pass clock "UTC"
finding pass mdns "switched off"
finding pass "interface lo" "127.0.0.1"
finding pass "tcp 127.0.0.1" "reached"
finding pass "udp 127.0.0.1" "reached"
finding pass processor "core"
[ ! -e "$folder" ] && grep -q "fix: hearth init on one machine" out && tail -n 1 out | grep -qE "^[0-9]+ passed, [0-9]+ warnings?, 0 failed$"
report $? "doctor changes nothing, names the fix and counts"
run doctor --json
[ $code -eq 1 ] && python3 - 2>err <<'PYTHON'
import json
doc = json.load(open("out"))
assert doc["worst"] == "warn" and doc["command"] == "hearth doctor --json"
for row in doc["results"]:
    assert row["verdict"] in ("pass", "warn", "fail") and row["check"] and row["text"], row
    assert row["verdict"] == "pass" or row["fix"], row
assert len({row["check"].split()[0] for row in doc["results"]}) > 12
PYTHON
report $? "doctor --json"

"$hearth" id >/dev/null && "$hearth" init lab >/dev/null
run doctor
finding pass key "this node is "
finding pass secret "of the cluster 'lab'"
finding pass trust "0 nodes"
! grep -q hearth1- out
report $? "doctor shows no secret"
chmod 777 "$folder"
run doctor
[ $code -eq 2 ] && grep -qF "fix: chmod 700 $folder" out
report $? "doctor: a folder that others can write to fails, with the fix"
finding fail folder "others can write"
chmod 700 "$folder"
chmod 644 "$folder/node.key" "$folder/cluster"
run doctor
[ $code -eq 2 ] && [ "$(grep -c "chmod 600" out)" -eq 2 ]
report $? "doctor: files that others can read fail, with the fix"
finding fail key "node.key"
finding fail secret "cluster"
chmod 600 "$folder/node.key" "$folder/cluster"
"$hearth" trust remove "$("$hearth" id | sed -n 's/^node id  *//p')" >/dev/null
run doctor
finding warn trust "this node itself may not come"
HEARTH_PORT=70000 run doctor
finding fail environment "HEARTH_PORT"
HEARTH_BIND=nothing0 run doctor
finding fail bind "nothing0"
HEARTH_PLAIN=1 run doctor
finding warn secret "nothing is encrypted"

python3 - "$hearth" >out 2>err <<'PYTHON'
import os, random, socket, subprocess, sys
for kind, word in ((socket.SOCK_STREAM, "tcp"), (socket.SOCK_DGRAM, "udp")):
    with socket.socket(socket.AF_INET, kind) as taken:
        for port in random.sample(range(20000, 30000), 50):  # none that the system gives to others meanwhile
            try:
                taken.bind(("0.0.0.0", port))
                break
            except OSError:
                continue
        if word == "tcp":
            taken.listen()
        told = subprocess.run([sys.argv[1], "doctor"], env=dict(os.environ, HEARTH_PORT=str(port)), capture_output=True, text=True).stdout
    line = [x for x in told.splitlines() if x.startswith("warn  port ")]
    assert line and f"{word} {port} is taken" in line[0], told
PYTHON
report $? "doctor: a port that another program has"
(
    ulimit -n 200
    run doctor
    grep -qE "^warn  descriptors +only 200" out
)
report $? "doctor: few descriptors"

# firewall NAME SCRIPT: a program of this name that prints something comes first.
firewall() {
    rm -rf tools && mkdir tools
    printf '#!/bin/sh\n%s\n' "$2" >"tools/$1"
    chmod 755 "tools/$1"
    [ "$1" = nft ] || { printf '#!/bin/sh\nexit 1\n' >tools/nft && chmod 755 tools/nft; }
    PATH=$scratch/tools:$PATH run doctor
}
if [ "$(id -u)" -eq 0 ]; then # others see less where ufw is on
    firewall nft 'echo "table inet filter {"; echo "  chain input {"; echo "    type filter hook input priority 0; policy drop;"; echo "  }"; echo "}"'
    finding warn firewall "nft: what no rule lets in stays out"
    grep -qF "nft insert rule inet filter input tcp dport 52415-52431 accept" out
    report $? "doctor: the two rules to add"
    firewall nft 'echo "table inet filter {"; echo "  chain input {"; echo "    type filter hook input priority 0; policy accept;"; echo "  }"; echo "}"'
    finding pass firewall "nothing is kept out"
    firewall nft 'exec sleep 30'
    grep -q "  firewall  " out
    report $? "doctor: a tool that does not end is not waited for"
fi

finish
