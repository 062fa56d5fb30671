#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What hearth run does with the secret: ranks get it by a descriptor, other hosts over ssh's standard input, and nobody
# else sees it: no argument, no environment, no message, and no memory of launcher and host agents when it was handed over.
set -um
. "$(dirname "$0")/../support/tap.sh"
subcommand=run
unset XDG_CONFIG_HOME
export HOME=$scratch/home
mkdir "$HOME"

is_token() {
    grep -qE '^hearth1-[A-Za-z0-9._-]+-[0-9a-z]{58}$' "$1"
}

# What a rank says about its secret: the token and the variables. (Not by <&: some shells take only one digit there.)
show='printf "%s " "$RANK"; cat "/dev/fd/${HEARTH_SECRET_FD:-none}" 2>/dev/null || printf none
      echo " ${HEARTH_KEY_FILE-} ${HEARTH_PLAIN-} ${HEARTH_SECRET-} ${HEARTH_SECRET_FILE-}"'

# ---- a secret of its own -------------------------------------------------------------------------------------------

run -n 2 --no-prefix -- sh -c "$show"
sort "$scratch/out" >"$scratch/first"
[ $code -eq 0 ] && [ "$(cut -d ' ' -f 1 "$scratch/first" | tr '\n' ' ')" = "0 1 " ] &&
    [ "$(cut -d ' ' -f 3- "$scratch/first" | sort -u)" = "fresh 0  " ] && [ "$(cut -d ' ' -f 2 "$scratch/first" | sort -u | wc -l)" -eq 1 ]
report $? "all ranks read the same token by the descriptor, and have fresh keys"
cut -d ' ' -f 2 "$scratch/first" | sort -u >"$scratch/token"
is_token "$scratch/token"
report $? "what they read is a token"
run -n 1 --no-prefix -- sh -c "$show"
[ $code -eq 0 ] && ! grep -qF -f "$scratch/token" "$scratch/out"
report $? "the next job has another"
[ ! -e "$HOME/.config" ]
report $? "nothing is stored"
run -n 1 --no-prefix -- bash -c 'printf x 2>/dev/null >&"$HEARTH_SECRET_FD"; cat "/dev/fd/$HEARTH_SECRET_FD"'
is_token "$scratch/out"
report $? "a rank cannot change it"
HEARTH_KEY_FILE=/some/key run -n 1 --no-prefix -- sh -c 'echo "$HEARTH_KEY_FILE"'
[ "$(cat "$scratch/out")" = /some/key ]
report $? "the user's HEARTH_KEY_FILE is kept"
run -n 1 --verbose -- true
[ $code -eq 0 ] && said "connections are encrypted; the secret is of this job only" && ! said hearth1-
report $? "--verbose says whose the secret is, and not which"

# ---- who sees it ---------------------------------------------------------------------------------------------------

