#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Drives hearth job as a user would: jobs that are remembered, listed and forgotten.
set -u
. "$(dirname "$0")/../support/tap.sh"
unset XDG_CONFIG_HOME
cd "$scratch" || exit 1
up=
trap '[ -n "$up" ] && kill -KILL "$up" 2>/dev/null; rm -rf "$scratch"' EXIT
export HOME=$scratch/home
mkdir "$HOME"

# says CODE WORDS ARGUMENTS...: this exit code, and WORDS on one of the outputs.
says() {
    local expected=$1 words=$2
    shift 2
    run "$@"
    [ $code -eq "$expected" ] && grep -qF -- "$words" out err
    report $? "hearth $(printf '%q ' "$@")exits with $expected and says \"$words\""
}

says 0 "usage:" job --help
says 0 "runs nowhere" job forget --help
says 2 "did you mean 'forget'" job forge train
says 2 "NAME" job forget
says 0 "remembers no job" job list
says 0 '"results": []' job list --json
says 0 "does not remember train" job forget train
says 0 '"forgotten": false' job forget train --json

# A node alone forms a job of one, is killed, and so remembers it.
"$hearth" init home >out 2>err
HEARTH_MDNS="" "$hearth" up --bind 127.0.0.1 --min 1 --job train -- sh -c 'echo begun; exec sleep 50' >log 2>&1 &
up=$!
until_true grep -q begun log
says 0 "train  ran with 1 member:" job list
says 0 '"job": "train"' job list --json
kill -KILL "$up"
wait "$up" 2>/dev/null
up=
says 0 "train  ran with 1 member:" job list
says 0 "Forgotten: train" job forget train
says 0 "remembers no job" job list

printf 'HJOBx' >"$HOME/.config/hearth/node.key.jobs"
chmod 600 "$HOME/.config/hearth/node.key.jobs"
says 1 "node.key.jobs is no list of jobs" job list
says 1 "node.key.jobs" job forget train

finish
