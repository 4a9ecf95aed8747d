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
(sleep 0.2 && touch "$folder/ready") &
writer=$!

echo "until the file is there, at most 30 seconds:"
"$hwctl" wait --timeout 30s "path:$folder/ready"

# A job with a deadline: whichever of the two comes first is printed.
sleep 0.3 &
job=$!
echo "until the job has ended, or 10 seconds have passed:"
"$hwctl" wait --any "pid:$job" timer:10s

echo "until both have ended:"
"$hwctl" wait --all --timeout 30s "pid:$job" "pid:$writer"

# A line of input: data on a descriptor, without reading it.
echo "until there is something to read:"
printf 'hello\n' | { "$hwctl" wait --timeout 30s fd:0 && cat; }

if ! "$hwctl" wait --timeout 0.1s "path:$folder/never"; then
    echo "the file never came, and the exit status says so"
fi
