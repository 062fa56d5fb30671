#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Drives hearth id, init, join and trust as a user would, and as somebody would who lays wrong files in their way.
set -u
. "$(dirname "$0")/../support/tap.sh"
unset XDG_CONFIG_HOME
cd "$scratch" || exit 1

# home NAME: begins with an empty home directory.
home() {
    export HOME=$scratch/$1
    rm -rf "$HOME"
    mkdir "$HOME"
    folder=$HOME/.config/hearth
}

# mode PATH: as four digits.
mode() {
    stat -c %04a "$1"
}

value() {
    sed -n "s/.*\"$1\": \"\{0,1\}\([^\",]*\).*/\1/p" out
}

# ---- help and usage ------------------------------------------------------------------------------------------------

home usage
for command in id init join "trust list" "trust add" "trust remove" "trust forget"; do
    run $command --help
    [ $code -eq 0 ] && grep -q "^usage: hearth $command" out && grep -q "^example" out
    report $? "hearth $command --help has usage and an example"
done
run trust --help
[ $code -eq 0 ] && grep -q "^usage: hearth trust WHAT" out && grep -q "^ *hearth trust remove shelf" out
report $? "hearth trust --help has usage and an example of each"
fails 2 "usage: hearth trust" trust
fails 2 "there is no trust command 'lits'; did you mean 'list'" trust lits
fails 2 "NODE is missing" trust add
fails 2 "too many arguments: 'c'" trust add a b c
fails 2 "too many arguments" join hearth1-a-b hearth1-c-d
! grep -q hearth1- err
report $? "a token too many is not repeated"
[ -z "$(ls -A "$HOME")" ]
report $? "nothing of this made a file"

# ---- id ------------------------------------------------------------------------------------------------------------

home first
(umask 0; run id; exit $code)
[ $? -eq 0 ] && grep -qE '^short form  [0-9a-z]{4}(-[0-9a-z]{4}){2}$' out && grep -qE '^node id     [0-9a-f]{64}$' out &&
    grep -q "^key file    $folder/node.key (made just now)$" out
report $? "hearth id makes the key on first use"
[ "$(mode "$folder")" = 0700 ] && [ "$(mode "$folder/node.key")" = 0600 ] && [ "$(ls -A "$folder")" = node.key ]
report $? "with mode 0600 in a directory with 0700, whatever the mask"
id=$(sed -n 's/^node id  *//p' out)
short=$(sed -n 's/^short form  *//p' out)
run id --json
[ $code -eq 0 ] && [ "$(value node_id)" = "$id" ] && [ "$(value short)" = "$short" ] && [ "$(value new)" = false ] &&
    [ "$(value key_file)" = "$folder/node.key" ]
report $? "the second time it is the same, also as JSON"
run id --key-file other.key
[ $code -eq 0 ] && [ "$(sed -n 's/^node id  *//p' out)" != "$id" ] && [ "$(mode other.key)" = 0600 ] && grep -q "$scratch/other.key" out
report $? "--key-file, by a relative path"
HEARTH_KEY_FILE=$folder/node.key HOME=/nowhere run id
[ $code -eq 0 ] && grep -q "$id" out
report $? "HEARTH_KEY_FILE"
XDG_CONFIG_HOME=$scratch/xdg run id
[ $code -eq 0 ] && [ -f "$scratch/xdg/hearth/node.key" ]
report $? "XDG_CONFIG_HOME"
XDG_CONFIG_HOME=relative run id
[ $code -eq 0 ] && grep -q "$id" out && [ ! -e relative ]
report $? "a relative XDG_CONFIG_HOME does not count"
HEARTH_KEY_FILE=fresh fails 2 "--key-file" id
listed=$(getent passwd "$(id -u)" | cut -d : -f 6)
for wrong in "" relative unset; do
    (
        export HOME=$wrong
        [ $wrong. != unset. ] || unset HOME
        run trust list --secret-file "$folder/cluster" && exit $code
    )
    report $? "HOME $wrong does not matter where the file is named"
    ( # only looks: this is the user's own home
        export HOME=$wrong
        [ $wrong. != unset. ] || unset HOME
        run trust list
        if [ "${listed:0:1}" = / ]; then grep -qF "$listed/.config/hearth/cluster" out err; else grep -q "set HOME" err; fi
    )
    report $? "HOME $wrong: the home that the system has for this user"