# A stand-in for ssh: the same machine, an empty environment. It notes its arguments, environment and standard input.
cat >"$scratch/ssh" <<'SCRIPT'
#!/bin/sh
notes=${0%/*}/notes.$1
printf '%s\n' "$@" >"$notes.args"
env >"$notes.env"
case $1 in
mirror) tee "$notes.in" ;; # a command that says what it hears
mute) cat >"$notes.in" ;;
*)
    rm -f "$notes.way" && mkfifo "$notes.way"
    exec 3<&0
    tee "$notes.in" <&3 >"$notes.way" &
    env -i PATH="$PATH" HEARTH_SECRET=stale HEARTH_SECRET_FILE=/stale sh -c "$2" <"$notes.way"
    code=$?
    kill $!
    exit $code
    ;;
esac
SCRIPT
chmod +x "$scratch/ssh"
away=(--ssh "$scratch/ssh" --rendezvous 10.9.8.7)

# Rank 0 is local, rank 1 elsewhere; both wait while everybody's arguments, environment and memory are looked at.
cat >"$scratch/rank" <<'SCRIPT'
#!/bin/sh
cat "/dev/fd/$HEARTH_SECRET_FD" >"$1/seen.$RANK.part"
mv "$1/seen.$RANK.part" "$1/seen.$RANK"
while test ! -e "$1/enough"; do sleep 0.1; done
SCRIPT
chmod +x "$scratch/rank"
MARK=planted.$$ timeout 60 "$hearth" run "${away[@]}" --verbose --hosts localhost,one -- "$scratch/rank" "$scratch" \
    >"$scratch/out" 2>"$scratch/err" </dev/null &
until_true pgrep -P $! >"$scratch/pid"
pid=$(cat "$scratch/pid")
until_true test -e "$scratch/seen.0" -a -e "$scratch/seen.1"
cmp -s "$scratch/seen.0" "$scratch/seen.1" && is_token "$scratch/seen.1"
report $? "a rank of another host has the same token"
cat >"$scratch/look.py" <<'PYTHON'
import os, pathlib, sys
token = pathlib.Path(sys.argv[1]).read_bytes().strip()
launcher, mark = int(sys.argv[2]), sys.argv[3].encode()
code = token[-58:]
number = 0
for message in code.decode():
    number = number << 5 | "0123456789abcdefghjkmnpqrstvwxyz".index(message)
raw = (number >> 2).to_bytes(36, "big")[:32]
patterns = {"token": token, "code": code, "bytes": raw, "digits": raw.hex().encode()}
parents, found_mark, problems = {}, False, []
for entry in pathlib.Path("/proc").iterdir():
    if not entry.name.isdigit():
        continue
    try:
        parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        for leaf in "cmdline", "environ":
            text = (entry / leaf).read_bytes()
            found_mark = found_mark or (leaf == "environ" and mark in text)
            problems += [f"{entry}/{leaf}: {name}" for name, pattern in patterns.items() if pattern in text]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        continue
assert found_mark, "a planted variable is not found, so this test sees nothing"
assert not problems, problems

def memory(pid):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, rights = line.split()[:2]
            low, high = (int(x, 16) for x in span.split("-"))
            if rights[1] != "w" or "[v" in line or high - low > 256 << 20:  # a sanitizer reserves terabytes
                continue
            try:
                mem.seek(low)
                yield line, mem.read(high - low)
            except OSError:
                continue

def is_ours(pid):  # the launcher, its host agent, and the one behind the stand-in for ssh
    above = pid
    while above and above != launcher:
        above = parents.get(above)
    try:
        return above == launcher and os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "hearth"
    except OSError:
        return False

ours = [pid for pid in parents if is_ours(pid)]
assert len(ours) == 3, ours
for pid in ours:
    try:
        for line, content in memory(pid):
            problems += [f"{pid} {line.strip()}: {name} at {content.index(pattern)}" for name, pattern in patterns.items()
                         if pattern in content]
    except PermissionError:
        print("# memory of other processes may not be read here")
assert not problems, problems
PYTHON
python3 "$scratch/look.py" "$scratch/seen.0" $pid "planted.$$" 2>>"$scratch/err"
report $? "no argument and no environment of any process has it, nor the memory of launcher and host agents"
ps axeww >"$scratch/ps"
! grep -qF -f "$scratch/seen.0" "$scratch/ps" && grep -qF "planted.$$" "$scratch/ps"
report $? "ps does not show it"
touch "$scratch/enough"
wait
[ $? -eq 0 ] && ! grep -qF -f "$scratch/seen.0" "$scratch/out" "$scratch/err"
report $? "the launcher does not say it"
grep -qaF -f "$scratch/seen.0" "$scratch/notes.one.in" &&
    ! grep -qaF -f "$scratch/seen.0" "$scratch/notes.one.args" "$scratch/notes.one.env"
report $? "ssh sees it on its standard input only"
run "${away[@]}" --hosts one --no-prefix -- sh -c "$show"
[ $code -eq 0 ] && grep -qE '^0 hearth1-[^ ]+ fresh 0  $' "$scratch/out"
report $? "what a login elsewhere has set does not count"
run "${away[@]}" --hosts mirror -- sleep 300
[ $code -eq 1 ] && said "rank 0 .*its answer is not that of this version of hearth" && ! said hearth1- && ! grep -qaF hearth1- "$scratch/notes.mirror.in"
report $? "who answers like no host agent never gets it"
"$hearth" run "${away[@]}" --hosts mute -- sleep 300 >"$scratch/out" 2>"$scratch/err" </dev/null &
until_true test -s "$scratch/notes.mute.in"
sleep 0.5
kill -9 $!
wait $! 2>/dev/null
! grep -qaF hearth1- "$scratch/notes.mute.in"
report $? "who does not answer neither"

# ---- plain ---------------------------------------------------------------------------------------------------------

run -n 2 --plain --verbose --no-prefix -- sh -c "$show"
[ $code -eq 0 ] && [ "$(sort "$scratch/out" | tr '\n' '+')" = "0 none  1  +1 none  1  +" ] && said "plain: nothing is encrypted"
report $? "--plain: no secret, no key, HEARTH_PLAIN=1, and it is said"
HEARTH_PLAIN=1 run -n 1 --verbose --no-prefix -- sh -c "$show"
[ $code -eq 0 ] && [ "$(cat "$scratch/out")" = "0 none  1  " ] && said "plain: nothing is encrypted"
report $? "HEARTH_PLAIN=1 does the same"
HEARTH_PLAIN=1 refuses "--i-trust-this-network" "${away[@]}" --hosts localhost,one -- true
refuses "leave out --plain" --plain --secret-file "$scratch/cluster" -n 1 -- true
run --plain --i-trust-this-network "${away[@]}" --hosts localhost,one --no-prefix -- sh -c 'echo "${HEARTH_SECRET_FD-} $HEARTH_PLAIN $HEARTH_TRUST_NETWORK"'
[ $code -eq 0 ] && [ "$(sort -u "$scratch/out")" = " 1 1" ]
report $? "--plain on several hosts, with --i-trust-this-network"

# ---- a secret of the user's ----------------------------------------------------------------------------------------

"$hearth" init lab --secret-file "$scratch/cluster" >/dev/null && is_token "$scratch/cluster"
report $? "hearth init stores a token"
token=$(cat "$scratch/cluster")
HEARTH_SECRET=$token run -n 2 --verbose --no-prefix -- sh -c "$show"
[ $code -eq 0 ] && [ "$(sort "$scratch/out" | tr '\n' '+')" = "0 $token fresh 0  +1 $token fresh 0  +" ] &&
    said "the secret is of HEARTH_SECRET" && ! said hearth1-
report $? "HEARTH_SECRET: by the descriptor, and no longer in the environment"
HEARTH_SECRET=$token timeout 60 "$hearth" run -n 1 --no-prefix -- sh -c 'tr "\0" "\n" </proc/$PPID/environ' >"$scratch/out" 2>"$scratch/err"
! grep -qF hearth1- "$scratch/out" && grep -q '^HOME=' "$scratch/out"
report $? "HEARTH_SECRET: nor in that of the host agent, as the system shows it"
HEARTH_SECRET=$token run "${away[@]}" --hosts one --no-prefix -- sh -c "$show"
[ $code -eq 0 ] && [ "$(cat "$scratch/out")" = "0 $token fresh 0  " ] && ! grep -qF hearth1- "$scratch/notes.one.args" "$scratch/notes.one.env"
report $? "HEARTH_SECRET: to other hosts over standard input"
HEARTH_SECRET_FD=9 run -n 1 --no-prefix -- sh -c "$show" 9<"$scratch/cluster"
[ $code -eq 0 ] && [ "$(cat "$scratch/out")" = "0 $token fresh 0  " ]
report $? "HEARTH_SECRET_FD"
for how in --secret-file variable; do
    options=()
    file=$scratch/cluster
    [ $how = variable ] || { options=(--secret-file cluster) && file=; }
    (cd "$scratch" && HEARTH_SECRET_FILE=$file run "${options[@]}" "${away[@]}" --hosts localhost,one --no-prefix -- sh -c "$show" && exit $code)
    [ $? -eq 0 ] && [ "$(sort "$scratch/out" | tr '\n' '+')" = "0 none fresh 0  $scratch/cluster+1 $token fresh 0  +" ]
    report $? "a stored secret ($how): here its file, elsewhere the descriptor"
done
HEARTH_SECRET_FD=9 HEARTH_SECRET=$token run -n 1 --no-prefix --secret-file "$scratch/cluster" -- sh -c "$show"
[ $code -eq 0 ] && [ "$(cat "$scratch/out")" = "0 none fresh 0  $scratch/cluster" ]
report $? "--secret-file comes before the environment"
HEARTH_SECRET=${token}x refuses "HEARTH_SECRET" -n 1 -- true
! said hearth1-[a-z]
report $? "a wrong HEARTH_SECRET is not repeated"
HEARTH_SECRET_FD=7 refuses "HEARTH_SECRET_FD" -n 1 -- true
HEARTH_SECRET_FD=0 refuses "HEARTH_SECRET_FD is '0'" -n 1 -- true
HEARTH_SECRET_FD=seven refuses "HEARTH_SECRET_FD is 'seven'" -n 1 -- true
fails 1 "$scratch/nothing" --secret-file "$scratch/nothing" -n 1 -- true
chmod 644 "$scratch/cluster"
fails 1 "chmod 600" --secret-file "$scratch/cluster" -n 1 -- true
chmod 600 "$scratch/cluster"

# ---- its trust list ------------------------------------------------------------------------------------------------

id=$("$hearth" id --json --key-file "$scratch/node.key" | sed -n 's/.*"node_id": "\(.*\)".*/\1/p')
stored=(--secret-file "$scratch/cluster")
"$hearth" trust remove "$id" "${stored[@]}" >/dev/null && run "${stored[@]}" "${away[@]}" --hosts localhost,one -- true
[ $code -eq 0 ] && said "trust list beside $scratch/cluster is known to the ranks of this machine only"
report $? "ranks elsewhere do not know the trust list, which is said"
"$hearth" trust add "$id" "${stored[@]}" >/dev/null 2>&1
refuses "set HEARTH_KEY_FILE" "${stored[@]}" -n 1 -- true
HEARTH_KEY_FILE=$scratch/node.key run "${stored[@]}" -n 1 -- true
[ $code -eq 0 ]
report $? "an allow-list and a key of the user's"

# ---- without a launcher ---------------------------------------------------------------------------------------------

program=$(dirname "$hearth")/examples/allreduce
port=$(python3 -B "$(dirname "$0")/../support/ports.py")
# meet HOST HOST: two ranks by a list of addresses, of a user who has set up nothing
meet() {
    mkdir -p "$scratch/fresh" && (
        unset HEARTH_SECRET HEARTH_SECRET_FILE HEARTH_KEY_FILE XDG_CONFIG_HOME
        export HOME=$scratch/fresh HEARTH_PEERS=$1:$port,$2:$((port + 1)) HEARTH_WORLD_SIZE=2 HEARTH_OPEN_TIMEOUT_MS=60000
        HEARTH_RANK=1 timeout 100 "$program" >"$scratch/one" 2>&1 &
        HEARTH_RANK=0 timeout 100 "$program"
        code=$?
        wait $! && exit $code
    ) >"$scratch/out" 2>"$scratch/err" </dev/null
}
if [ -x "$program" ]; then
    meet 127.0.0.1 localhost && grep -q "rank 0 of 2 has 2 1" "$scratch/out" && [ "$(stat -c %a "$scratch/fresh/.config/hearth/loopback")" = 600 ]
    report $? "peers on loopback need no setting up"
    meet 127.0.0.1 localhost
    report $? "and again, by the same secret"
    ! meet 127.0.0.1 192.0.2.1 && grep -q "hearth init" "$scratch/err"
    report $? "peers elsewhere need the cluster's secret"
fi

finish
