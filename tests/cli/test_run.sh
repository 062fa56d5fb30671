#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Drives hearth run: output, environment, exit codes, signals, failures, other hosts through a stand-in for ssh.
# What it does with the secret is in test_run_secret.sh.
set -um # jobs in the background must hear SIGINT
. "$(dirname "$0")/../support/tap.sh"
subcommand=run

lines() {
    [ "$(cat "$scratch/out" "$scratch/err" | grep -c -- "$2")" -ge "$1" ]
}

# none_left WORD: no process has the word in its command line. Each test has its own, made of this shell's id.
none_left() {
    ! pgrep -f -- "$1" >/dev/null
}

# ---- usage ---------------------------------------------------------------------------------------------------------

refuses "there is no program" -n 2
refuses "there is no program" -n 2 --
refuses "-n '0' is not accepted" -n 0 -- true
refuses "-n '1025' is not accepted" -n 1025 -- true
refuses "there is no flag --host; did you mean --hosts?" --host a -- true
refuses "'b;c' is not a host" --hosts 'a,b;c' -- true
refuses "--i-trust-this-network" --plain --hosts a,b -- true
refuses "--i-trust-this-network" --plain --hosts localhost,b -- true
refuses "-n 2 is fewer than the 3" -n 2 --hosts a,b:2 -- true
refuses "neither an interface nor an address" --hosts localhost,b --bind nothing0 -- true
run --help
[ $code -eq 0 ] && grep -q "^usage: hearth run .* -- PROGRAM" "$scratch/out" && grep -q "^example:" "$scratch/out"
report $? "hearth run --help has usage and an example"

# ---- output --------------------------------------------------------------------------------------------------------

run -n 3 -- sh -c 'echo "out $RANK"; echo "err $RANK" >&2'
[ $code -eq 0 ] && [ "$(sort "$scratch/out")" = $'[0] out 0\n[1] out 1\n[2] out 2' ] &&
    [ "$(sort "$scratch/err")" = $'[0] err 0\n[1] err 1\n[2] err 2' ]
report $? "lines have their rank, each stream stays itself"
run -n 1 --no-prefix -- printf 'a\n\nb'
[ "$(od -c "$scratch/out")" = "$(printf 'a\n\nb\n' | od -c)" ]
report $? "--no-prefix; an empty line stays, a last line without its end gets one"
run -n 2 -- sh -c 'printf "%s" "$RANK"'
[ "$(sort "$scratch/out")" = $'[0] 0\n[1] 1' ]
report $? "last lines without their end are not joined"
run -n 1 -- sh -c 'head -c 65536 /dev/zero | tr "\0" x; echo; head -c 150000 /dev/zero | tr "\0" y; echo; echo z'
[ "$(awk '{ print length }' "$scratch/out" | tr '\n' ' ')" = "65540 65540 65540 18932 5 " ]
report $? "lines longer than 64 KiB are cut into pieces, one of just 64 KiB is not"
run -n 8 -- python3 -c '
import os, sys
r = os.environ["RANK"]
for i in range(4000):
    os.write(1 + i % 2, f"{r} {i} {chr(97 + int(r)) * (i % 300)}".encode())
    os.write(1 + i % 2, b"\n")'
python3 - "$scratch/out" "$scratch/err" <<'PYTHON'
import sys
for stream, name in enumerate(sys.argv[1:]):
    last = [stream - 2] * 8
    for line in open(name):
        prefix, rank, i, *rest = line.rstrip("\n").split(" ")
        assert prefix == f"[{rank}]" and int(i) == last[int(rank)] + 2, line
        assert rest == [chr(97 + int(rank)) * (int(i) % 300)], line
        last[int(rank)] = int(i)
    assert last == [3998 + stream] * 8, last
PYTHON
report $? "8 ranks that write much: all lines are there, whole and in order"
run -n 2 --output "$scratch/files" -- sh -c 'echo "out $RANK"; printf "err $RANK" >&2'
[ $code -eq 0 ] && [ ! -s "$scratch/out" ] && [ "$(cat "$scratch/files/1.out")" = "out 1" ] &&
    [ "$(cat "$scratch/files/0.err")" = "err 0" ]