done
home race
for i in 1 2 3 4 5 6 7 8; do "$hearth" id >"race.$i" 2>&1 & done
wait
[ "$(sed 's/ (made.*//' race.? | sort -u | wc -l)" -eq 3 ] && [ "$(ls -A "$folder")" = node.key ]
report $? "eight at once: one key, and nothing else is left"

home attacked
run id
key=$folder/node.key
cp "$key" good.key
# attacked NAME WORDS: the key file as it is now is refused, and not changed.
attacked() {
    local before after
    before=$(ls -ln "$folder"; { cksum <"$key"; } 2>/dev/null)
    run id
    after=$(ls -ln "$folder"; { cksum <"$key"; } 2>/dev/null)
    [ $code -eq 1 ] && [ ! -s out ] && grep -qF "$key" err && grep -qE "$2" err && [ "$before" = "$after" ]
    report $? "a key file $1 is refused with the fix, and left as it is"
    rm -rf "$key"
    cp good.key "$key"
}
chmod 644 "$key" && attacked "that others can read" "chmod 600"
mv "$key" "$folder/real" && ln -s "$folder/real" "$key" && attacked "that is a symbolic link" "link"
rm -f "$folder/real"
ln -sf "$folder/nothing" "$key" && attacked "that is a link to nothing" "link"
rm -f "$key" && mkdir "$key" && attacked "that is a directory" "directory|file"
head -c 20 good.key >"$key" && attacked "that is cut short" "."
: >"$key" && attacked "that is empty" "."
head -c 300 /dev/urandom >"$key" && attacked "of random bytes" "."
mkfifo pipe && rm -f "$key" && mv pipe "$key" && chmod 600 "$key" && timeout 20 "$hearth" id >out 2>err </dev/null
[ $? -eq 1 ] && grep -qF "$key" err
report $? "a pipe at its place does not make us wait"
rm -f "$key"
if [ "$(id -u)" -eq 0 ]; then
    cp good.key "$key" && chown 12345 "$key" && attacked "of another user" "belongs to user 12345"
fi
touch plain
fails 1 "$scratch/plain" id --key-file plain/node.key

# ---- init ----------------------------------------------------------------------------------------------------------

home one
run init lab
token=$(sed -n 's/^  hearth join //p' out)
[ $code -eq 0 ] && [[ $token =~ ^hearth1-lab-[0-9a-z]{58}$ ]] && grep -q "^This token lets any machine join" out && grep -q "$folder/cluster" out
report $? "hearth init prints the token, the command and a warning"
[ "$(cat "$folder/cluster")" = "$token" ] && [ "$(mode "$folder/cluster")" = 0600 ] && [ "$(mode "$folder")" = 0700 ]
report $? "and stores it with mode 0600"
fails 1 "$folder/cluster" init
fails 1 "--replace" init other
[ "$(cat "$folder/cluster")" = "$token" ] && ! grep -q hearth1- err
report $? "a second time nothing is changed, and no token is shown"
run init --replace --json
[ $code -eq 0 ] && [ "$(value cluster)" = hearth ] && [ "$(cat "$folder/cluster")" = "$(value token)" ] && [ "$(value token)" != "$token" ] &&
    [[ $(value namespace) =~ ^[0-9a-f]{32}$ ]] && [ "$(value secret_file)" = "$folder/cluster" ] && grep -q "^This token lets" err
