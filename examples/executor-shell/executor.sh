#!/bin/sh
# An executor for protocol 1 in POSIX shell. Its one action, verify.x.free_space,
# waits parameters.settle_seconds and then notes how full the work folder's disk is.
say() { printf '%s\n' "$1" >&3; }
end() { say "{\"type\":\"outcome\",\"result\":\"$1\",\"message\":\"$2\"}"; exit "$3"; }
field() { printf '%s' "$task" | grep -o "\"$1\":\"*[^,}\"]*" | head -n 1 | sed 's/^[^:]*:"*//'; }
tool=
trap 'kill "$tool" 2>/dev/null; wait; end task_failed "stopped by SIGTERM" 143' TERM
task=$(cat 3>&-)
action=$(field action 3>&-); out=$(field output_dir 3>&-); settle=$(field settle_seconds 3>&-)
[ "$action" = verify.x.free_space ] || end inputs_rejected "this executor only knows verify.x.free_space" 1

say '{"type":"progress","phase":"settle","done":0,"total":2}'
sleep "${settle:-0}" 3>&- & tool=$!
wait "$tool" || end inputs_rejected "settle_seconds is not a number of seconds" 1
df -Pk . >"$out/df.txt" 3>&- || end task_failed "df failed" 1
cat "$out/df.txt" 3>&-
say '{"type":"artifact","name":"disk_report","artifact_type":"report","path":"df.txt","media_type":"text/plain"}'
say "{\"type\":\"evidence\",\"name\":\"free_space\",\"evidence_type\":\"command_check\",\"result\":\"passed\",\"source\":\"disk_report\",\"observed_at\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ 3>&-)\"}"
end succeeded "measured" 0