report $? "--output writes a file for each rank and stream"
printf 'one\ntwo' | timeout 60 "$hearth" run -n 3 -- sh -c 'cat; echo "end $RANK"' >"$scratch/out" 2>"$scratch/err"
[ "$(sort "$scratch/out" | tr '\n' ' ')" = "[0] one [0] twoend 0 [1] end 1 [2] end 2 " ]
report $? "rank 0 reads our standard input, the others nothing"
head -c 3000000 /dev/urandom >"$scratch/random"
timeout 60 "$hearth" run -n 2 -- sh -c 'test $RANK = 1 || cksum' <"$scratch/random" >"$scratch/out" 2>"$scratch/err"
[ "$(cat "$scratch/out")" = "[0] $(cksum <"$scratch/random")" ]
report $? "much input arrives whole"
yes | timeout 60 "$hearth" run -n 2 -- sleep 0.2 >"$scratch/out" 2>"$scratch/err"
report $? "input that nobody reads harms nothing"
timeout 60 "$hearth" run -n 2 -- yes 2>"$scratch/err" | head -n 2 >"$scratch/out"
[ "${PIPESTATUS[0]}" -eq 141 ] && [ "$(wc -l <"$scratch/out")" -eq 2 ]
report $? "when nobody reads our output, all is ended"

# ---- environment ---------------------------------------------------------------------------------------------------

run -n 2 --i-trust-this-network --bind lo --transport shm -- env
python3 - "$scratch/out" <<'PYTHON'
import re, sys
ranks = [{}, {}]
for line in open(sys.argv[1]):
    m = re.match(r"\[(\d)\] (\w+)=(.*)", line)
    if m:
        ranks[int(m[1])][m[2]] = m[3]
for r, e in enumerate(ranks):
    assert e["HEARTH_RANK"] == e["RANK"] == e["HEARTH_LOCAL_RANK"] == e["LOCAL_RANK"] == str(r), e
    assert e["HEARTH_WORLD_SIZE"] == e["WORLD_SIZE"] == e["HEARTH_LOCAL_SIZE"] == e["LOCAL_WORLD_SIZE"] == "2", e
    assert e["GROUP_RANK"] == "0" and e["MASTER_ADDR"] == "127.0.0.1" and 1024 < int(e["MASTER_PORT"]) < 65536, e
    assert e["HEARTH_BIND"] == "lo" and e["HEARTH_TRANSPORT"] == "shm" and e["HEARTH_TRUST_NETWORK"] == "1", e
    assert e["HEARTH_RENDEZVOUS"].startswith("unix:@hearth-run-") and e["PATH"], e
    assert e["OMP_NUM_THREADS"] == "1", e
    assert e["HEARTH_PLAIN"] == "0" and e["HEARTH_KEY_FILE"] == "fresh" and int(e["HEARTH_SECRET_FD"]) > 2, e
    assert "HEARTH_SECRET" not in e and "HEARTH_SECRET_FILE" not in e, e
for name in "HEARTH_JOB", "HEARTH_RENDEZVOUS", "MASTER_PORT":
    assert ranks[0][name] == ranks[1][name], name
PYTHON
report $? "every rank has its variables, and torchrun's"
torch='echo "$MASTER_ADDR $MASTER_PORT ${OMP_NUM_THREADS-unset}"'
MASTER_ADDR=::1 MASTER_PORT=1234 OMP_NUM_THREADS=3 run -n 2 -- sh -c "$torch"
[ $code -eq 0 ] && [ "$(sort "$scratch/out" | tr '\n' '+')" = "[0] ::1 1234 3+[1] ::1 1234 3+" ]
report $? "MASTER_ADDR, MASTER_PORT and OMP_NUM_THREADS stay as the user set them"
run -n 1 -- sh -c 'echo "gloo by $GLOO_SOCKET_IFNAME"'
[ $code -eq 0 ] && lines 1 '\] gloo by lo$'
report $? "gloo gets the interface that leads to MASTER_ADDR"
GLOO_SOCKET_IFNAME=mine run -n 1 -- sh -c 'echo "gloo by $GLOO_SOCKET_IFNAME"'
[ $code -eq 0 ] && lines 1 '\] gloo by mine$'
report $? "GLOO_SOCKET_IFNAME stays as the user set it"
MASTER_ADDR=no.such.host.invalid run -n 1 -- sh -c 'echo "gloo by ${GLOO_SOCKET_IFNAME-itself}"'
[ $code -eq 0 ] && lines 1 '\] gloo by itself$'
report $? "a name that stands for no address leads nowhere, and nobody waits for it"
RANK=7 MASTER_ADDR=elsewhere MASTER_PORT=1234 run -n 1 -- sh -c "$torch"
[ $code -eq 0 ] && grep -qE '^\[0\] 127\.0\.0\.1 [0-9]{5} unset$' "$scratch/out"
report $? "those of a launcher that we run under are not the user's; one rank has its threads"
for port in 0 65536 abc 12x -1; do
    MASTER_PORT=$port refuses "MASTER_PORT is '$port'" -n 1 -- true