report $? "--replace makes another, as JSON; the warning is not part of it"
echo hello >junk
mkdir dir
for path in junk dir; do
    for words in "init" "init --replace" "join $token --replace"; do
        fails 1 "$scratch/$path is not a secret" $words --secret-file $path
        ! grep -q "already" err
        report $? "nor is it called one"
    done
done
[ "$(cat junk)" = hello ] && [ -d dir ]
report $? "a file that holds no token is never replaced"
for name in "" "two words" "$(printf 'x%.0s' $(seq 33))" $'new\nline' "sla/sh" "$token"; do
    run init "$name" --secret-file elsewhere
    [ $code -eq 2 ] && grep -q "name has 1 to 32 " err && ! grep -q "hearth1-lab" err && [ ! -e elsewhere ]
    report $? "a wrong name is refused and not repeated"
done
for i in 1 2 3 4 5 6; do "$hearth" init --secret-file racing >"race.$i" 2>&1 & done
wait
[ "$(grep -l "^  hearth join $(cat racing)$" race.[1-6] | wc -l)" -eq 1 ] && [ "$(grep -l "^  hearth join" race.[1-6] | wc -l)" -eq 1 ]
report $? "six at once: one makes it, the others say that it is there"
HEARTH_SECRET_FILE=$scratch/by.variable run init
[ $code -eq 0 ] && [ -f by.variable ]
report $? "HEARTH_SECRET_FILE"

# ---- join ----------------------------------------------------------------------------------------------------------

# joins NAME: the last run stored the token and did not show it.
joins() {
    [ $code -eq 0 ] && [ "$(cat "$folder/cluster" 2>/dev/null)" = "$token" ] && [ "$(mode "$folder/cluster")" = 0600 ] &&
        grep -q "Joined the cluster 'lab'" out && ! grep -q hearth1- out err
    report $? "hearth join: $1"
}
home two && run join "$token"
joins "by an argument"
run join "$token"
[ $code -eq 0 ] && grep -q "joined the cluster 'lab' already" out
report $? "the same again changes nothing and is no error"
for how in "" -; do
    home two
    printf ' %s \r\n' "$token" | timeout 20 "$hearth" join $how >out 2>err
    code=$?
    joins "from standard input, with white space around ($how)"
done
home two
printf %s "$token" | timeout 20 "$hearth" join >out 2>err
code=$?
joins "from standard input, without the end of a line"
home two && run join "${token^^}"
[ $code -eq 0 ] && grep -q "Joined the cluster 'LAB'" out
report $? "hearth join: in capitals"
home two
python3 - "$hearth" "$token" "$scratch/out" 2>err <<'PYTHON'
import os, pty, select, sys, termios, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], ["hearth", "join"])
seen, sent, deadline = b"", False, time.monotonic() + 20
while time.monotonic() < deadline:
    if not sent and b"Token: " in seen and not termios.tcgetattr(terminal)[3] & termios.ECHO:
        os.write(terminal, sys.argv[2].encode() + b"\n")
        sent = True
    if select.select([terminal], [], [], 0.05)[0]:
        try:
            seen += os.read(terminal, 1000)
        except OSError:
            break
open(sys.argv[3], "wb").write(seen)
assert sent and b"hearth1-" not in seen, seen
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PYTHON
code=$?
joins "from a terminal, with a question and unseen"
python3 - "$hearth" 2>err <<'PYTHON'
import os, pty, signal, sys, termios, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], ["hearth", "join", "--replace"])
before, deadline = b"", time.monotonic() + 20
while termios.tcgetattr(terminal)[3] & termios.ECHO and time.monotonic() < deadline:
    time.sleep(0.02)
os.write(terminal, b"\3")
try:
    while os.read(terminal, 1000):
        pass
