# SPDX-License-Identifier: Apache-2.0
# For the tests beside it: the command, a scratch directory in which they run, and the lines of their report.
binaries=$(realpath "${HEARTH_BINARY_DIR:-build}")
hearth=$(realpath "${1:-$binaries/hearth}")
support=$(realpath "$(dirname "$0")/../support")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
number=0
failed=0
unset NO_COLOR XDG_CONFIG_HOME HEARTH_SECRET HEARTH_SECRET_FILE HEARTH_SECRET_FD HEARTH_KEY_FILE HEARTH_PLAIN
cd "$scratch" || exit 1

# report STATUS NAME: one TAP line; what the command said follows if it was wrong.
report() {
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $number - $2"
    else
        failed=$((failed + 1))
        echo "not ok $number - $2"
        tail -n 60 ./err ./out ./*.log 2>/dev/null | cut -c 1-200 | sed "s/^/#   /"
    fi
}

# run ARGUMENTS...: hearth; its exit code is returned, and kept in $code.
run() {
    timeout 300 "$hearth" "$@" >out 2>err </dev/null
    code=$?
    return $code
}

# refuses CODE WORDS ARGUMENTS...: this exit code, nothing on standard output, WORDS in the message.
refuses() {
    local expected=$1 words=$2
    shift 2
    run "$@"
    [ $code -eq "$expected" ] && [ ! -s out ] && grep -qF -- "$words" err
    report $? "hearth $(printf '%q ' "${@//hearth1-*/TOKEN}")exits with $expected and says \"$words\""
}

# finish: the last line of a test.
finish() {
    echo "1..$number"
    [ $failed -eq 0 ]
}