done
MASTER_PORT=4000 refuses "same port, 4000" --rendezvous 127.0.0.1:4000 -n 1 -- true
run -n 1 -- printf '%s|' --help '' "a 'b' \"c\" \$d" -- 'new
line'
[ "$(cat "$scratch/out")" = "$(printf '[0] %s|' --help)|a 'b' \"c\" \$d|--|new"$'\n'"[0] line|" ]
report $? "what stands after -- reaches the program as it is"

# ---- ends ----------------------------------------------------------------------------------------------------------

run -n 3 --grace 0 -- sh -c 'if [ $RANK = 1 ]; then exit 3; fi; sleep 300'
[ $code -eq 3 ] && said 'rank 1 \(pid [0-9]+, host localhost\) exited with code 3' && ! said 'rank [02].*(exited|killed)'
report $? "a rank fails: its code, its name, and the others are ended"
run -n 2 --grace 20s -- sh -c 'if [ $RANK = 0 ]; then kill -9 $$; fi; sleep 1; echo "peer lost" >&2; exit 5'
[ $code -eq 137 ] && said 'rank 0 .* was killed by signal 9 \(Killed\)' && said '^\[1\] peer lost$' && said 'rank 1 .* code 5'
report $? "a rank is killed: 137; the others have time to say what they saw"
run -n 2 --grace 0 -- sh -c 'trap "" TERM; if [ $RANK = 0 ]; then exit 4; fi; while :; do sleep 0.1; done'
[ $code -eq 4 ]
report $? "who does not hear SIGTERM is killed"
run -n 4 -- "$scratch/nothing"
[ $code -eq 127 ] && [ "$(wc -l <"$scratch/err")" -eq 1 ] && said "cannot run '$scratch/nothing': No such file"
report $? "a program that is not there: 127, said once, with its name"
run -n 2 -- "$scratch"
[ $code -eq 126 ] && said "cannot run '$scratch': Permission denied"
report $? "a program that cannot be run: 126"
word=left.$$.1
run -n 2 -- bash -c "exec -a $word sleep 300 & setsid bash -c 'exec -a $word sleep 300' & sleep 0.5; exit 0"
[ $code -eq 0 ] && none_left "$word"
report $? "what a program leaves behind is ended with it"

# ---- signals -------------------------------------------------------------------------------------------------------

# started SCRIPT: begins hearth run with two ranks in the background and waits until both have said ready.
started() {
    : >"$scratch/out" # the shell in the background may be late, and the last case has said ready too
    "$hearth" run -n 2 -- bash -c "$1" >"$scratch/out" 2>"$scratch/err" </dev/null &
    pid=$!
    until_true lines 2 ready
}

for signal in INT TERM HUP USR1 USR2; do
    started "trap 'echo got $signal; exit 0' $signal; echo ready; while :; do sleep 0.1; done"
    kill -$signal $pid
    wait $pid
    [ $? -eq 0 ] && lines 2 "got $signal" && ! lines 3 "got $signal"
    report $? "SIG$signal reaches every rank once"
done
started "trap '' INT; echo ready; while :; do sleep 0.1; done"
kill -INT $pid && until_true lines 1 "next one kills" && kill -INT $pid
wait $pid
[ $? -eq 130 ] && said "killing all"
report $? "a second Ctrl-C kills"
word=orphan.$$
started "trap '' TERM HUP; bash -c 'exec -a $word.1 sleep 300' & setsid bash -c 'trap \"\" TERM; exec -a $word.2 sleep 300' &
    (exec -a $word.3 sleep 300 & wait) & echo ready; while :; do sleep 0.1; done; : $word.0"