except OSError:
    pass
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert code == -signal.SIGINT, code
PYTHON
report $? "hearth join: Ctrl-C at the question ends it by the signal"
# The terminal of a shell that stays shows its messages again.
python3 - "$hearth" 2>err <<'PYTHON'
import os, pty, signal, subprocess, sys, termios, time
here, there = pty.openpty()
join = subprocess.Popen([sys.argv[1], "join", "--replace"], stdin=there, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
deadline = time.monotonic() + 20
while termios.tcgetattr(there)[3] & termios.ECHO and time.monotonic() < deadline:
    time.sleep(0.02)
assert not termios.tcgetattr(there)[3] & termios.ECHO
join.send_signal(signal.SIGTERM)
assert join.wait(20) == -signal.SIGTERM
assert termios.tcgetattr(there)[3] & termios.ECHO
PYTHON
report $? "hearth join: a signal finds the terminal as it was"

home three
# wrong WORDS TOKEN: refused by argument and by standard input, unrepeated, and nothing is stored.
wrong() {
    local words=$1 text=$2 inner=${2:9:40}
    for how in argument input; do
        if [ $how = argument ]; then run join "$text"; else
            printf '%s\n' "$text" | timeout 20 "$hearth" join >out 2>err
            code=$?
        fi
        [ $code -eq 2 ] && grep -qF "$words" err && [ ! -e "$folder/cluster" ] && { [ -z "$inner" ] || ! grep -qF -- "$inner" err; }
        report $? "a wrong token by $how: \"$words\""
    done
}
last=${token: -1}
if [ "$last" = 4 ]; then other=8; else other=4; fi
wrong "typing error" "${token%?}$other"
wrong "typing error" "${token/lab/lob}"
wrong "cut short" "${token%?}"
wrong "cut short" "${token}0"
wrong "character" "${token%?}u"
wrong "no join token" "swordfish swordfish swordfish"
wrong "like a node's id" "$id"
wrong "no join token" "${id}0"
fails 2 "no token on standard input" join
printf '\n\n' | timeout 20 "$hearth" join - >out 2>err
[ $? -eq 2 ] && grep -q "no token" err
report $? "an empty line is no token"
head -c 100000 /dev/zero | tr '\0' x | timeout 20 "$hearth" join - >out 2>err
[ $? -eq 2 ] && grep -q "too long" err
report $? "much input is no token"
timeout 20 "$hearth" join >out 2>err <&-
[ $? -eq 1 ] && grep -q "cannot be read" err
report $? "a closed standard input is no token"

run init mine
cp "$folder/cluster" before
fails 1 "another cluster, 'mine'" join "$token"
cmp -s before "$folder/cluster"
report $? "another cluster's secret stays"
run trust remove "$id"
run join "$token" --replace
[ "$(cat "$folder/cluster")" = "$token" ] && grep -q "existing trust list stays" err
joins "--replace leaves the other one; the trust list that stays is named"
chmod 644 "$folder/cluster"
fails 1 "chmod 600 $folder/cluster" join "$token"
run join "$token" --replace
joins "--replace mends a file that others could read"
mkdir folder
fails 1 "$scratch/folder" join "$token" --secret-file folder
fails 1 "$scratch/folder" join "$token" --secret-file folder --replace
[ -z "$(ls -A folder)" ] && [ -z "$(ls -A "$scratch" | grep -v '^[a-z]')" ]
report $? "a directory at its place stays empty, and nothing is left beside it"
ln -s "$folder/cluster" link
fails 1 "link" join "$token" --secret-file link

# ---- trust ---------------------------------------------------------------------------------------------------------

home four
run trust list
[ $code -eq 0 ] && grep -q "^Every node with the secret may join" out && grep -q "no cluster secret yet" err
report $? "trust list before there is anything"
fails 1 "no cluster secret" trust add "$id"
fails 1 "no cluster secret" trust remove "$id"
run init
list=$folder/cluster.trust
run trust list
[ $code -eq 0 ] && grep -q "^Every node with the secret may join: the list is empty" out && [ ! -s err ]
report $? "an empty list says that every node with the secret may join"
fails 2 "64 hexadecimal digits" trust add "$short"
fails 2 "64 hexadecimal digits" trust add "${id}0"
fails 2 "64 hexadecimal digits" trust remove "$short"
fails 1 "not on the list" trust forget "$id"
fails 2 "NAME is longer" trust add "$id" "$(printf 'x%.0s' $(seq 64))"
fails 2 "cannot be shown" trust add "$id" $'two\nlines'
[ ! -s "$list" ]
report $? "none of this made a list"
run trust add "$id" "my desk"
[ $code -eq 0 ] && grep -qE "^allowed  $short  $id  my desk$" out && grep -q "allow-list is in force" out && grep -q "only allowed nodes may join" err
report $? "trust add allows, and says that all others are shut out from now on"
run trust add "${id//[0-9]/7}"
[ $code -eq 0 ] && [ ! -s err ] && [ "$(grep -c ^allowed out)" -eq 2 ]
report $? "the second one is no such news"
run trust add "$id"
[ $code -eq 0 ] && grep -q "my desk" out && [ "$(grep -c ^allowed out)" -eq 2 ]
report $? "adding again keeps the name"
run trust remove "$short"
[ $code -eq 0 ] && grep -qE "^revoked  $short  $id  my desk$" out && [ ! -s err ]
report $? "trust remove revokes, by the short form too"
run trust list --json
[ $code -eq 0 ] && [ "$(value allow_list)" = true ] && [ "$(value allowed)" = 1 ] && [ "$(value revoked)" = 1 ] && [ "$(value file)" = "$list" ] &&
    [ "$(value label | sort | tr '\n' ',')" = ",my desk," ] && [ "$(value state | sort | tr '\n' ' ')" = "allowed revoked " ]
report $? "trust list as JSON"
run trust remove "${id//[0-9]/7}"
[ $code -eq 0 ] && grep -q "no allowed node is left" err && grep -q "^Every node with the secret may join, except revoked" out
report $? "when the last allowed one goes, it is said that the list is off"
run trust add "$id"
[ $code -eq 0 ] && grep -q "^allowed  $short" out
report $? "a revoked node can be allowed again"
run trust forget "$id" && run trust forget "${id//[0-9]/7}"
[ $code -eq 0 ] && grep -q "list is empty" out
report $? "trust forget takes them out"
for i in 0 1 2 3 4 5 6 7; do "$hearth" trust add "${id%?}$i" >/dev/null 2>&1 & done
wait
run trust list
[ "$(grep -c ^allowed out)" -eq 8 ]
report $? "eight at once: all take effect"
cp "$list" good.list
# spoilt NAME WORDS: the list as it is now is refused by list and add, and not changed.
spoilt() {
    local before
    before=$({ cksum <"$list"; } 2>/dev/null)
    for deed in list "add $id"; do
        run trust $deed
        [ $code -eq 1 ] && [ ! -s out ] && grep -qF "$list" err && grep -qE "$2" err && [ "$before" = "$({ cksum <"$list"; } 2>/dev/null)" ]
        report $? "a list $1 is refused by trust ${deed%% *} and left as it is"
    done
    rm -rf "$list"
    cp good.list "$list"
}
echo "allow everybody" >>"$list" && spoilt "with a wrong line" "line 10"
echo "allow $short" >>"$list" && spoilt "with a short form" "line 10"
head -c 1000 /dev/urandom >"$list" && spoilt "of random bytes" "line"
chmod 666 "$list" && spoilt "that others can write" "chmod"
mv "$list" moved && ln -s "$scratch/moved" "$list" && spoilt "that is a link" "link"
rm -f "$list" && mkdir "$list" && spoilt "that is a directory" "directory|file"
run trust list --secret-file "$scratch/racing"
[ $code -eq 0 ] && grep -q "File: $scratch/racing.trust" out
report $? "--secret-file: each secret has its own list"

finish
