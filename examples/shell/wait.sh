#!/usr/bin/env bash
# Waits in a shell for what no shell can wait for: whatever comes first of a child, a port, a file and a moment.
#
#   examples/shell/wait.sh
#
# `hwctl wait` works with or without the service. It exits with 0 when something came and prints what; HWCTL says where
# the program is.
set -euo pipefail

hwctl=${HWCTL:-hwctl}
command -v "$hwctl" >/dev/null || { echo "wait.sh: hwctl is not on the PATH: build it, or say HWCTL=/path/to/hwctl" >&2; exit 1; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# A file that somebody else makes, in a while.
(sleep 1 && touch "$folder/ready") &

echo "until the file is there, at most 30 seconds:"
"$hwctl" wait --timeout 30s "path:$folder/ready"

# A job with a deadline: whichever of the two comes first is printed.
sleep 1 &
echo "until the job has ended, or 10 seconds have passed:"
"$hwctl" wait --any "pid:$!" timer:10s

sleep 1 & first=$!
sleep 1 & second=$!
echo "until both have ended:"
"$hwctl" wait --all --timeout 30s "pid:$first" "pid:$second"

# A line of input: data on a descriptor, without reading it.
echo "until there is something to read:"
printf 'hello\n' | { "$hwctl" wait --timeout 30s fd:0 && cat; }

if ! "$hwctl" wait --timeout 1s "path:$folder/never"; then
    echo "the file never came, and the exit status says so"
fi