kill -9 $pid
wait $pid 2>/dev/null
until_true none_left "$word"
report $? "kill -9 of the launcher: children and their children are gone"

# ---- other hosts ---------------------------------------------------------------------------------------------------

# A stand-in for ssh: the same machine, another directory, an empty environment, a shell that reads the command.
cat >"$scratch/ssh" <<'SCRIPT'
#!/bin/sh
test "$1" = deaf && { echo "ssh: connect to host deaf: Connection refused" >&2; exit 255; }
test "$1" = chatty && echo "Welcome to chatty"
test "$1" = slow && echo "slow begins" >&2 && sleep 1
agent() { printf 'h\023\0\0hearth host agent 2'; printf "$1"; cat >/dev/null; exit 0; }
case $1 in
empty) agent 'f\0\0\0' ;;
well) agent 'f\005\0\0\0well' ;;
everyone) agent 'p\004\0\0\001\0\0\0' ;;
meddler) agent 't\001\0\0\0' ;;
endless) agent 'o\377\377\377' ;;
colourful) agent 'f\006\0\0\176\033[2Jx' ;;
esac
cd / && exec env -i PATH="$PATH" HOST="$1" sh -c "$2"
SCRIPT
chmod +x "$scratch/ssh"
away=(--ssh "$scratch/ssh" --rendezvous 10.9.8.7)

HEARTH_CHUNK_BYTES=4K GREETING="it's a \"test\" \$x" OTHER=1 run "${away[@]}" --env GREETING --hosts one,me@two:2 -- \
    sh -c 'echo "$HOST $RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $HEARTH_CHUNK_BYTES $GREETING $OTHER. $PWD"
           echo "$HEARTH_RENDEZVOUS $MASTER_ADDR $MASTER_PORT" | sed "s/[0-9]* \(10.9.8.7\) [0-9]*/P \1 P/"'
[ $code -eq 0 ] && [ "$(sort "$scratch/out")" = "$(sort <<END
[0] one 0 0/1 0 4K it's a "test" \$x . $PWD
[1] me@two 1 0/2 1 4K it's a "test" \$x . $PWD
[2] me@two 2 1/2 1 4K it's a "test" \$x . $PWD
[0] 10.9.8.7:P 10.9.8.7 P
[1] 10.9.8.7:P 10.9.8.7 P
[2] 10.9.8.7:P 10.9.8.7 P
END
)" ]
report $? "other hosts: ranks in order, same directory, variables handed on without harm"
OMP_NUM_THREADS=2 MASTER_ADDR=10.1.1.1 MASTER_PORT=99 run "${away[@]}" --hosts one,two -- sh -c "$torch; echo \$HEARTH_RENDEZVOUS"
[ $code -eq 0 ] && lines 2 '10\.1\.1\.1 99 2$' && lines 2 '\] 10\.9\.8\.7:'
report $? "other hosts: the user's MASTER_ADDR, MASTER_PORT and OMP_NUM_THREADS reach them, the rendezvous is ours"
run "${away[@]}" --hosts one,two:2 -- sh -c 'echo "$HOST ${OMP_NUM_THREADS-unset}"'
[ $code -eq 0 ] && [ "$(sort "$scratch/out" | tr '\n' ' ')" = "[0] one unset [1] two 1 [2] two 1 " ]
report $? "OMP_NUM_THREADS is 1 where ranks share a host"
run "${away[@]}" --verbose -n 5 --hosts localhost,two:2 -- sh -c 'echo "${HOST:-here}"'
[ $code -eq 0 ] && [ "$(sort "$scratch/out" | tr '\n' ' ')" = "[0] here [1] here [2] two [3] two [4] two " ] &&
    said "rendezvous 10.9.8.7:" && said "ranks 2 to 4 on two"
