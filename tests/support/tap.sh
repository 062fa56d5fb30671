# SPDX-License-Identifier: Apache-2.0
# For scripts of tests/cli, which source it with their arguments: $hearth is the command, $scratch a directory that goes
# away, `subcommand` what stands before the arguments of each run. No setting of the user's environment is left.
hearth=$(realpath "${1:-${HEARTH_BINARY_DIR:-build}/hearth}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
number=0
failed=0
subcommand=
unset NO_COLOR HEARTH_RANK RANK MASTER_ADDR MASTER_PORT OMP_NUM_THREADS GLOO_SOCKET_IFNAME
unset HEARTH_SECRET HEARTH_SECRET_FILE HEARTH_SECRET_FD HEARTH_KEY_FILE HEARTH_PLAIN

# report STATUS NAME: one TAP line; what the command said follows if it was wrong.
report() {
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $number - $2"
    else
        failed=$((failed + 1))
        echo "not ok $number - $2"
        head -c 3000 "$scratch/err" "$scratch/out" | sed "s/^/#   /" | cut -c 1-200 | head -n 40
    fi
}

# run ARGUMENTS...: the command; gives its exit code and keeps it in $code.
run() {
    timeout 100 "$hearth" $subcommand "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    return $code
}

# fails CODE WORDS ARGUMENTS...: this exit code, nothing on standard output, WORDS in the message.
fails() {
    local expected=$1 words=$2
    shift 2
    run "$@"
    [ $code -eq "$expected" ] && [ ! -s "$scratch/out" ] && grep -qF -- "$words" "$scratch/err"
    report $? "hearth $subcommand $* exits with $expected and says \"$words\""
}

# refuses WORDS ARGUMENTS...: the same with the exit code of wrong usage.
refuses() {
    fails 2 "$@"
}

# said PATTERN: whether it was on standard error.
said() {
    grep -qE -- "$1" "$scratch/err"
}

# until_true COMMAND...: waits for it, at most half a minute.
until_true() {
    for _ in $(seq 300); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}

# finish: the last line of a script.
finish() {
    echo "1..$number"
    [ $failed -eq 0 ]
}