report $? "a larger -n gives each host one more in turn; --verbose says where"
run --ssh "$scratch/ssh" --hosts localhost,127.1.2.3 --verbose -- sh -c 'echo $MASTER_ADDR'
[ $code -eq 0 ] && lines 2 '\] 127\.' && said "rendezvous 127.*interface lo"
report $? "the address is the one that leads to the first other host"
run "${away[@]}" --grace 0 --hosts one,two -- sh -c 'if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 300'
[ $code -eq 137 ] && said 'rank 1 \(pid [0-9]+, host two\) was killed by signal 9'
report $? "a rank elsewhere is killed"
run "${away[@]}" --hosts one,two -- "$scratch/nothing"
[ $code -eq 127 ] && said "host (one|two)\): cannot run '$scratch/nothing'"
report $? "a program that is not there, elsewhere"
run "${away[@]}" --grace 0 --hosts one,deaf -- sleep 300
[ $code -eq 255 ] && said "^\[1\] ssh: connect" && said "rank 1 \(host deaf\) was lost: ssh exited with code 255"
report $? "a host that cannot be reached is named"
run "${away[@]}" --hosts one,chatty -- sleep 300
[ $code -eq 1 ] && said "rank 1 .*Welcome to chatty.*print nothing"
report $? "a shell that talks is named"
for host in empty:0x66.*0 well:0x66.*5 everyone:0x70.*4 meddler:0x74.*1 endless:0x6f.*16777215; do
    run "${away[@]}" --grace 0 --hosts one,${host%%:*} -- sleep 300
    [ $code -eq 1 ] && said "rank 1 \(host ${host%%:*}\): its host agent broke the protocol.*${host#*:} bytes"
    report $? "a host agent that breaks the protocol (${host%%:*}) ends the job"
done
run "${away[@]}" --grace 0 --hosts one,colourful -- sleep 300
[ $code -eq 126 ] && said 'rank 1 \(host colourful\): \?\[2Jx'
report $? "what a host agent says cannot steer the terminal"

# started_far HOSTS PROGRAM...: begins it in the background.
started_far() {
    local hosts=$1
    shift
    : >"$scratch/out"
    : >"$scratch/err"
    "$hearth" run "${away[@]}" --hosts "$hosts" -- "$@" >"$scratch/out" 2>"$scratch/err" </dev/null &
    pid=$!
}

started_far slow sleep 5
until_true lines 1 "slow begins"
kill -INT $pid
wait $pid
[ $? -eq 130 ]
report $? "a signal that comes before a rank has started reaches it then"
word=far.$$
started_far one,two bash -c "echo ready; bash -c 'exec -a $word.1 sleep 300' & wait; : $word.0"
until_true lines 2 ready
kill -9 $pid
wait $pid 2>/dev/null
until_true none_left "$word"
report $? "kill -9 of the launcher ends ranks elsewhere"

# ---- programs that end as soon as they have done their part --------------------------------------------------------

good=0
for transport in shm tcp quic; do
    for _ in 1 2 3 4; do
        HEARTH_TRANSPORT=$transport run -n 3 -- "$(dirname "$hearth")/examples/reduce"
        [ $code -eq 0 ] && grep -qx '\[0\] pi is about 3[.]14[0-9]*' "$scratch/out" || break 2
        good=$((good + 1))
    done
done
[ $good -eq 12 ]
report $? "members that have given what rank 0 adds up end before it has"

run -n 3 -- "$(dirname "$hearth")/examples/ternary"
[ $code -eq 0 ] && [ "$(grep -c 'HEARTH_OK, off by 0[.]0' "$scratch/out")" -eq 3 ]
report $? "the example's own codec sums up to what plain gradients do"

# ---- two stages of one network -------------------------------------------------------------------------------------

pipeline=$(dirname "$hearth")/examples/pipeline
last_loss() { # ranks, codec: of the last step
    run -n "$1" -- "$pipeline" "$2"
    [ $code -eq 0 ] && sed -n 's/.* step 1000: loss //p' "$scratch/out"
}

one=$(last_loss 1 none)
[ -n "$one" ] && [ "$(last_loss 2 none)" = "$one" ]
report $? "a pipeline of two processes trains to the loss of one"
half=$(last_loss 2 bf16)
[ -n "$half" ] && [ "$half" != "$one" ] && awk "BEGIN { d = $half / $one - 1; exit !(d < 0.01 && d > -0.01) }"
report $? "and with bf16 to within 1 % of it"

finish
